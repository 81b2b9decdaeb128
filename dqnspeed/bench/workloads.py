"""What is measured, in the process that is measured: whole trainings and their parts, by the code of a training."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from dqnspeed.algorithms import make_buffer, make_learner, make_network, make_policy
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.buffers import Batch, Buffer, Rows
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec, make_env, make_vector_env
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import set_threads
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.system import machine, seeding
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking import Callback
from dqnspeed.tracking.metrics import Timer
from dqnspeed.training.loop import loop
from dqnspeed.training.request import RunRequest
from dqnspeed.training.run import Run, prepare_process
from dqnspeed.training.updates import make_updates

WARM_UPDATES = 4  # of a training, before its first event
STORED = 20_000  # transitions in the replay that pieces draw from
# What pieces count, beside STEPS and UPDATES.
FRAMES, TRANSITIONS, BATCHES, ACTIONS = "frames", "transitions", "batches", "observations"
FLOP, BYTES = "FLOP", "bytes"
PARTS = ("sampling", "updating", "acting", "stepping")  # of a training; counted in seconds
MATRIX = {"cpu": 1024}  # rows and columns of the matrices that are multiplied; elsewhere 8192
COPIED = 64 * 2**20  # bytes copied at a time


@dataclass(frozen=True)
class Work:
    """The arguments of a piece.

    Args:
        piece: what is measured, a function of this module or of a script; ``size``: of its batches.
    """

    piece: Callable[[Work, Counter], None]
    run: RunConfig
    spec: EnvSpec
    size: int = 32


class CountUpdates(Callback):
    """Tells the bench, after every round of updates, how much was done.

    Agent steps are those that the updates are due for, since actors may be some steps ahead.
    """

    flop = 0  # of an update

    def __init__(self, counter: Counter):
        self._counter = counter

    def on_update(self, training: Any) -> None:
        updates, config = training.updates, training.config
        if updates <= WARM_UPDATES:
            return
        actors = config.parallelism.num_actors if config.parallelism.processes else 1
        of_each = {part: seconds / actors for part, seconds in training.actors.seconds.items()}
        seconds = {**training.progress.timer.seconds, **of_each}
        parts = {part: seconds.get(part, 0.0) for part in PARTS}
        counts = {STEPS: updates / config.updates_per_step, UPDATES: updates, FLOP: updates * self.flop, **parts}
        self._counter.event(counts)


def training(work: Work, counter: Counter) -> None:
    """The training of ``dqnspeed.train``, in a folder that is thrown away."""
    prepare_process(work.run)
    with contextlib.ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="dqnspeed-bench-")))
        signals = resources.enter_context(StopSignals())
        counting = CountUpdates(counter)
        request = RunRequest(work.run, work.spec, folder, {}, "bench", callbacks=[counting])
        run = Run(request, None, signals, resources)
        resources.callback(run.close, None)
        run.start_parts()
        counter.stopped = run.threads.stopped
        counting.flop = _flop_of_update(work, run.buffer.blank(work.run.algo.batch_size))
        loop(run)
        run.callbacks.check()


def envs(work: Work, counter: Counter) -> None:
    """The environments, with random actions and no network."""
    run, rng, steps = work.run, np.random.default_rng(work.run.seed), 0
    seeds = list(range(run.num_envs))
    with contextlib.closing(make_vector_env(run, run.parallelism.overlaps, seeds=seeds)) as env:
        env.reset(seeds)
        while True:
            env.send(rng.integers(work.spec.num_actions, size=run.num_envs))
            steps += int((~env.recv().first).sum())
            counter.event({STEPS: steps})


def frames(work: Work, counter: Counter) -> None:
    """ALE alone: frames of the game, which nobody looks at."""
    env: Any = make_env(work.run.env, work.run.wrappers)
    ale = env.unwrapped.ale
    ale.reset_game()
    for count in _forever():
        for _ in range(100):
            ale.act(0)
        if ale.game_over():
            ale.reset_game()
        counter.event({FRAMES: 100 * count})


def write(work: Work, counter: Counter) -> None:
    """Writing into the replay, a step of all environments at a time."""
    run = work.run
    with contextlib.closing(make_buffer(run, work.spec, device=buffer_device(run, work.spec))) as buffer:
        rows = _rows(work)
        for count in _forever():
            for _ in range(20):
                buffer.storage.append(rows)
            counter.event({TRANSITIONS: 20 * count * run.num_envs, BYTES: 20 * count * rows.frames.nbytes})


def sample(work: Work, counter: Counter) -> None:
    """Drawing batches from the replay."""
    with contextlib.closing(make_buffer(work.run, work.spec, device=buffer_device(work.run, work.spec))) as buffer:
        size = _bytes(_filled(work, buffer))
        for count in _forever():
            batch = buffer.sample(work.size)
            if batch.actions.device.type != "cpu":
                batch.actions[0].item()  # waits for the device
            counter.event({BATCHES: count, BYTES: count * size})


def act(work: Work, counter: Counter) -> None:
    """Choosing greedy actions for ``size`` observations at a time."""
    run, spec = work.run, work.spec
    set_threads(run)
    set_precision(run.execution)
    device, rng = machine.pick_device(run.device), np.random.default_rng(run.seed)
    network = make_network(run, spec)
    network.place(device, run.execution.channels_last)
    policy = make_policy(run, spec, network, device, rng)
    observations = _random(rng, (work.size, *spec.observation_shape), spec.frame_dtype)
    with FlopCounterMode(display=False) as counted:
        policy(observations, 0.0)
    for count in _forever():
        policy(observations, 0.0)
        counter.event({ACTIONS: count * work.size, FLOP: count * counted.get_total_flops()})


def update(work: Work, counter: Counter) -> None:
    """Updates, and the arithmetic of their layers: on a CPU on one batch, again and again, else on batches that are
    drawn for them."""
    run = work.run
    set_threads(run)
    set_precision(run.execution)
    keep_memory(run.execution)
    device = machine.pick_device(run.device)
    with contextlib.closing(make_buffer(run, work.spec, device=buffer_device(run, work.spec))) as buffer:
        batch = _filled(work, buffer)
        flop, learner = _flop_of_update(work, batch), make_learner(run, work.spec, device)
        learner.on_training_start(buffer.storage.recent_frames(run.model.background_frames))
        learner.warm_up(batch)
        learner.attach(buffer)
        updates = make_updates(run, learner, buffer, Timer(("sampling", "updating")))
        for count in _forever():
            if device.type == "cpu":
                learner.update(batch)
                counter.event({UPDATES: count, FLOP: count * flop})
            else:
                updates.do(64)
                learner.stats()  # waits for the device, and looks at every weight
                counter.event({UPDATES: 64 * count, FLOP: 64 * count * flop})


def transfer(work: Work, counter: Counter) -> None:
    """The way of batches to the device."""
    run = work.run
    device = machine.pick_device(run.device)
    to_device = ToDevice(device, run.execution.pin_memory)
    with contextlib.closing(make_buffer(run, work.spec)) as buffer:
        batch = _filled(work, buffer)
        for count in _forever():
            moved = to_device(batch.arrays())
            if count % 16 == 0:
                next(iter(moved.values())).flatten()[0].item()  # waits for the device
                counter.event({BATCHES: count, BYTES: count * _bytes(batch)})


def multiply(work: Work, counter: Counter) -> None:
    """Products of square matrices, in the learner's precision and on its threads."""
    run = work.run
    set_threads(run)
    device = machine.pick_device(run.device)
    set_precision(run.execution)
    keep_memory(run.execution)
    side, dtype = MATRIX.get(device.type, 8192), torch.bfloat16 if run.execution.precision == "bf16" else torch.float32
    left, right = (torch.rand(side, side, dtype=dtype, device=device) for _ in range(2))
    for count in _forever():
        product = left @ right
        if device.type != "cpu":
            product[0, 0].item()  # waits for the device
        counter.event({FLOP: 2 * count * side**3})


