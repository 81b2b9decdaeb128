"""Compiled kernels of CPUs, kept on disk with checksums, and Warp's own cache of kernels for GPUs."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import warp as wp

from atari_warp.games import FOLDER, EmulatorError

LOCK_TIMEOUT_S = 900.0  # another process that holds the lock may have been stopped
_locks = set[IO[str]]()
is_exiting = threading.Event()  # this process ends, and waits for nothing
SOURCES = ("kernels.py", "reset_pool.py", "rom_compiler.py", "compile.py")


@dataclass(frozen=True)
class Entry:
    """File in the cache, beside a JSON file with its checksum and the versions it belongs to.

    Attributes:
        label: begin of the file's name, for people.
        suffix: end of the file's name.
        belongs_to: versions and inputs of the content.
    """

    label: str
    suffix: str
    belongs_to: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the file without its suffix; other versions have other names."""
        key = hashlib.sha256(json.dumps(self.belongs_to, sort_keys=True).encode()).hexdigest()
        return f"{self.label}_{key[:16]}"

    def path(self, folder: Path) -> Path:
        """File of the entry."""
        return folder / (self.name + self.suffix)

    def record(self, folder: Path) -> Path:
        """JSON file of the entry, which is also the file of metadata that Warp asks for."""
        return folder / f"{self.name}{self.suffix}.json"

    def read(self, folder: Path) -> bytes | None:
        """Return the content, or ``None`` if it is missing, damaged or foreign."""
        try:
            record, content = json.loads(self.record(folder).read_bytes()), self.path(folder).read_bytes()
        except (OSError, ValueError):
            return None
        return content if record == self._record(content) else None

    def write(self, folder: Path, content: bytes) -> None:
        """Write the content; a process that reads meanwhile finds the former entry or none. Raises ``OSError``."""
        with staging_folder(folder, self.name) as staged:
            for path, data in (
                (self.path(folder), content),
                (self.record(folder), json.dumps(self._record(content)).encode()),
            ):
                (staged / path.name).write_bytes(data)
                (staged / path.name).replace(path)

    def _record(self, content: bytes) -> dict[str, Any]:
        return {"sha256": hashlib.sha256(content).hexdigest(), "belongs_to": dict(self.belongs_to)}


def module_entry(kernel: Any) -> Entry:
    """Entry of the object file with all kernels of a kernel's module."""
    return Entry(kernel.module.name.rpartition(".")[2], ".o", {**versions(), "module": kernel.module.name})


def load(entry: Entry, module: Any) -> bool:
    """Load a Warp module for CPUs from its entry; return whether there is an intact one."""
    for folder in cache_folders():
        if entry.read(folder) is not None:
            with contextlib.suppress(Exception):  # Warp raises no others
                module.load("cpu", block_dim=1, binary_path=entry.path(folder), meta_path=entry.record(folder))
                return True
    return False


def build(entry: Entry, kernel: Callable[[], Any], folder: Path) -> None:
    """Compile the module of a kernel for CPUs into its entry in ``folder``, unless it is there.

    Called in a process of its own, which Warp's compiler aborts on a full disk.
    """
    if entry.read(folder) is None:
        module = kernel().module
        with staging_folder(folder, entry.name) as staged:
            wp.config.kernel_cache_dir, former = str(staged), wp.config.kernel_cache_dir
            try:
                module.load("cpu", block_dim=1)
            finally:
                wp.config.kernel_cache_dir = former
            (made,) = staged.rglob("*.o")
            entry.write(folder, made.read_bytes())


def cache_folders() -> list[Path]:
    """Folders in which entries may be: within Warp's cache, and a temporary folder where Warp's cannot be written."""
    made = temporary_folder.cache_info().currsize
    temporary = temporary_folder() if made else _shared_temporary_folder()
    return [Path(wp.config.kernel_cache_dir) / "atari_warp", *filter(_is_own, [temporary])]


