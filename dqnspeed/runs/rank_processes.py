"""The processes of a run that learn together: starting them, and seeing that none is left."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.world import FILE, LOCAL, RANK, SIZE, World, is_launched, offer, store_here, store_in
from dqnspeed.system.signals import children_ignore_signals

JOIN_S = 120.0  # importing torch and making environments on a busy machine
PARTING_S = 20.0
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@contextlib.contextmanager
def led_world(run: RunConfig, device: torch.device, config: Mapping[str, Any]) -> Iterator[World]:
    """The world of a run, of which this process is rank 0; starts the others, unless that was done by a launcher."""
    size, children = run.execution.world_size, dict[int, SpawnProcess]()
    with contextlib.ExitStack() as resources:
        if is_launched():
            store = store_here()
        else:
            folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="dqnspeed-world-"))
            store = store_in(Path(folder, "store"), size)
            resources.callback(_ended, children)
            resources.callback(_set, {name: os.environ.get(name) for name in INTERFACES})
            _start(children, size, Path(folder, "store"))
        offer(store, json.dumps(config))
        world = World(0, size, store, device, patience_s(run), lambda: _gone(children))
        resources.callback(world.close)
        yield world


def patience_s(run: RunConfig) -> float:
    """Seconds after which a rank that does not answer counts as lost."""
    return max(JOIN_S, run.parallelism.timeout_s)


def _start(children: dict[int, SpawnProcess], size: int, file: Path) -> None:
    here = dict.fromkeys(INTERFACES, LOOPBACK)  # nobody else can connect
    os.environ.update(here)
    context = multiprocessing.get_context("spawn")
    with children_ignore_signals():
        for rank in range(1, size):
            own = {**here, FILE: str(file), SIZE: str(size), RANK: str(rank), LOCAL: str(rank)}
            children[rank] = context.Process(target=_begin, args=(own,), name=f"rank {rank}")
            children[rank].start()


def _set(environment: Mapping[str, str | None]) -> None:
    """Set variables of this process, or take them out."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _begin(environment: Mapping[str, str]) -> None:
    """Be what torchrun would have started."""
    os.environ.update(environment)
    sys.argv[1:] = []
    importlib.import_module("dqnspeed.cli.train").main()


def _gone(children: Mapping[int, SpawnProcess]) -> str | None:
    for rank, child in children.items():
        if (code := child.exitcode) is not None:
            return f"rank {rank} was killed by signal {-code}" if code < 0 else f"rank {rank} ended with code {code}"
    return None


def _ended(children: Mapping[int, SpawnProcess]) -> None:
    for child in children.values():
        if child.pid is not None:
            child.join(PARTING_S)  # it sees that the others are gone, and ends its actors
            child.kill()
            child.join()
