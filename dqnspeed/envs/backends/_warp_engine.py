"""Engine of ``backend=atari_warp``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from atari_warp import AtariVectorEnv, EmulatorError

from dqnspeed.envs.backends.base import ActorError, AnyArray, RawStep

SHARED_KEYS = ("game", "version")  # of a saved state, alike for all games


class WarpEngine:
    """Engine over :class:`atari_warp.AtariVectorEnv`: many games on threads of a CPU, or on a GPU.

    Args:
        env: gives tensors, and single frames instead of stacks.
        overlap: games step after :meth:`send`, beside the caller; on a GPU they always do.

    Attributes:
        device: device of the games, on which actions may be given.
    """

    def __init__(self, env: AtariVectorEnv, overlap: bool):
        self.num_envs = env.num_envs
        self.device: torch.device | None = torch.device(str(env.consoles.device))
        self._env = env
        self._overlap = overlap or self.device.type == "cuda"
        self._actions: Any = None

    def reset(self, seeds: list[int]) -> RawStep:
        nothing = np.zeros(self.num_envs, bool)
        try:
            observations, info = self._env.reset(seed=seeds)
        except EmulatorError as error:
            raise ActorError(str(error)) from error
        return RawStep(self._frames(observations), np.zeros(self.num_envs), nothing, nothing, info["lives"])

    def send(self, actions: AnyArray) -> None:
        if self._overlap:
            self._env.send(actions)
        else:
            # A copy, as the caller may change them.
            self._actions = actions.clone() if isinstance(actions, torch.Tensor) else actions.copy()

    def recv(self) -> RawStep:
        step = self._env.recv() if self._overlap else self._env.step(self._actions)
        observations, rewards, terminated, truncated, info = step
        points = rewards.numpy().astype(np.float64)
        return RawStep(self._frames(observations), points, terminated.numpy(), truncated.numpy(), info["lives"])

    def save_games(self) -> list[dict[str, Any]]:
        state = self._env.save_state()
        common = {name: str(state.pop(name)) for name in SHARED_KEYS}
        # One row for each environment; some environments have a console of the reset pool too.
        each = range(self.num_envs)
        return [{**common, **{name: array[i :: self.num_envs] for name, array in state.items()}} for i in each]

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        try:
            common = {name: np.array(games[0][name]) for name in SHARED_KEYS}
            arrays = {
                name: np.concatenate([game[name] for game in games]) for name in games[0] if name not in SHARED_KEYS
            }
            self._env.load_state({**common, **arrays})
        except (EmulatorError, KeyError, ValueError):  # saved by another backend, or another version of the emulator
            return False
        return True

    def call(self, name: str) -> Any:
        if name == "render":
            pictures = self._env.render()
            return None if pictures is None else pictures[0]
        return getattr(self._env, name)()

    def close(self) -> None:
        self._env.close()

    def _frames(self, observations: torch.Tensor) -> AnyArray:
        """Frames ``(N, C, H, W)`` of observations ``(N, 1, H, W)`` or ``(N, 1, H, W, 3)``, without a copy."""
        frames = observations if observations.ndim == 4 else observations[:, 0].permute(0, 3, 1, 2)
        return frames if frames.is_cuda else frames.numpy()
