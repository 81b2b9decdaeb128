"""Actors in the learner's process: environments step in turn with the learner, or while it trains."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dqnspeed.actors.base import ActorArguments, Actors, Collected, NewGames, Parallelism
from dqnspeed.actors.stepper import EnvStepper, env_seeds
from dqnspeed.algorithms import epsilon_at
from dqnspeed.buffers import Buffer, RolloutBuffer
from dqnspeed.config.registry import register
from dqnspeed.envs import make_vector_env
from dqnspeed.execution.transfer import DeviceTimer


class SerialActor:
    """Environments and learner take turns.

    Args:
        groups: groups of equally many environments; environments of the first group have the first indices.
        epsilon_at: epsilon at an agent step.
        timer: measures the seconds that the device spends on acting.
        state: :meth:`state_dict` that the groups continue from.
    """

    def __init__(
        self,
        groups: Sequence[EnvStepper],
        buffer: Buffer,
        epsilon_at: Callable[[int], float],
        timer: DeviceTimer,
        state: Mapping[str, Any] | None = None,
    ):
        self._groups, self._buffer, self._epsilon_at, self._timer = groups, buffer, epsilon_at, timer
        self._agent_steps: int = state["0"]["agent_steps"] if state else 0
        self._seconds_before = [saved["seconds"] for saved in (state or {}).values()]
        if isinstance(buffer, RolloutBuffer):
            buffer.bootstrap = self._values

    @property
    def how(self) -> str:
        return self._groups[0].how

    @property
    def seconds(self) -> dict[str, float]:
        every = [*self._seconds_before, *(group.seconds for group in self._groups)]
        return {name: sum(one[name] for one in every) for name in ("acting", "stepping")} | {"waiting": 0.0}

    def metrics(self) -> dict[str, float]:
        return self._timer.metrics()

    def start(self) -> Collected:
        num_envs = self._groups[0].num_envs
        new = [i for i, group in enumerate(self._groups) if not group.games_restored]
        episodes = [NewGames(range(i * num_envs, (i + 1) * num_envs)) for i in new]
        return Collected(episodes=[*episodes], epsilon=self._epsilon_at(self._agent_steps))

    def send(self) -> None:
        """Do nothing: environments wait for the updates of the learner."""

    def collect(self, limit: float, wait: bool) -> Collected:
        self._send()
        return self._recv()

    def pause(self) -> Collected:
        return Collected(epsilon=self._epsilon_at(self._agent_steps))

    def state_dict(self) -> dict[str, Any]:
        seconds = {name: total / len(self._groups) for name, total in self.seconds.items()}
        common = {"agent_steps": self._agent_steps, "seconds": seconds}
        return {str(i): {**group.state_dict(), **common} for i, group in enumerate(self._groups)}

    def resume(self) -> None:
        """Do nothing: environments step with the next call of ``collect``."""

    def close(self) -> None:
        for group in self._groups:
            group.close()

    def _values(self) -> np.ndarray:
        return np.concatenate([group.values() for group in self._groups])

    def _send(self, group: int = 0, late: bool = False) -> None:
        self._groups[group].send(self._epsilon_at(self._agent_steps), late)

    def _recv(self, group: int = 0) -> Collected:
        epsilon = self._epsilon_at(self._agent_steps)
        rows, episodes = self._groups[group].recv()
        first = group * len(rows.actions)
        self._buffer.storage.append(rows, first)
        episodes = [
            replace(e, env=first + e.env, end_row=self._buffer.storage.rows_written(first + e.env)) for e in episodes
        ]
        steps = int(rows.transition.sum())
        self._agent_steps += steps
        return Collected(steps, [*episodes], epsilon)


class OverlapActor(SerialActor):
    """Environments step while the learner trains, on actions that were chosen before its updates.

    The acting policy is one round of updates older than if they took turns. If a GPU chooses actions as a graph,
    updates are launched behind that graph before anybody waits for the actions, so that the GPU is never idle.
    """

    def send(self) -> None:
        self._send(late=True)

    def collect(self, limit: float, wait: bool) -> Collected:
        return self._recv()


class AlternatingActor(SerialActor):
    """Two groups of environments, for on-policy learners: one steps while actions are chosen for the other.

    A group that has completed its part of a rollout waits until the learner has learnt from the rollout.
    """

    _stepping: int | None = None

    def collect(self, limit: float, wait: bool) -> Collected:
        """Start a step of one group, and store the rows of the other."""
        first = (0, self._groups[0].num_envs)
        rows = [self._buffer.storage.rows_written(env_index) for env_index in first]
        allowed = self._buffer.rows_allowed()
        stepping = self._stepping
        if stepping is None:
            stepping = int(rows[0] > rows[1])
            self._send(stepping)
        self._stepping, other = None, 1 - stepping
        if rows[other] < allowed[first[other]]:
            self._stepping = other
            self._send(other)
        return self._recv(stepping)

    def pause(self) -> Collected:
        """Wait for the group that steps."""
        if self._stepping is None:
            return super().pause()
        stepping, self._stepping = self._stepping, None
        return self._recv(stepping)


@register("parallelism", "serial")
@dataclass(frozen=True)
class Serial(Parallelism):
    """Environments and learner take turns in one process."""

    def make(self, arguments: ActorArguments) -> Actors:
        run, buffer, state, segment = arguments.run, arguments.buffer, arguments.state, arguments.segment
        count = 2 if run.takes_turns else 1
        part = replace(run, num_envs=run.num_envs // count)
        timer = DeviceTimer(arguments.device, "acting")
        with contextlib.ExitStack() as made:
            groups = list[EnvStepper]()
            for i in range(count):
                seeds = env_seeds(run.seed, i, part.num_envs, segment) if self.overlaps else None
                env = make_vector_env(part, self.overlaps, seeds=seeds)
                made.callback(env.close)
                group = EnvStepper(
                    part, arguments.spec, arguments.network, arguments.device, env, i, count, state and state[str(i)],
                    segment, timer, buffer.storage.device,
                )  # fmt: skip
                groups.append(group)
                if not group.games_restored:
                    buffer.truncate_open_episodes(i * part.num_envs, part.num_envs)
            made.pop_all()
        kind = AlternatingActor if count == 2 else OverlapActor if self.overlaps else SerialActor
        return kind(groups, buffer, functools.partial(epsilon_at, run=run), timer, state)


@register("parallelism", "overlap")
@dataclass(frozen=True)
class Overlap(Serial):
    """Environments step while the learner trains, on threads or in worker processes, as the environments do."""

    overlaps = True
