"""N environments with a policy, as every kind of parallelism runs them."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms import algorithm_of, make_policy
from dqnspeed.buffers import Rows
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import AnyArray, EnvSpec, Episode, VectorEnv
from dqnspeed.execution.arrays import copied, host
from dqnspeed.execution.transfer import DeviceTimer, ToDevice
from dqnspeed.exploration.cuda_graph import GraphedPolicy
from dqnspeed.exploration.frame_stack import FramePolicy, StackedPolicy
from dqnspeed.exploration.policy import Acted, NetworkPolicy
from dqnspeed.networks.base import Network


@dataclass(frozen=True)
class NewGames:
    """The games that ``envs`` were playing, if any, can no longer end. New ones begin there now, or if not ``begun``,
    once their actor has been replaced."""

    envs: range
    begun: bool = True


@dataclass(slots=True)
class Collected:
    """What came in since the last call."""

    agent_steps: int = 0
    episodes: list[Episode | NewGames] = field(default_factory=list)  # in the order in which they were heard of
    epsilon: float = 1.0
    lost: list[str] = field(default_factory=list)  # what became of actors that were replaced


class EnvStepper:
    """Acts in N environments and turns steps into rows of a memory.

    :meth:`start` chooses actions and starts a step, :meth:`finish` waits for it. ``seconds`` holds the time spent in
    ``acting`` and ``stepping``, on the host; ``how`` says how actions are chosen.

    ``epsilons`` gives that of each environment, where it is given the run's. ``timer`` measures the device's time.
    ``kept_on`` is where rows are kept, which are given their frames there if the policy had them go there. With
    ``films`` a game that ends comes with its last frame, on which nothing is acted.

    It continues from ``state``, a :meth:`state_dict`. ``games_restored`` is False if the games could not be restored
    and new ones were started with ``seeds``.
    """

    _frames: AnyArray  # (N, C, ...) acted on next, where the environments have them
    _first: np.ndarray  # (N,) bool
    _choosing: Callable[[], Acted] | None = None  # waits for actions that are chosen, and not known here yet
    _sent = False  # the environments have those of this step

    def __init__(
        self,
        env: VectorEnv,
        policy: FramePolicy,
        seeds: list[int],
        state: Mapping[str, Any] | None = None,
        epsilons: Callable[[float], float | np.ndarray] = float,
        timer: DeviceTimer | None = None,
        kept_on: torch.device | None = None,
        films: bool = False,
    ):
        self._env, self._policy, self._epsilons, self._kept_on = env, policy, epsilons, kept_on
        self._films = films
        self._timed = timer.running if timer else contextlib.nullcontext
        self.seconds = {"acting": 0.0, "stepping": 0.0, "waiting": 0.0}
        self.how = policy.how
        self._begin(seeds)
        self.games_restored = False
        if state is not None:
            self.seconds.update(state["seconds"])
            self.games_restored = self._env.load_state_dict(state["env"])
            self._policy.load_state_dict(state, stacks=self.games_restored)
            if self.games_restored:
                frames, self._first = state["frames"], state["first"]
                # Where games give tensors, rows must hold them, and no array of the policy's own that changes.
                there = self._frames.device if isinstance(self._frames, Tensor) else None
                self._frames = frames if there is None else torch.from_numpy(np.array(frames)).to(there)
            else:
                self._begin(seeds)
        self._policy.warm_up()

    @property
    def num_envs(self) -> int:
        return self._env.num_envs

    def start(self, epsilon: float, late: bool = False) -> None:
        """Choose actions and start a step.

        Args:
            late: where a device is still choosing by now, the environments are not started until :meth:`finish`, so
                that the caller can launch more behind it.

        Environments on that device are given the actions there, and nobody waits for these before :meth:`finish`.
        """
        begin = time.perf_counter()
        with self._timed():
            self._choosing = self._policy(self._epsilons(epsilon))
        acted, chosen = time.perf_counter(), self._policy.chosen
        self.seconds["acting"] += acted - begin
        self._sent = False
        if chosen is not None and chosen.device == self._env.device:
            self._env.send(chosen.long())
            self._sent = True
            self.seconds["stepping"] += time.perf_counter() - acted
        elif chosen is None or not late:
            self._send()

    def _send(self) -> None:
        begin = time.perf_counter()
        self._learn_actions()
        acted = time.perf_counter()
        self._env.send(self._actions)
        self._sent = True
        self.seconds["acting"] += acted - begin
        self.seconds["stepping"] += time.perf_counter() - acted

    def _learn_actions(self) -> None:
        if self._choosing is not None:
            self._actions, self._acting = self._choosing()
            self._choosing = None

    def finish(self) -> tuple[Rows, list[Episode]]:
        """The rows of the step started by :meth:`start`, one for each environment, and the games it ended."""
        if not self._sent:
            self._send()
        begin = time.perf_counter()
        step = self._env.recv()
        self._learn_actions()  # for which the environments have waited, if they were given them elsewhere
        rows = Rows(
            frames=self._acted_on(),
            actions=self._actions,
            rewards=step.rewards,
            terminated=step.terminated,
            truncated=step.truncated,
            first=self._first,
            transition=~step.first,
            acting=self._acting,
        )
        self._frames, self._first = copied(step.frames), step.first
        self._policy.push(self._frames, self._first)
        episodes = step.episodes
        if self._films:
            episodes = [replace(e, last_frame=np.array(host(self._frames[e.env]))) for e in episodes]
        self.seconds["stepping"] += time.perf_counter() - begin
        return rows, episodes

    def values(self) -> np.ndarray:
        """Values ``(N,)`` of the observations that are acted on next, by the policy's present network; not between
        :meth:`start` and :meth:`finish`."""
        begin = time.perf_counter()
        with self._timed():
            found = self._policy.values()
        self.seconds["acting"] += time.perf_counter() - begin
        return found

    def _acted_on(self) -> AnyArray:
        """The frames of this step; where rows are kept on the device that chose, its own: each crosses once."""
        seen, kept_on = self._policy.seen, self._kept_on
        if seen is None or kept_on is None or seen.device.type != kept_on.type or isinstance(self._frames, Tensor):
            return self._frames
        return seen

    def state_dict(self) -> dict[str, Any]:
        """Everything between two steps; not between :meth:`start` and :meth:`finish`."""
        return {
            "env": self._env.state_dict(),
            **self._policy.state_dict(),
            "frames": host(self._frames),
            "first": self._first,
            "seconds": dict(self.seconds),
        }

    def close(self) -> None:
        self._env.close()

    def _begin(self, seeds: list[int]) -> None:
        self._frames = copied(self._env.reset(seeds))
        self._first = np.ones(self._env.num_envs, bool)
        self._policy.push(self._frames, self._first)


def make_stepper(
    run: RunConfig,
    spec: EnvSpec,
    network: Network,
    device: torch.device,
    env: VectorEnv,
    actor: int,
    state: Mapping[str, Any] | None,
    segment: int,
    actors: int = 1,
    timer: DeviceTimer | None = None,
    kept_on: torch.device | None = None,
) -> EnvStepper:
    """The stepper of the ``actor``-th of ``actors``, which owns ``env``, continues from ``state``, is measured by
    ``timer`` and has its rows kept on ``kept_on``."""
    lanes = range(actor * env.num_envs, (actor + 1) * env.num_envs)
    epsilons = functools.partial(algorithm_of(run).epsilons, run, envs=lanes, total=actors * env.num_envs)
    try:
        seed = [run.seed, actor, 1, *([segment] if segment else [])]
        policy = make_policy(run, spec, network, device, np.random.default_rng(seed))
        acting: FramePolicy
        if run.execution.graph and device.type == "cuda" and isinstance(policy, NetworkPolicy):
            acting = GraphedPolicy(policy, spec, env.num_envs, device, seed)
        else:
            moves = device.type != "cpu" and isinstance(policy, NetworkPolicy)  # a plugin's may want NumPy's
            to_device = ToDevice(device, run.execution.pin_memory) if moves else None
            acting = StackedPolicy(policy, spec, env.num_envs, to_device)
        seeds = env_seeds(run.seed, actor, env.num_envs, segment)
        films = bool(run.tracking.video_every)
        return EnvStepper(env, acting, seeds, state, epsilons, timer, kept_on, films)
    except BaseException:
        env.close()
        raise


def env_seeds(seed: int, actor: int, num_envs: int, segment: int = 0) -> list[int]:
    """Seeds for one actor's environments, drawn apart for each actor and run seed: of some thousands two may be equal.

    Args:
        segment: how often the run was resumed; games started after a resume differ from those of its start.
    """
    entropy = [seed, actor, segment] if segment else [seed, actor]
    return [int(s) for s in np.random.SeedSequence(entropy).generate_state(num_envs) % 2**31]
