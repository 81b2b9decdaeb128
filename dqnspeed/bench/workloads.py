"""Workloads of measured processes: whole trainings, their parts and hardware limits, by the code of a training."""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dqnspeed.algorithms import make_buffer, make_learner, make_network, make_policy
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.buffers import Batch, Buffer, Rows
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec, make_env, make_vector_env
from dqnspeed.envs.backends.base import Backend
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.system import machine
from dqnspeed.system.messages import kind_and_line
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking import Callback
from dqnspeed.tracking.metrics import Timer
from dqnspeed.training.loop import loop
from dqnspeed.training.request import RunRequest
from dqnspeed.training.run import Run, prepare_process
from dqnspeed.training.summary import close
from dqnspeed.training.updater import make_updater

WARM_UP_UPDATES = 4  # of a training, before its first event
STORED = 20_000  # transitions in the replay of parts
FRAMES, TRANSITIONS, BATCHES, ACTIONS = "frames", "transitions", "batches", "observations"  # work of parts
FLOP, BYTES = "FLOP", "bytes"
PARTS = ("sampling", "updating", "acting", "stepping")  # of a training, counted in seconds
MATRIX_SIZE = {"cpu": 1024}  # rows and columns of multiplied matrices; 8192 on other devices
COPIED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Workload:
    """The arguments of a measured process.

    Attributes:
        function: counts work until the counter raises :class:`SystemExit`.
        batch_size: observations or transitions processed at a time, in parts of a training.
    """

    function: Callable[[Workload, Counter], None]
    run: RunConfig
    spec: EnvSpec
    batch_size: int = 32


def main() -> None:
    """Run the pickled workload from standard input."""
    counter = Counter()
    logging.basicConfig(level=logging.WARNING)
    try:
        workload = pickle.load(sys.stdin.buffer)
        typed(workload.run.backend, Backend).compile_games(workload.run)
        workload.function(workload, counter)
    except Exception as error:
        traceback.print_exc()
        counter.fail(kind_and_line(error))


class CountUpdates(Callback):
    """Counts the work of a training after every round of updates.

    Actors may be some steps ahead, so agent steps are those whose updates are done.
    """

    def __init__(self, counter: Counter):
        self._counter = counter

    def on_update(self, training: Any) -> None:
        updates, config = training.updates, training.config
        if updates <= WARM_UP_UPDATES:
            return
        actors = config.parallelism.num_actors if config.parallelism.processes else 1
        per_actor = {part: seconds / actors for part, seconds in training.actors.seconds.items()}
        seconds = {**dict.fromkeys(PARTS, 0.0), **training.progress.timer.seconds, **per_actor}
        work = {STEPS: updates / config.updates_per_step, UPDATES: updates}
        self._counter.event({**work, **{part: seconds[part] for part in PARTS}})


def train(workload: Workload, counter: Counter) -> None:
    """A training as by ``dqnspeed.train``, in a temporary folder."""
    prepare_process(workload.run)
    with contextlib.ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="dqnspeed-bench-")))
        signals = resources.enter_context(StopSignals())
        request = RunRequest(workload.run, workload.spec, folder, {}, "bench", callbacks=[CountUpdates(counter)])
        run = Run(request, None, signals, resources)
        resources.callback(close, run, None)
        run.start_parts()
        counter.paused = run.threads.stopped
        loop(run)
        run.callbacks.check()


def step_envs(workload: Workload, counter: Counter) -> None:
    """The environments, with random actions and no network."""
    run, rng, steps = workload.run, np.random.default_rng(workload.run.seed), 0
    seeds = list(range(run.num_envs))
    with contextlib.closing(make_vector_env(run, run.parallelism.overlaps, seeds=seeds)) as env:
        env.reset(seeds)
        while True:
            env.send(rng.integers(workload.spec.num_actions, size=run.num_envs))
            steps += int((~env.recv().first).sum())
            counter.event({STEPS: steps, FRAMES: steps * run.wrappers.frame_skip})


def write_replay(workload: Workload, counter: Counter) -> None:
    """Writing into the replay, one step of all environments at a time."""
    rows, each = _random_rows(workload), 20
    with _replay(workload) as (buffer, _):
        for count in itertools.count(each, each):
            for _ in range(each):
                buffer.storage.append(rows)
            counter.event({TRANSITIONS: count * workload.run.num_envs})


def sample_replay(workload: Workload, counter: Counter) -> None:
    """Drawing batches from the replay."""
    with _replay(workload) as (buffer, _):
        for count in itertools.count(1):
            batch = buffer.sample(workload.batch_size)
            if batch.actions.device.type != "cpu":
                batch.actions[0].item()  # waits for the device
            counter.event({BATCHES: count})


