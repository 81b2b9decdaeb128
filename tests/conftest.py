from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import gc
import getpass
import json
import multiprocessing
import multiprocessing.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, cast

import aiohttp
import hydra
import hypothesis
import numpy as np
import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

TESTS = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Cli = Callable[..., subprocess.CompletedProcess[str]]  # the types of fixtures
Command = Callable[..., tuple[int, str, str]]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # several tests run side by side
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 has its actors wait for all that is beside them
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # processes that no actor would be
sys.path[:0] = [str(TESTS), str(TESTS.parent / "tools")]

import forked  # noqa: E402

forked.fork_children()

from dqnspeed.cli.app import run_app  # noqa: E402
from dqnspeed.cli.compose import from_hydra, own_hydra  # noqa: E402
from dqnspeed.cli.schemas import CONF_DIR  # noqa: E402
from dqnspeed.config.schema import RunConfig  # noqa: E402
from dqnspeed.envs import describe  # noqa: E402
from dqnspeed.training.loop import train  # noqa: E402
from dqnspeed.training.request import RunRequest  # noqa: E402

# Of a busy machine no time is asked.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

gc.freeze()  # what was imported is not looked through again and again

# The counting environment with a tiny network, ready for a few steps of anything.
TOY = [
    "env.id=toy_envs:Counter-v0",
    "env.reward_bound=null",
    "wrappers=none",
    "model=mlp",
    "model.hidden=[8]",
    "algo.learning_starts=40",
    "replay.buffer_size=2000",
    "tracking=local",
    "tracking.progress=off",
    "tracking.report_every_s=0.2",
    "execution.threads=1",
]


def as_arrays(state: Any) -> Any:
    """A state in the form that a checkpoint stores: NumPy arrays for tensors."""
    if isinstance(state, dict):
        return {name: as_arrays(value) for name, value in state.items()}
    return state.detach().cpu().numpy().copy() if isinstance(state, torch.Tensor) else state


@functools.cache
def make_run(*overrides: str) -> RunConfig:
    """The configuration that these overrides compose to."""
    return from_hydra(composed_config(*overrides))


def composed_config(*overrides: str) -> DictConfig:
    """The configuration before its checks; lines with the same options of groups share one composition."""
    options = [line for line in overrides if Path(CONF_DIR, line.partition("=")[0]).is_dir()]
    with contextlib.suppress(Exception):  # the whole composition raises what a user would see
        values = OverridesParser.create().parse_overrides([line for line in overrides if line not in options])
        if not any(line.startswith(("+", "~", "hydra")) for line in overrides):
            cfg = copy.deepcopy(_composed(*options))
            ConfigLoaderImpl._apply_overrides_to_config(values, cfg)  # Hydra's last step of a composition
            if not any(value.is_sweep_override() for value in values):
                return cfg
    return compose(*overrides)


def compose(*overrides: str) -> DictConfig:
    """Hydra's composition of these overrides."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


_composed = functools.cache(compose)


@contextlib.contextmanager
def composed(*overrides: str) -> Iterator[tuple[DictConfig, Any]]:
    """The configuration of a sweep, as Hydra gives it to its sweeper, and what composes its jobs."""
    with own_hydra():
        loader = GlobalHydra.instance().config_loader()
        yield loader.load_configuration("config", list(overrides), RunMode.MULTIRUN), loader


def on_cpu(batch: Any) -> Any:
    """A batch whose arrays are tensors, as memories give them."""
    arrays = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    return dataclasses.replace(
        batch, **{name: torch.from_numpy(a) for name, a in arrays.items() if isinstance(a, np.ndarray)}
    )


def make_toy(*overrides: str) -> RunConfig:
    """The counting environment with a tiny network, changed by these overrides."""
    return make_run(*TOY, *overrides)


def train_in(folder: Path, config: RunConfig, options: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Train in ``folder`` and return the summary; ``more`` are fields of a :class:`RunRequest`."""
    return train(RunRequest(config, describe(config), folder, options or {}, **more))


