"""Actor processes: the actor's side, which runs in a spawned process."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from dqnspeed.actors.stepper import env_seeds, make_stepper
from dqnspeed.algorithms import epsilon_at
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, make_vector_env
from dqnspeed.memory import Rings, Rows, SharedBuffers
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding

PAUSE_S = 0.0005


@dataclass(frozen=True)
class Ready:
    """The actor's environments are made; ``games_restored``: with their saved games."""

    games_restored: bool


@dataclass(frozen=True)
class Paused:
    """All that the actor needs to continue; it waits until pause ``number`` is over."""

    number: int
    state: dict[str, Any]


@dataclass(frozen=True)
class Unshared:
    """The weights on the learner's GPU could not be opened; ``reason``: CUDA's message."""

    reason: str


class Weights:
    """The learner's network, pickled for an actor, which shares its weights.

    If they cannot be opened there (CUDA IPC may be missing), the actor still starts and sends the reason.
    """

    def __init__(self, network: Network | None, reason: str = ""):
        self.network, self.reason = network, reason

    def __reduce__(self) -> Any:
        return _open_weights, (bytes(ForkingPickler.dumps(self.network)),)


def _open_weights(pickled: bytes) -> Weights:
    try:
        return Weights(pickle.loads(pickled))
    except Exception as error:
        return Weights(None, first_line(error))


def first_line(error: Exception) -> str:
    """The first line of an error's message; CUDA's errors add hints for debugging kernels."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@dataclass(frozen=True)
class Failure:
    """The traceback of what an actor raised."""

    traceback: str


class Controls:
    """Counters and flags that the learner and all actors share, with a slot for each actor in the arrays."""

    def __init__(self, context: Any, num_actors: int):
        # Plain flags: an event has a lock, which a killed actor may never release.
        self.go, self.stop = context.Value("b", 0, lock=False), context.Value("b", 0, lock=False)
        self.pause = context.Value("q", 0, lock=False)  # the number of this pause, 0 while actors may act
        self.limit = context.Value("d", 0, lock=False)  # agent steps of all actors together
        self._steps = context.RawArray("q", num_actors)
        self._beats = context.RawArray("d", num_actors)
        self._seconds = context.RawArray("d", 2 * num_actors)

    @property
    def agent_steps(self) -> np.ndarray:
        """Agent steps each actor has collected, ``(num_actors,) int64``."""
        return np.frombuffer(self._steps, np.int64)

    @property
    def heartbeat(self) -> np.ndarray:
        """``time.monotonic()`` of each actor's last sign of life, ``(num_actors,) float64``."""
        return np.frombuffer(self._beats, np.float64)

    @property
    def seconds(self) -> np.ndarray:
        """Seconds each actor spent acting and stepping, ``(num_actors, 2) float64``."""
        return np.frombuffer(self._seconds, np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class ActorJob:
    """The arguments of an actor process."""

    run: RunConfig
    spec: EnvSpec
    index: int
    weights: Weights
    device: torch.device
    buffers: SharedBuffers | None  # the learner's memory with transport=shared_memory
    lock: Any
    controls: Controls
    dump_path: str
    state: Any  # what Paused held when the run was saved, or None
    segment: int


def act(job: ActorJob, pipe: Any) -> None:
    """Entry point of an actor process: acts until stopped; what it raises is sent to the learner."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the learner alone ends a run
        signal.signal(ignored, signal.SIG_IGN)
    dump = open(job.dump_path, "w")  # noqa: SIM115  held open for a crash of the interpreter itself
    faulthandler.enable(dump)
    faulthandler.register(signal.SIGUSR1, dump)
    torch.set_num_threads(1)
    try:
        if job.weights.network is None:
            pipe.send(Unshared(job.weights.reason))
        else:
            _loop(job, job.weights.network, pipe)
    except (Exception, SystemExit) as error:
        message = str(error) if isinstance(error, ActorError) else traceback.format_exc()
        # At the end of a run the learner has closed its end of the pipe.
        with contextlib.suppress(OSError):
            pipe.send(Failure(message))
    finally:
        pipe.close()


def _loop(job: ActorJob, network: Network, pipe: Any) -> None:
    run, controls, index = job.run, job.controls, job.index
    seeding.seed_everything(env_seeds(run.seed, index, 1, job.segment)[0])
    env = make_vector_env(run)
    stepper = make_stepper(run, job.spec, network, job.device, env, index, job.state, job.segment)
    written = _rings(job)
    deliver = _sender(pipe) if written is None else lambda rows: written.append(rows, index * run.num_envs)
    agent_steps, heartbeat = controls.agent_steps, controls.heartbeat
    pipe.send(Ready(stepper.games_restored))
    try:
        while not controls.go.value:
            time.sleep(PAUSE_S)
            _check_parent()
        beats, paused = 0, 0
        while not controls.stop.value:
            heartbeat[index] = time.monotonic()
            beats += 1
            if beats % 256 == 0:
                _check_parent()
            if pause := controls.pause.value:
                if pause != paused:  # the next pause may start before this process checks again
                    pipe.send(Paused(pause, {**stepper.state_dict(), "agent_steps": int(agent_steps[index])}))
                    paused = pause
                time.sleep(PAUSE_S)
                continue
            total = int(agent_steps.sum())
            if total >= controls.limit.value:
                time.sleep(PAUSE_S)
                continue
            stepper.start(epsilon_at(total, run))
            rows, episodes = stepper.finish()
            deliver(rows)
            agent_steps[index] += int(rows.transition.sum())
            controls.seconds[index] = stepper.seconds["acting"], stepper.seconds["stepping"]
            for episode in episodes:
                lane = index * run.num_envs + episode.env
                pipe.send(replace(episode, env=lane, end_row=0 if written is None else written.rows(lane)))
    finally:
        stepper.close()


def _rings(job: ActorJob) -> Rings | None:
    """The learner's memory, if rows are written straight into it, or ``None`` if they go through the pipe."""
    if job.buffers is None:
        return None
    return Rings(job.buffers, job.spec.stack, lock=job.lock)


def _sender(pipe: Any) -> Callable[[Rows], None]:
    """Rows go through the pipe one at a time, pickled, as through the chapter's queue."""

    def send(rows: Rows) -> None:
        for i in range(len(rows.actions)):
            pipe.send((i, rows.one(i)))

    return send


def _check_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # the learner was killed
