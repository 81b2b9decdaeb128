"""N environments with a policy, as every kind of actors steps them."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from dqnspeed.exploration.policy import Acted, NetworkPolicy
from dqnspeed.exploration.stacked_policy import StackedPolicy
from dqnspeed.networks.base import Network


class EnvStepper:
    """Acts in N environments and turns their steps into rows of a buffer.

    :meth:`send` chooses actions and starts a step, :meth:`recv` waits for it.

    Args:
        env: N environments, which :meth:`close` closes.
        index, count: number of this stepper among all steppers of the run, and number of all.
        state: :meth:`state_dict` to continue from.
        segment: number of times the run was resumed.
        timer: measures the seconds that the device spends on acting.
        rows_device: device of the buffer; rows have their frames there, if the policy moved them there.

    Attributes:
        seconds: seconds of ``acting`` and ``stepping``, on the host.
        how: how actions are chosen, ``graph`` or ``eager``.
        games_restored: whether the games of ``state`` go on; otherwise new games were started.
    """

    _frames: AnyArray  # (N, C, ...) newest frames, where the environments have them
    _first: np.ndarray  # (N,) bool
    _choosing: Callable[[], Acted] | None = None  # waits for actions that a device is choosing
    _sent = False  # the environments have the actions of this step

    def __init__(
        self,
        run: RunConfig,
        spec: EnvSpec,
        network: Network,
        device: torch.device,
        env: VectorEnv,
        index: int = 0,
        count: int = 1,
        state: Mapping[str, Any] | None = None,
        segment: int = 0,
        timer: DeviceTimer | None = None,
        rows_device: torch.device | None = None,
    ):
        self._env, self._rows_device = env, rows_device
        envs = range(index * env.num_envs, (index + 1) * env.num_envs)
        self._per_env_epsilon = functools.partial(
            algorithm_of(run).epsilons, run, envs=envs, total=count * env.num_envs
        )
        self._keeps_last_frames = bool(run.tracking.video_every)
        self._on_device = timer.running if timer else contextlib.nullcontext
        self.seconds = {"acting": 0.0, "stepping": 0.0}
        self._policy: StackedPolicy | GraphedPolicy
        seed = [run.seed, index, 1, *([segment] if segment else [])]
        policy = make_policy(run, spec, network, device, np.random.default_rng(seed))
        if run.execution.graph and device.type == "cuda" and isinstance(policy, NetworkPolicy):
            self._policy = GraphedPolicy(policy, spec, env.num_envs, device, seed)
        else:
            moves = device.type != "cpu" and isinstance(policy, NetworkPolicy)  # a plugin's policy may want arrays
            to_device = ToDevice(device, run.execution.pin_memory) if moves else None
            self._policy = StackedPolicy(policy, spec, env.num_envs, to_device)
        self.how = self._policy.how
        seeds = env_seeds(run.seed, index, env.num_envs, segment)
        self._reset(seeds)
        self.games_restored = False
        if state is not None:
            self.games_restored = self._env.load_state_dict(state["env"])
            if not self.games_restored:
                self._reset(seeds)
            self._policy.load_state_dict(state, stacks=self.games_restored)
            if self.games_restored:
                frames, self._first = state["frames"], state["first"]
                gives_tensors = isinstance(self._frames, Tensor)  # then rows must hold tensors, too
                self._frames = torch.from_numpy(np.array(frames)).to(self._frames.device) if gives_tensors else frames
        self._policy.warm_up()

    @property
    def num_envs(self) -> int:
        return self._env.num_envs

    def send(self, epsilon: float, late: bool = False) -> None:
        """Choose actions and start a step.

        Environments on the device that chooses get the actions there, and nobody waits for them before :meth:`recv`.

        Args:
            late: if a device is still choosing, start the step in :meth:`recv`, so that the caller can launch more
                work behind it.
        """
        begin = time.perf_counter()
        with self._on_device():
            self._choosing = self._policy(self._per_env_epsilon(epsilon))
        self.seconds["acting"] += time.perf_counter() - begin
        chosen, self._sent = self._policy.device_actions, False
        if chosen is not None and chosen.device == self._env.device:
            self._send(chosen.long())
        elif chosen is None or not late:
            self._send()

    def _send(self, actions: Tensor | None = None) -> None:
        """Send ``actions``, or wait for the chosen actions and send them."""
        begin = time.perf_counter()
        if actions is None:
            self._wait_for_actions()
        acted = time.perf_counter()
        self._env.send(self._actions if actions is None else actions)
        self._sent = True
        self.seconds["acting"] += acted - begin
        self.seconds["stepping"] += time.perf_counter() - acted

    def _wait_for_actions(self) -> None:
        if self._choosing is not None:
            self._actions, self._acting = self._choosing()
            self._choosing = None

    def recv(self) -> tuple[Rows, list[Episode]]:
        """Rows of the step that :meth:`send` started, one for each environment, and the episodes that ended."""
        if not self._sent:
            self._send()
        begin = time.perf_counter()
        step = self._env.recv()
        self._wait_for_actions()
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
        if self._keeps_last_frames:
            episodes = [replace(e, last_frame=np.array(host(self._frames[e.env]))) for e in episodes]
        self.seconds["stepping"] += time.perf_counter() - begin
        return rows, episodes

    def values(self) -> np.ndarray:
        """Values ``(N,)`` of the newest observations by the newest network.

        Not to be called between :meth:`send` and :meth:`recv`.
        """
        begin = time.perf_counter()
        with self._on_device():
            values = self._policy.values()
        self.seconds["acting"] += time.perf_counter() - begin
        return values

    def _acted_on(self) -> AnyArray:
        """Frames of this step: on the device of the buffer if the policy has them there, so that each crosses once."""
        there, device = self._policy.device_frames, self._rows_device
        if there is None or device is None or there.device.type != device.type or isinstance(self._frames, Tensor):
            return self._frames
        return there

    def state_dict(self) -> dict[str, Any]:
        """State between two steps; not between :meth:`send` and :meth:`recv`."""
        return {
            "env": self._env.state_dict(),
            **self._policy.state_dict(),
            "frames": host(self._frames),
            "first": self._first,
        }

    def close(self) -> None:
        self._env.close()

    def _reset(self, seeds: list[int]) -> None:
        self._frames = copied(self._env.reset(seeds))
        self._first = np.ones(self._env.num_envs, bool)
        self._policy.push(self._frames, self._first)


def env_seeds(seed: int, actor: int, num_envs: int, segment: int = 0) -> list[int]:
    """Seeds of one actor's environments, drawn separately for each actor and run seed.

    Args:
        segment: number of times the run was resumed; new games of a resumed run differ from its first games.
    """
    entropy = [seed, actor, segment] if segment else [seed, actor]
    return [int(s) for s in np.random.SeedSequence(entropy).generate_state(num_envs) % 2**31]