def mostly_integration(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Test parameters: ``kept`` for ``make test``, and the other ``cases`` for ``make integration``."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.integration) for case in cases]


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, which runs in a thread, since a browser of Playwright's has a loop in this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def listen(url: str, enough: Callable[[dict[str, Any], list[bytes]], object]) -> tuple[dict[str, Any], list[bytes]]:
    """The facts and pictures that a live page sends until there are ``enough``, or until its end."""

    async def hear() -> tuple[dict[str, Any], list[bytes]]:
        facts, pictures, address = dict[str, Any](), list[bytes](), url.replace("/?", "/socket?")
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as opened:
            async for message in opened:
                if message.type is aiohttp.WSMsgType.TEXT:
                    facts |= json.loads(message.data)
                elif message.type is aiohttp.WSMsgType.BINARY:
                    pictures.append(message.data)
                if enough(facts, pictures):
                    break
        return facts, pictures

    return cast("tuple[dict[str, Any], list[bytes]]", run_async(asyncio.wait_for(hear(), 90)))


@dataclasses.dataclass
class Training:
    """A state of a training for callbacks."""

    config: RunConfig
    folder: Path = Path()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    label: str = "toy"
    name: str = "toy, seed 0"
    group: str | None = None
    resumed_at: int | None = None
    agent_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    return_mean: float | None = None
    network: Any = None
    reason: str | None = None

    def end(self, reason: str) -> None:
        self.reason = reason


def untimed(state: Any, path: str = "") -> dict[str, Any]:
    """All leaves of a checkpoint except times."""
    if not isinstance(state, dict):
        return {path: state.tolist() if isinstance(state, np.ndarray) else state}
    # The mean loss and the best mean are taken when a report comes, and reports come by the clock.
    timed = "seconds eval_seconds timer time_to_solve_avg files resumed_at loss best provisional busy".split()
    return {k: v for key in state if key not in timed for k, v in untimed(state[key], f"{path}/{key}").items()}


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "dqnspeed.train", *overrides]


def environment() -> dict[str, str]:
    """For processes that need the toy environments; one thread each, so that tests do not fight for cores."""
    return {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def interrupted(act: Callable[[], None], position: int, *files: str) -> bool:
    """Call ``act`` with a signal at an instruction, and expect that its KeyboardInterrupt comes out.

    Args:
        position: of the instruction, from 1, counted in files whose names have one of ``files`` in them.

    Returns:
        Whether ``act`` has this position.
    """
    left = position

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = any(file in frame.f_code.co_filename for file in files)
        left -= frame.f_trace_opcodes
        if not left:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    assert left, "the signal was lost"
    return False


def shared_memory_of(belongs: Callable[[int], bool]) -> set[Path]:
    """Files of shared memory that the chosen processes have mapped (on Linux; none elsewhere).

    Args:
        belongs: takes the number of a process.
    """
    held: set[Path] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if belongs(int(maps.parent.name)):
                lines = maps.read_text().splitlines()
                held |= {Path(line.split(maxsplit=5)[5]) for line in lines if "/dev/shm/" in line}
    return {path for path in held if not path.name.endswith(" (deleted)")}


def has_reported(folder: Path, times: int = 3) -> Callable[[], bool]:
    """A function that is true once the run in ``folder`` has reported so often."""
    metrics = folder / "metrics.jsonl"
    return lambda: metrics.exists() and metrics.read_text().count("\n") >= times


@contextlib.contextmanager
def once_reported(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` beside the block once the run in ``folder`` has reported three times; it must do so."""
    acted = threading.Event()

    def wait() -> None:
        reported, deadline = has_reported(folder), time.monotonic() + 150  # a busy machine may be slow to begin
        while not reported():
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        acted.set()
        act()

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        yield
    finally:
        waiting.join()
    assert acted.is_set(), f"no three reports in {folder}"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs ``dqnspeed.train`` with these overrides in an empty folder, in a process of its own."""

    def run(*overrides: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return forked.run("dqnspeed.train", *overrides, cwd=tmp_path, env=environment(), timeout=timeout)

    return run


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command or a module of ``tools/`` in this process; returns its exit code, output and errors."""

    def run(module: ModuleType, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which run_app() sets for this whole process
        monkeypatch.setattr(sys, "path", [*sys.path])
        code = 0
        try:
            run_app(module._main) if hasattr(module, "_main") else module.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return run


# Folders and files whose tests train or start processes.
SLOW = {"agents", "doctor", "live", "play", "publish", "tracking", "training", "test_plugins.py",
        "actors/test_process.py", "actors/test_ray.py", "cli/test_resume.py", "cli/test_sweep.py",
        "cli/test_trust.py"}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Long ones of the files that stand in no folder would else come last, with most workers idle.
    items.sort(key=lambda item: item.path.parent != TESTS)
    for item in items:
        if not item.path.is_relative_to(TESTS):  # of another package
            continue
        path = item.path.relative_to(TESTS)
        if {path.parts[0], str(path)} & SLOW:
            item.add_marker("slow")
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def temporary_files_go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Delete the temporary files of killed processes at the end."""
    tmp_path_factory.getbasetemp()  # stays elsewhere, to be looked at
    multiprocessing.util.get_temp_dir()  # multiprocessing deletes it
    compiled = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled))  # stays, to be used again
    short = tempfile.TemporaryDirectory(prefix="dqn-", ignore_cleanup_errors=True)  # sockets have names in it
    with short as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")  # not the user's key
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Every test ends with as many children as it began with."""
    yield
    assert multiprocessing.active_children() == []
