"""Compiled code of games for CPUs: loaded from the cache, or made by a child process while games are interpreted."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from atari_warp import kernels, reset_pool
from atari_warp.games import EmulatorError, Game
from atari_warp.kernel_cache import (
    Entry,
    cache_folders,
    cannot_compile,
    close_locks,
    delete_staging_folders,
    exclusive,
    is_exiting,
    load,
    module_entry,
    say,
    temporary_folder,
    versions,
)

START = "import sys; sys.path[:] = {}; from atari_warp.compile import child; child()"
Task = tuple[Game, Path | None] | None  # game and ROM file to translate; None compiles the interpreter

_children = set[subprocess.Popen[bytes]]()
_translations = dict[str, "Translation"]()
_lock, _is_unwritable = threading.Lock(), threading.Event()


class Translation:
    """Code of one game, compiled for this processor.

    Attributes:
        kernel: kernel to launch once the translation is ready.
        is_ready: whether the kernel is loaded.
    """

    def __init__(self, game: Game, path: Path | None, entry: Entry):
        self.is_ready = False
        self._error: EmulatorError | None = None
        self._entry, self._task = entry, (game, path and path.absolute())
        self.kernel = kernels.run_with(None, kernel_name(self._entry))
        self.kernel.module.get_module_hash(1)  # here, so that the thread leaves Python to the game
        self._thread = threading.Thread(target=self._make, name="atari-warp-compiler", daemon=True)
        if load(self._entry, self.kernel.module):
            self.is_ready = True
        else:
            self._thread.start()

    def wait(self) -> None:
        """Wait until the kernel is loaded. Raises :class:`EmulatorError` if it cannot be compiled."""
        self.join()
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Wait for the thread."""
        if self._thread.is_alive():
            self._thread.join()

    def _make(self) -> None:
        try:
            compile_in_child([self._entry], self._task, in_background=True)
            if not load(self._entry, self.kernel.module):
                raise cannot_compile("the compiled code is not there")
            self.is_ready = True
        except Exception as error:
            self._error = error if isinstance(error, EmulatorError) else cannot_compile(str(error))
            with _lock:
                _translations.pop(self._entry.name, None)  # the next Consoles try again
            if not is_exiting.is_set():
                say(f"{self._task[0].name} is interpreted, which is slower, as its code is not compiled. {self._error}")


def translation_of(game: Game, path: Path | None, rom: bytes) -> Translation:
    """Translation of a game, shared by all consoles of this process.

    Args:
        rom: content of the ROM file ``path``.
    """
    entry = translation_entry(game, rom)
    with _lock:
        if entry.name not in _translations:
            _translations[entry.name] = Translation(game, path, entry)
        return _translations[entry.name]


def kernel_name(entry: Entry) -> str:
    """Name of a game's kernel in its object file."""
    return f"run_{entry.name}"


def translation_entry(game: Game, rom: bytes, suffix: str = ".o") -> Entry:
    """Entry in the cache for the code of a game, or for the trace of its ROM."""
    made_of = (rom, np.array([*game.facts, -1, *np.ravel(game.script)]), game.rules.tables())
    played = hashlib.sha256(b"".join(map(bytes, made_of))).hexdigest()
    return Entry(game.name, suffix, {**versions(), "game": played})


@functools.cache
def load_kernels() -> None:
    """Load the interpreter and the small kernels for CPUs; they are compiled once.

    Raises:
        EmulatorError: the kernels cannot be compiled.
    """
    missing = [kernel for kernel in base_kernels() if not load(module_entry(kernel), kernel.module)]
    if missing:
        say("compiling the emulator, once, about 10 s ...")
        compile_in_child(list(map(module_entry, base_kernels())), None)
        for kernel in missing:
            load(module_entry(kernel), kernel.module)  # otherwise Warp compiles the kernel when it is launched


def base_kernels() -> list[Any]:
    """One kernel of each module that all games use."""
    return [kernels.run_with(), kernels.observe, kernels.color, reset_pool.match]


def compile_in_child(entries: Sequence[Entry], task: Task, in_background: bool = False) -> None:
    """Compile in a child process, into Warp's cache or, if that fails, into a temporary folder.

    Args:
        entries: entries that the task makes.

    Raises:
        EmulatorError: both have failed.
    """
    reason = "" if _is_unwritable.is_set() else _compile_into(cache_folders()[0], entries, task, in_background)
    if is_exiting.is_set() or not (reason or _is_unwritable.is_set()):
        return
    try:
        other = temporary_folder()
    except OSError as error:
        raise cannot_compile(reason or str(error)) from None
    problem = _compile_into(other, entries, task, in_background)
    if problem:
        raise cannot_compile(reason or problem)
    if reason:
        _is_unwritable.set()
        say(f"WARP_CACHE_PATH={wp.config.kernel_cache_dir}: cannot be written ({reason}). {other} is used instead.")


def _compile_into(folder: Path, entries: Sequence[Entry], task: Task, in_background: bool) -> str:
    """Compile entries that are missing in ``folder``; return why that has failed, or an empty string."""
    with exclusive(folder, entries[0].name) as is_locked:
        if is_locked:
            for entry in entries:
                delete_staging_folders(folder, entry.name)
        if all(entry.read(folder) is not None for entry in entries):
            return ""  # another process has compiled them
        return _run_child(folder, task, in_background)


def _run_child(folder: Path, task: Task, in_background: bool) -> str:
    """Run a child process that compiles into ``folder``; return why it has failed, or an empty string.

    The child ends when its standard input does, which is when this process ends.
    """
    request = pickle.dumps((str(wp.config.kernel_cache_dir), folder, task, in_background))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", START.format(list(map(str, sys.path)))], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip
    except OSError as error:
        return str(error)
    with process:
        assert process.stdin is not None and process.stderr is not None
        _children.add(process)
        try:
            if is_exiting.is_set():
                return "this process ends"
            with contextlib.suppress(BrokenPipeError):  # the child's last line tells more
                process.stdin.write(request)
                process.stdin.flush()
            said = process.stderr.read().decode(errors="replace")
            status = process.wait()
        finally:
            process.kill()
            _children.discard(process)
    if status == 0:
        return ""
    delete_staging_folders(folder, pid=process.pid)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [f"exit status {status}"]
    return next((line for line in lines if "ERROR" in line), lines[-1]).removeprefix("ERROR: ")


@atexit.register
def stop_children() -> None:
    """End children and threads, which must not load code while the interpreter is being finalized."""
    is_exiting.set()
    for process in list(_children):
        process.kill()
    for translation in list(_translations.values()):
        translation.join()


def _forget() -> None:
    """Forget threads and children of the parent in a forked process."""
    global _lock
    _lock = threading.Lock()
    for process in _children:
        if process.stdin is not None:
            process.stdin.close()  # otherwise the child would outlive its parent
    _children.clear()
    _translations.clear()
    close_locks()


os.register_at_fork(after_in_child=_forget)