def copy(work: Work, counter: Counter) -> None:
    """Copies of memory, by one thread as the replay makes them."""
    there = np.ones(COPIED, np.uint8)
    here = np.empty_like(there)
    for count in _forever():
        np.copyto(here, there)
        counter.event({BYTES: count * COPIED})


def _forever() -> Iterator[int]:
    return itertools.count(1)


def _flop_of_update(work: Work, batch: Any) -> int:
    """Operations of the layers in one update: multiplications and additions, as torch counts them."""
    with seeding.preserved(), FlopCounterMode(display=False) as counted:
        eager = dataclasses.replace(work.run.execution, compile=False)
        run = dataclasses.replace(work.run, execution=eager)
        make_learner(run, work.spec, machine.pick_device(run.device)).update(batch)
    return int(counted.get_total_flops())


def _rows(work: Work) -> Rows:
    """A step of all environments, with random frames."""
    count, spec, rng = work.run.num_envs, work.spec, np.random.default_rng(work.run.seed)
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


def _filled(work: Work, buffer: Buffer) -> Batch:
    """A batch of a replay that this fills with a few thousand transitions."""
    rows = _rows(work)
    for _ in range(0, min(STORED, work.run.replay.buffer_size // 2), work.run.num_envs):
        buffer.storage.append(rows)
    batch = buffer.sample(work.size)
    assert isinstance(batch, Batch)
    return batch


def _bytes(batch: Batch) -> int:
    return sum(array.nbytes for array in batch.arrays().values())


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return rng.integers(256, size=shape).astype(dtype)
