"""Games whose start is played ahead, for agents whose games end."""

# mypy: ignore-errors
# Annotations are what Warp compiles, so they are no strings.

import functools
from typing import Any

import warp as wp

from atari_warp.compiling import compiled
from atari_warp.kernels import GAME_OVER, OUT_OF_TIME
from atari_warp.kernels import STARTS as READY

NONE = -1
TOGETHER = 256  # games that share their spares, as a GPU's thread looks through them
MOST_GROUPS = 2**10  # their bounds are products of 32 bits
COPYING = 64  # threads of a GPU that copy a game


def spares_of(asked: int | None, num_envs: int, on_gpu: bool) -> int:
    """As many as are asked for, but one for each game at most; usually a quarter where all would wait for a start."""
    return min(int(asked), num_envs) if asked is not None else -(-num_envs // 4) if on_gpu else 0


def groups_of(num_envs: int, spares: int) -> int:
    """Those that look for a spare apart from each other, each with one at least."""
    return max(1, min(num_envs // TOGETHER, spares, MOST_GROUPS))


wp.set_module_options({"enable_backward": False})


@wp.kernel
def match(envs: int, spares: int, groups: int, answers: wp.array2d(dtype=int), takes: wp.array(dtype=int)):
    """The row of the spare whose game the agent of each row takes: of those in its group that are ready the next. None
    where its game goes on, or no other is ready."""
    group = wp.tid()
    spare, last = envs + spares * group // groups, envs + spares * (group + 1) // groups
    for i in range(envs * group // groups, envs * (group + 1) // groups):
        takes[i] = NONE
        if answers[i, GAME_OVER] != 0 or answers[i, OUT_OF_TIME] != 0:
            while spare < last and answers[spare, READY] == 0:
                spare += 1
            if spare < last:
                takes[i] = spare
                answers[spare, READY] = 0
                spare += 1


@wp.kernel
def exchange(
    takes: wp.array(dtype=int), state: wp.array2d(dtype=wp.uint8), screens: wp.array2d(dtype=wp.uint8), threads: int
):
    """The agent has the console whose game is ready, and its own starts its next one, for which it needs no pictures.
    The third of three pictures is of use within a step alone."""
    env, thread = wp.tid()
    spare = takes[env]
    if spare == NONE:
        return
    for byte in range(thread, state.shape[1], threads):
        kept = state[env, byte]
        state[env, byte] = state[spare, byte]
        state[spare, byte] = kept
    for byte in range(thread, screens.shape[1] * 2 // 3, threads):
        screens[env, byte] = screens[spare, byte]


def exchanges(envs: int, spares: int, takes: Any, answers: Any, state: Any, screens: Any) -> list[Any]:
    """Launches that give agents whose games have ended those that are ready."""
    device, groups = state.device, groups_of(envs, spares)
    copying = COPYING if device.is_cuda else 1
    finds = [envs, spares, groups, answers, takes]
    copies = [takes, state, screens.reshape((len(screens), -1)), copying]
    return [
        compiled(kernel, functools.partial(wp.launch, kernel, dim, inputs, device=device, record_cmd=True))
        for kernel, dim, inputs in ((match, groups, finds), (exchange, (envs, copying), copies))
    ]
