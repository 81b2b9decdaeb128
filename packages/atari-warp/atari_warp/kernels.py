"""Warp kernels that play and observe, compiled from one source for CPUs and CUDA."""

# mypy: ignore-errors
# Warp compiles annotations, so they are not strings.

import functools
import hashlib
import os

import warp as wp

from atari_warp.kernel_cache import say, temporary_folder
from atari_warp.rom_compiler import INTERPRETED, NATIVE, interpreter

if wp.config.log_level == wp.LOG_INFO:  # the default, which prints a banner
    wp.config.log_level = wp.LOG_ERROR


def _init() -> None:
    """Start Warp, with a temporary folder for its cache where the usual one cannot be made."""
    try:
        _init_quietly()
    except OSError as error:
        folder = temporary_folder()
        say(f"{error.filename}: cannot be made ({error.strerror}). Kernels are kept in {folder} instead.")
        wp.config.kernel_cache_dir = str(folder)
        _init_quietly()


def _init_quietly() -> None:
    """Start Warp without the line that its library writes to standard error where there is no CUDA."""
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


_init()

PARTS = ("bits", "tia", "tia_registers", "dpc", "console", "cpu", "fast", "game", "agent", "entry")
SIZE, LOAD, START, PLAY, BEGIN, RESTART, STEP = range(7)
(
    POINTS, GAME_OVER, OUT_OF_TIME, LIVES, REWARD, TERMINATED, TRUNCATED, EPISODE_START, ENDED, EPISODE_FRAMES, FRAMES,
    FIRST, SECOND, LEFT_OUT, ANSWERS,
) = range(15)  # fmt: skip

# OpenCV rounds after each product and each sum, so the compiler must not fuse them.
OPTIONS = {"enable_backward": False, "fuse_fp": False}
wp.set_module_options(OPTIONS)


@functools.cache
def hash_of_sources() -> bytes:
    """Hash of the native sources, part of the version of a saved state."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(NATIVE.glob("*.h")))).digest()


@functools.cache
def run_with(rom_code: str | None = INTERPRETED, name: str | None = None) -> wp.Kernel:
    """Kernel that plays, with the C++ of a game's code from :mod:`atari_warp.rom_compiler`.

    Args:
        rom_code: ``None`` if the kernel will be loaded and not compiled.
        name: name in the object file; by default Warp's, which contains a hash of the C++.
    """
    parts = {part: (NATIVE / f"{part}.h").read_text() for part in PARTS}
    body = "" if rom_code is None else "\n".join((parts | {"fast": interpreter(rom_code)}).values())

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
        settings: wp.array(dtype=int),
        seeds: wp.array(dtype=wp.uint64),
        mask: wp.array(dtype=int),
        actions: wp.array(dtype=int),
        frames: int,
        drawn: int,
        answers: wp.array2d(dtype=int),
    ): ...

    emulate.__module__ = f"{__name__}.emulate"  # a Warp module of its own
    native = wp.func_native(body)(emulate)

    @wp.kernel(module="unique", name=name, module_options={**OPTIONS, "strip_hash": name is not None})
    def run(
        order: int,
        first: int,
        count: int,
        pool_first: int,
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
        settings: wp.array(dtype=int),
        seeds: wp.array(dtype=wp.uint64),
        mask: wp.array(dtype=int),
        actions: wp.array(dtype=int),
        frames: int,
        drawn: int,
        answers: wp.array2d(dtype=int),
    ):
        i = wp.tid()
        native(
            order, wp.where(i < count, first + i, pool_first + i - count), envs, state, screens, rom, trace, facts,
            tables, script, timers, memory, settings, seeds, mask, actions, frames, drawn, answers,
        )  # fmt: skip

    return run


@wp.func_native((NATIVE / "bits.h").read_text() + (NATIVE / "pixels.h").read_text())
def observe_rows(
    i: int,
    part: int,
    parts: int,
    resize: int,
    blank: int,
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
    resize: int,
    blank: int,
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
        i, part, parts, resize, blank, left, width, halved, share, answers, screens, shades, columns, column_weights,
        rows, row_weights, pooled, observations,
    )  # fmt: skip


@wp.func_native((NATIVE / "bits.h").read_text() + (NATIVE / "colors.h").read_text())
def color_row(
    i: int,
    y: int,
    state: wp.array2d(dtype=wp.uint8),
    screens: wp.array4d(dtype=wp.uint8),
    colors: wp.array(dtype=wp.uint32),
    converted: wp.array3d(dtype=wp.uint8),
    pictures: wp.array4d(dtype=wp.uint8),
): ...


@wp.kernel(module="unique", module_options=OPTIONS)
def color(
    state: wp.array2d(dtype=wp.uint8),
    screens: wp.array4d(dtype=wp.uint8),
    colors: wp.array(dtype=wp.uint32),
    converted: wp.array3d(dtype=wp.uint8),
    pictures: wp.array4d(dtype=wp.uint8),
):
    i, y = wp.tid()
    color_row(i, y, state, screens, colors, converted, pictures)