@functools.cache
def temporary_folder() -> Path:
    """Folder of this user that later processes find again. Raises ``OSError`` if none can be made."""
    folder = _shared_temporary_folder()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder if _is_own(folder) else Path(tempfile.mkdtemp(prefix="atari-warp-"))


def _shared_temporary_folder() -> Path:
    return Path(tempfile.gettempdir(), f"atari-warp-{os.getuid()}")


def _is_own(folder: Path) -> bool:
    """Whether only this user can write to a folder; code in it is run."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the sources, Warp and the processor, which an entry belongs to."""
    paths = [*sorted((FOLDER / "native").glob("*.h")), *(FOLDER / name for name in SOURCES)]
    sources = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    return {"sources": sources, "warp": str(wp.__version__), "processor": _processor()}


def _processor() -> str:
    """Model and instruction set of the processor: code for another one may contain illegal instructions."""
    found = [os.uname().sysname, os.uname().machine]
    with contextlib.suppress(OSError):
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            found.append(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
        else:
            with Path("/proc/cpuinfo").open() as file:
                for line in iter(file.readline, "\n"):  # up to the second processor
                    if not line:
                        break
                    name, _, value = line.partition(":")
                    if name.strip() in ("model name", "flags", "Features", "CPU part"):
                        found.append(value.strip())
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def compiled(kernel: Any, launch: Callable[[], Any]) -> Any:
    """Return ``launch()``, which compiles ``kernel`` or loads it from Warp's cache, if it is not loaded yet.

    Cached files that a full disk or a power cut has damaged are deleted and compiled again.

    Raises:
        EmulatorError: the kernel cannot be compiled.
    """
    with exclusive(Path(wp.config.kernel_cache_dir), kernel.module.name):
        try:
            return launch()
        except Exception:
            begin, hexadecimal = f"wp_{kernel.module.name}_", "[0-9a-f]" * 7  # other names are being written
            for folder in Path(wp.config.kernel_cache_dir).glob(begin + hexadecimal):
                shutil.rmtree(folder, ignore_errors=True)
        kernel.module.mark_modified()  # otherwise Warp remembers the failure
        try:
            return launch()
        except Exception as error:
            raise cannot_compile(str(error).strip().partition("\n")[0] or type(error).__name__) from error


def cannot_compile(reason: str) -> EmulatorError:
    """Error of a kernel that cannot be compiled."""
    return EmulatorError(
        f"WARP_CACHE_PATH={wp.config.kernel_cache_dir}: Warp cannot compile there ({reason.rstrip('.')}). Choose a "
        f"folder that can be written."
    )


def say(line: str) -> None:
    """Print a line on the standard error, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"atari-warp: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def staging_folder(folder: Path, name: str) -> Iterator[Path]:
    """New folder within ``folder``, deleted at the end. Its name tells its process. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder, prefix=f"{name}.{os.getpid()}.", suffix=".tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def delete_staging_folders(folder: Path, name: str = "*", pid: int | str = "*") -> None:
    """Delete folders that killed processes have left."""
    for left in folder.glob(f"{name}.{pid}.*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def exclusive(folder: Path, name: str) -> Iterator[bool]:
    """Let one of several processes compile a module; the others wait and load the result.

    Yields whether this process has the lock. A folder that cannot be written is reported later.
    """
    with contextlib.ExitStack() as held:
        is_locked = False
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / f"{name}.lock").open("w"))
            _locks.add(file)
            held.callback(_locks.discard, file)
            is_locked = _lock(file)
        yield is_locked


def close_locks() -> None:
    """Close locks that a forked process has inherited, which would else last as long as the process."""
    for file in _locks:
        file.close()
    _locks.clear()


def _lock(file: IO[str]) -> bool:
    """Lock a file, or return ``False`` after a timeout: compiling twice does no harm.

    Raises:
        OSError: the file system has no locks.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline or is_exiting.is_set():
                return False
        time.sleep(0.05)
