"""Consoles that start games ahead, for environments whose games end."""

# mypy: ignore-errors
# Warp compiles annotations, so they are not strings.

import functools
from typing import Any

import warp as wp

from atari_warp.kernel_cache import compiled
from atari_warp.kernels import ENDED
from atari_warp.kernels import EPISODE_START as READY

NOT_REPLACED = -1
GROUP_SIZE = 256  # environments that one GPU thread serves
MAX_GROUPS = 2**10  # bounds of groups are 32-bit products
COPY_THREADS = 64  # GPU threads that copy one console


def pool_size(asked: int | None, num_envs: int, on_gpu: bool) -> int:
    """Consoles in the pool: at most ``num_envs``; by default a quarter of it on a GPU and none on a CPU."""
    return min(int(asked), num_envs) if asked is not None else -(-num_envs // 4) if on_gpu else 0


def group_count(num_envs: int, pool: int) -> int:
    """Groups of environments, each with at least one console of the pool to itself."""
    return max(1, min(num_envs // GROUP_SIZE, pool, MAX_GROUPS))


wp.set_module_options({"enable_backward": False})


@wp.kernel
def match(
    envs: int,
    pool: int,
    groups: int,
    mask: wp.array(dtype=int),
    answers: wp.array2d(dtype=int),
    replacements: wp.array(dtype=int),
):
    """Assign the next ready pool console of its group to each environment whose game has ended."""
    group = wp.tid()
    ready, last = envs + pool * group // groups, envs + pool * (group + 1) // groups
    for i in range(envs * group // groups, envs * (group + 1) // groups):
        replacements[i] = NOT_REPLACED
        if mask[i] != 0 and answers[i, ENDED] != 0:
            while ready < last and answers[ready, READY] == 0:
                ready += 1
            if ready < last:
                replacements[i] = ready
                answers[ready, READY] = 0
                ready += 1


@wp.kernel
def swap(
    replacements: wp.array(dtype=int),
    state: wp.array2d(dtype=wp.uint8),
    screens: wp.array2d(dtype=wp.uint8),
    threads: int,
):
    """Swap the states of assigned consoles, and copy the pool's pictures.

    The console that joins the pool starts a game and needs no pictures. The third picture is used within a step only.
    """
    env, thread = wp.tid()
    ready = replacements[env]
    if ready == NOT_REPLACED:
        return
    for byte in range(thread, state.shape[1], threads):
        kept = state[env, byte]
        state[env, byte] = state[ready, byte]
        state[ready, byte] = kept
    for byte in range(thread, screens.shape[1] * 2 // 3, threads):
        screens[env, byte] = screens[ready, byte]


def swap_launches(
    envs: int, pool: int, replacements: Any, mask: Any, answers: Any, state: Any, screens: Any
) -> list[Any]:
    """Launches that replace ended games by ready ones."""
    device, groups = state.device, group_count(envs, pool)
    threads = COPY_THREADS if device.is_cuda else 1
    to_match = [envs, pool, groups, mask, answers, replacements]
    to_swap = [replacements, state, screens.reshape((len(screens), -1)), threads]
    return [
        compiled(kernel, functools.partial(wp.launch, kernel, dim, inputs, device=device, record_cmd=True))
        for kernel, dim, inputs in ((match, groups, to_match), (swap, (envs, threads), to_swap))
    ]