def transfer_batches(workload: Workload, counter: Counter) -> None:
    """Copying batches from the host to the device."""
    to_device = ToDevice(machine.pick_device(workload.run.device), workload.run.execution.pin_memory)
    with _replay(workload, on_host=True) as (_, batch):
        for count in itertools.count(1):
            moved = to_device(batch.arrays())
            if count % 16 == 0:
                next(iter(moved.values())).flatten()[0].item()  # waits for the device
                counter.event({BATCHES: count})


def act(workload: Workload, counter: Counter) -> None:
    """Choosing greedy actions for a batch of observations."""
    run, spec = workload.run, workload.spec
    prepare_process(run)
    device, rng = machine.pick_device(run.device), np.random.default_rng(run.seed)
    network = make_network(run, spec)
    network.place(device, run.execution.channels_last)
    policy = make_policy(run, spec, network, device, rng)
    observations = _random(rng, (workload.batch_size, *spec.observation_shape), spec.frame_dtype)
    for count in itertools.count(1):
        policy(observations, 0.0)
        counter.event({ACTIONS: count * workload.batch_size})


def update(workload: Workload, counter: Counter) -> None:
    """Updates: of one batch again and again on a CPU, else of batches drawn for each update."""
    run = workload.run
    prepare_process(run)
    device = machine.pick_device(run.device)
    with _replay(workload) as (buffer, batch):
        learner = make_learner(run, workload.spec, device)
        learner.on_training_start(buffer.storage.recent_frames(run.model.background_frames))
        learner.warm_up(batch)
        learner.attach(buffer)
        updater = make_updater(run, learner, buffer, Timer(("sampling", "updating")))
        each = 1 if device.type == "cpu" else 64
        for count in itertools.count(each, each):
            if device.type == "cpu":
                learner.update(batch)
            else:
                updater.run(each)
                learner.stats()  # waits for the device
            counter.event({UPDATES: count})


def play_ale(workload: Workload, counter: Counter) -> None:
    """Frames of ALE alone, without observations."""
    env: Any = make_env(workload.run.env, workload.run.wrappers)
    ale = env.unwrapped.ale
    ale.reset_game()
    for count in itertools.count(100, 100):
        for _ in range(100):
            ale.act(0)
        if ale.game_over():
            ale.reset_game()
        counter.event({FRAMES: count})


def multiply_matrices(workload: Workload, counter: Counter) -> None:
    """Products of square matrices, with the precision and the threads of the learner."""
    run = workload.run
    prepare_process(run)
    device = machine.pick_device(run.device)
    size, dtype = MATRIX_SIZE.get(device.type, 8192), torch.float32
    if run.execution.precision == "bf16":
        dtype = torch.bfloat16
    left, right = (torch.rand(size, size, dtype=dtype, device=device) for _ in range(2))
    for count in itertools.count(1):
        product = left @ right
        if device.type != "cpu":
            product[0, 0].item()  # waits for the device
        counter.event({FLOP: 2 * count * size**3})


def copy_memory(workload: Workload, counter: Counter) -> None:
    """Copies of memory by one thread, as the replay makes them."""
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    for count in itertools.count(1):
        np.copyto(target, source)
        counter.event({BYTES: count * COPIED_BYTES})


@contextlib.contextmanager
def _replay(workload: Workload, on_host: bool = False) -> Iterator[tuple[Buffer, Batch]]:
    """A replay with a few thousand random transitions, and a batch of it."""
    run, spec = workload.run, workload.spec
    with contextlib.closing(make_buffer(run, spec, None if on_host else buffer_device(run, spec))) as buffer:
        rows = _random_rows(workload)
        for _ in range(0, min(STORED, run.replay.buffer_size // 2), run.num_envs):
            buffer.storage.append(rows)
        batch = buffer.sample(workload.batch_size)
        assert isinstance(batch, Batch)
        yield buffer, batch


def _random_rows(workload: Workload) -> Rows:
    """One step of all environments, with random frames."""
    count, spec, rng = workload.run.num_envs, workload.spec, np.random.default_rng(workload.run.seed)
    false = np.zeros(count, bool)
    return Rows(
        frames=_random(rng, (count, *spec.frame_shape), spec.frame_dtype),
        actions=rng.integers(spec.num_actions, size=count),
        rewards=np.zeros(count, np.float32),
        terminated=false,
        truncated=false,
        first=false,
        transition=~false,
    )


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return rng.integers(256, size=shape).astype(dtype)
