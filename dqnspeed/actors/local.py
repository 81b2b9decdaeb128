"""Environments that are stepped from the learner's process: in turn with it, or while it works."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dqnspeed.actors.base import ActorArguments, Actors, Parallelism
from dqnspeed.actors.stepper import Collected, EnvStepper, NewGames, env_seeds, make_stepper
from dqnspeed.algorithms import epsilon_at
from dqnspeed.buffers import Buffer, RolloutBuffer
from dqnspeed.config.registry import register
from dqnspeed.envs import make_vector_env
from dqnspeed.execution.transfer import DeviceTimer


class LocalActor:
    """What they share: groups of environments, whose rows go to the memory after each step.

    Args:
        groups: equally many environments each; the lanes of the first come first.
        timer: of their acting on the learner's device.
    """

    def __init__(
        self,
        groups: Sequence[EnvStepper],
        buffer: Buffer,
        epsilon_at: Callable[[int], float],
        timer: DeviceTimer,
        agent_steps: int = 0,
    ):
        self._groups, self._buffer, self._epsilon_at, self._timer = groups, buffer, epsilon_at, timer
        self._agent_steps = agent_steps
        if isinstance(buffer, RolloutBuffer):
            buffer.bootstrap = self._values

    @property
    def how(self) -> str:
        return self._groups[0].how

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of all groups together."""
        return {name: sum(group.seconds[name] for group in self._groups) for name in self._groups[0].seconds}

    def metrics(self) -> dict[str, float]:
        return self._timer.metrics()

    def begin(self) -> Collected:
        """Nothing to start: environments step when called."""
        each = self._groups[0].num_envs
        lanes = (range(i * each, (i + 1) * each) for i, group in enumerate(self._groups) if not group.games_restored)
        return Collected(episodes=[*map(NewGames, lanes)], epsilon=self._epsilon_at(self._agent_steps))

    def dispatch(self) -> None:
        """Environments wait until the learner's updates are done."""

    def pause(self) -> Collected:
        """Environments do not step between two calls of ``collect``."""
        return Collected(epsilon=self._epsilon_at(self._agent_steps))

    def state_dict(self) -> dict[str, Any]:
        return {str(i): {**g.state_dict(), "agent_steps": self._agent_steps} for i, g in enumerate(self._groups)}

    def proceed(self) -> None:
        """Environments step with the next ``collect``."""

    def close(self) -> None:
        for group in self._groups:
            group.close()

    def _values(self) -> np.ndarray:
        return np.concatenate([group.values() for group in self._groups])

    def _start(self, group: int = 0, late: bool = False) -> None:
        self._groups[group].start(self._epsilon_at(self._agent_steps), late)

    def _finish(self, group: int = 0) -> Collected:
        epsilon = self._epsilon_at(self._agent_steps)
        rows, episodes = self._groups[group].finish()
        lane = group * len(rows.actions)
        self._buffer.storage.append(rows, lane)
        episodes = [replace(e, env=lane + e.env, end_row=self._buffer.storage.rows(lane + e.env)) for e in episodes]
        steps = int(rows.transition.sum())
        self._agent_steps += steps
        return Collected(steps, [*episodes], epsilon)


class SerialActor(LocalActor):
    """Environments and learner take turns."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Act once in every environment and store the rows."""
        self._start()
        return self._finish()


class OverlapActor(LocalActor):
    """Actions are chosen before the updates, so that the environments step while the learner trains.

    The policy that acts is one round of updates older than with :class:`SerialActor`. Where a GPU chooses, as a graph,
    the updates are launched behind that before anybody waits for the actions, so that it always has work.
    """

    def dispatch(self) -> None:
        self._start(late=True)

    def collect(self, limit: float, wait: bool) -> Collected:
        return self._finish()


class AlternatingActor(LocalActor):
    """Two groups of environments take turns: one steps while actions are chosen for the other.

    For on-policy learners. A group whose part of a rollout is complete waits until it has been learnt from.
    """

    _stepping: int | None = None

    def collect(self, limit: float, wait: bool) -> Collected:
        """Act for one group while the other steps, and store the rows of that one."""
        lanes = (0, self._groups[0].num_envs)
        rows, allowed = [self._buffer.storage.rows(lane) for lane in lanes], self._buffer.rows_allowed()
        stepping = self._stepping
        if stepping is None:
            stepping = int(rows[0] > rows[1])
            self._start(stepping)
        self._stepping, lane = None, lanes[1 - stepping]
        if rows[1 - stepping] < allowed[lane]:
            self._stepping = 1 - stepping
            self._start(self._stepping)
        return self._finish(stepping)

    def pause(self) -> Collected:
        """Wait for the group that steps."""
        if self._stepping is None:
            return super().pause()
        stepping, self._stepping = self._stepping, None
        return self._finish(stepping)


@register("parallelism", "serial")
@dataclass(frozen=True)
class Serial(Parallelism):
    """Environments and learner take turns in one process."""

    def make(self, arguments: ActorArguments) -> Actors:
        run, buffer, state, segment = arguments.run, arguments.buffer, arguments.state, arguments.segment
        count = 2 if run.takes_turns else 1
        share = replace(run, num_envs=run.num_envs // count)
        groups, timer = list[EnvStepper](), DeviceTimer(arguments.device, "acting")
        try:
            for i in range(count):
                seeds = env_seeds(run.seed, i, share.num_envs, segment)
                env = make_vector_env(share, self.overlaps, seeds=seeds if self.overlaps else None)
                groups.append(
                    make_stepper(
                        share,
                        arguments.spec,
                        arguments.network,
                        arguments.device,
                        env,
                        i,
                        state and state[str(i)],
                        segment,
                        count,
                        timer,
                        buffer.storage.device,
                    )
                )
                if not groups[i].games_restored:
                    buffer.truncate_open_episodes(i * share.num_envs, share.num_envs)
        except BaseException:
            for group in groups:
                group.close()
            raise
        kind = AlternatingActor if count == 2 else OverlapActor if self.overlaps else SerialActor
        epsilon, agent_steps = functools.partial(epsilon_at, run=run), state["0"]["agent_steps"] if state else 0
        return kind(groups, buffer, epsilon, timer, agent_steps)


@register("parallelism", "overlap")
@dataclass(frozen=True)
class Overlap(Serial):
    """Environments step while the learner trains, on threads of the backend or in worker processes."""

    overlaps = True
