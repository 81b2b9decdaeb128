"""The console as Warp compiles it, from one source, for CPUs and for CUDA."""

# mypy: ignore-errors
# Annotations are what Warp compiles, so they are no strings.

import functools
import hashlib
import os

import warp as wp

from atari_warp.translation import NATIVE, fast

if wp.config.log_level == wp.LOG_INFO:  # nobody has chosen another: no banner in what a command prints
    wp.config.log_level = wp.LOG_ERROR


def _init_quietly() -> None:
    """Start Warp, whose library tells the standard error where there is no CUDA; what goes wrong is raised."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        wp.init()
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        wp.init()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


_init_quietly()

PARTS = ("bits", "tia", "dpc", "console", "cpu", "fast", "game", "agent", "entry")
SIZE, LOAD, START, PLAY, BEGIN, STEP = range(6)
POINTS, GAME_OVER, OUT_OF_TIME, LIVES, REWARD, TERMINATED, TRUNCATED, STARTS, FIRST, SECOND, ANSWERS = range(11)

# Observations are rounded as OpenCV rounds them, which multiplies and adds apart.
OPTIONS = {"enable_backward": False, "fuse_fp": False}
wp.set_module_options(OPTIONS)


@functools.cache
def hash_of_sources() -> bytes:
    """Of what a console and an agent are made of."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(NATIVE.glob("*.h")))).digest()


@functools.cache
def run_with(translation: str) -> wp.Kernel:
    """The kernel that plays, with C++ of :mod:`atari_warp.translation`."""
    body = "\n".join(fast(translation) if part == "fast" else (NATIVE / f"{part}.h").read_text() for part in PARTS)

    def emulate(
        order: int,
        i: int,
        envs: int,
        state: wp.array2d(dtype=wp.uint8),
        screens: wp.array4d(dtype=wp.uint8),
        rom: wp.array(dtype=wp.uint8),
        trace: wp.array(dtype=wp.uint8),
        facts: wp.array(dtype=int),
        tables: wp.array2d(dtype=int),
        script: wp.array(dtype=int),
        timers: wp.array(dtype=int),
        memory: wp.array(dtype=wp.uint8),
        stages: wp.array(dtype=int),
        seeds: wp.array(dtype=wp.uint64),
        mask: wp.array(dtype=int),
        actions: wp.array(dtype=int),
        frames: int,
        seen: int,
        answers: wp.array2d(dtype=int),
    ): ...

    emulate.__module__ = f"{__name__}.emulate"  # else it would be compiled with what is compiled of this one
    native = wp.func_native(body)(emulate)

    @wp.kernel(module="unique", module_options=OPTIONS)
    def run(
        order: int,
        first: int,
        count: int,
        first_spare: int,
        envs: int,
        state: wp.array2d(dtype=wp.uint8),
        screens: wp.array4d(dtype=wp.uint8),
        rom: wp.array(dtype=wp.uint8),
        trace: wp.array(dtype=wp.uint8),
        facts: wp.array(dtype=int),
        tables: wp.array2d(dtype=int),
        script: wp.array(dtype=int),
        timers: wp.array(dtype=int),
        memory: wp.array(dtype=wp.uint8),
        stages: wp.array(dtype=int),
        seeds: wp.array(dtype=wp.uint64),
        mask: wp.array(dtype=int),
        actions: wp.array(dtype=int),
        frames: int,
        seen: int,
        answers: wp.array2d(dtype=int),
    ):
        i = wp.tid()
        native(
            order, wp.where(i < count, first + i, first_spare + i - count), envs, state, screens, rom, trace, facts,
            tables, script, timers, memory, stages, seeds, mask, actions, frames, seen, answers,
        )  # fmt: skip

    return run


@wp.func_native((NATIVE / "bits.h").read_text() + (NATIVE / "pixels.h").read_text())
def observe_rows(
    i: int,
    part: int,
    parts: int,
    resized_to: int,
    left: int,
    width: int,
    halved: int,
    share: float,
    answers: wp.array2d(dtype=int),
    screens: wp.array4d(dtype=wp.uint8),
    shades: wp.array2d(dtype=wp.uint8),
    columns: wp.array2d(dtype=int),
    column_weights: wp.array2d(dtype=float),
    rows: wp.array2d(dtype=int),
    row_weights: wp.array2d(dtype=float),
    pooled: wp.array4d(dtype=wp.uint8),
    observations: wp.array4d(dtype=wp.uint8),
): ...


@wp.kernel
def observe(
    parts: int,
    resized_to: int,
    left: int,
    width: int,
    halved: int,
    share: float,
    answers: wp.array2d(dtype=int),
    screens: wp.array4d(dtype=wp.uint8),
    shades: wp.array2d(dtype=wp.uint8),
    columns: wp.array2d(dtype=int),
    column_weights: wp.array2d(dtype=float),
    rows: wp.array2d(dtype=int),
    row_weights: wp.array2d(dtype=float),
    pooled: wp.array4d(dtype=wp.uint8),
    observations: wp.array4d(dtype=wp.uint8),
):
    i, part = wp.tid()
    observe_rows(
        i, part, parts, resized_to, left, width, halved, share, answers, screens, shades, columns, column_weights,
        rows, row_weights, pooled, observations,
    )  # fmt: skip
