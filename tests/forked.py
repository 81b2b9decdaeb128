"""Processes without the seconds that imports take: copies of one that has imported what a run needs.

As spawned ones do, they get pickled arguments, nothing else of their parent, and look for plugins by themselves if
their environment may bring others.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch

from dqnspeed.system import child_processes

START_METHOD = child_processes.START_METHOD  # outside tests
IMPORTED = "torch torch._dynamo ale_py cv2 gymnasium hydra omegaconf PIL psutil rich safetensors warp".split()

PACKAGES = "actors algorithms envs execution exploration buffers networks training system tracking cli".split()
FOLDER = Path(str(importlib.util.find_spec("dqnspeed").origin)).parent  # type: ignore[union-attr]
OURS = [
    f"dqnspeed.{package}.{module.name}"
    for package in PACKAGES
    for module in pkgutil.iter_modules([str(FOLDER / package)])
]

# Variables that may differ between a copy and the server that forks its children.
HARMLESS = {"PYTHONPATH", "PYTHONWARNINGS"}

TESTS = str(Path(__file__).parent)

# What is imported may not bear to be forked elsewhere, and CUDA never does.
FORKS = sys.platform == "linux" and not torch.cuda.is_available()
FORKED = multiprocessing.get_context("forkserver" if FORKS else "spawn")
if FORKS:
    FORKED.set_forkserver_preload([*IMPORTED, "dqnspeed.training.loop", *OURS])  # type: ignore[attr-defined]


def fork_children() -> None:
    """From now on this process forks actors and workers that it would have spawned; the server is their parent then."""
    child_processes.START_METHOD = FORKED.get_start_method()


class Forked:
    """``python -m MODULE ARGUMENT ...`` in a session of its own, with the interface of :class:`subprocess.Popen`.

    Args:
        spawns: whether its children are spawned, and in its session; else they are copies, too.
    """

    def __init__(self, module: str, *arguments: str, cwd: Path, env: Mapping[str, str], spawns: bool = True):
        self.args = [module, *arguments]
        self._told = [tempfile.NamedTemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        files = [file.name for file in self._told]
        own = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)} - HARMLESS
        address = None if spawns or own or not FORKS else _server_address()
        self._process = FORKED.Process(target=_begin, args=(module, arguments, cwd, dict(env), files, address))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def wait_for(self, holds: Callable[[], object], seconds: float = 150) -> None:
        """Wait until ``holds()`` is true while this process runs."""
        deadline = time.monotonic() + seconds
        while not holds():
            if self.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(self.communicate())
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        self._process.join(timeout)
        in_time = self._process.exitcode is not None
        if not in_time:
            os.kill(self.pid, signal.SIGABRT)  # prints where its threads are
            self._process.join(5)
        out, errors = (Path(file.name).read_text() for file in self._told)
        assert in_time, f"{self.args} had not ended after {timeout:g} s:\n{out}\n{errors}"
        return out, errors

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of the session is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()
        for file in self._told:
            file.close()


def run(module: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess:
    """Run a module to its end, with text as output; its children are forked too."""
    with Forked(module, *arguments, cwd=cwd, env=env, spawns=False) as forked:
        out, errors = forked.communicate(timeout)
        assert forked.returncode is not None
        return subprocess.CompletedProcess(forked.args, forked.returncode, out, errors)


def _forget_plugins(env: Mapping[str, str]) -> None:
    """Unload the command line if this environment may name plugins, since it looks for them when it is imported."""
    if env.get("DQNSPEED_PLUGINS") or env.get("PYTHONPATH") != TESTS:
        for name in [name for name in sys.modules if name.startswith("dqnspeed.cli")]:
            del sys.modules[name]


def _server_address() -> str:
    """Address of the server that forks."""
    forkserver.ensure_running()
    return str(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]


def _begin(
    module: str, arguments: Sequence[str], folder: Path, env: dict[str, str], files: list[str], address: str | None
) -> None:
    if address is not None:
        fork_children()
        # The same server forks the children of this process: another server would import everything again.
        server: Any = forkserver._forkserver  # type: ignore[attr-defined]
        server._forkserver_address, server.ensure_running = address, lambda: None
    os.setsid()
    # The server blocks these signals.
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if the tests run under nohup
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.path[:0] = [str(folder), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    faulthandler.enable()
    _forget_plugins(env)
    warnings.simplefilter("ignore")
    sys.argv = [module, *arguments]
    found = importlib.import_module(module)
    (found if hasattr(found, "main") else importlib.import_module(f"{module}.command")).main()
