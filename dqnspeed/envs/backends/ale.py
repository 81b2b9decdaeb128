"""``backend=ale``: ALE's own vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.backends.base import Backend, Engine
from dqnspeed.envs.backends.gymnasium import GymnasiumEngine
from dqnspeed.envs.games import fire_index, start_rewards
from dqnspeed.envs.workers import AUTORESET
from dqnspeed.system import machine


@register("backend", "ale")
@dataclass(frozen=True)
class Ale(Backend):
    """C++ threads of ``ale_py.vector_env.AtariVectorEnv``."""

    priority = 10
    drops_presses = True
    threads: int = option(
        "threads that step games (in each actor), 0: shared out with execution.threads", ge=0, default=0
    )

    def check(self, run: RunConfig) -> None:
        game, wrappers = self.game_of(run), run.wrappers
        self.check_stages(run)
        if wrappers.resize is None:
            raise self.refusal("resizes every image, and wrappers.resize=null keeps their size")
        if wrappers.crop is not None:
            raise self.refusal(f"takes whole images, and wrappers.crop={wrappers.crop} cuts them")
        if wrappers.tap_frames:
            raise self.refusal(
                f"holds an action for all its frames, and wrappers.tap_frames={wrappers.tap_frames} lets go of it"
            )
        for key in ("mode", "difficulty"):
            if (chosen := getattr(game, key)) is not None:
                raise self.refusal(f"plays the usual {key} of a game, and env.{key}={chosen} asks for one")

    def make(self, run: RunConfig, overlap: bool, render_mode: str | None, seeds: Sequence[int]) -> Engine:
        from ale_py.vector_env import AtariVectorEnv

        game, wrappers = self.game_of(run), run.wrappers
        env = AtariVectorEnv(
            game.rom,
            run.num_envs,
            # Actors set their share of the cores; an evaluation runs alone and may use all.
            num_threads=self.threads or min(run.num_envs, machine.cores()),
            max_num_frames_per_episode=game.max_episode_frames,
            repeat_action_probability=game.sticky_actions,
            full_action_space=game.full_action_space,
            autoreset_mode=AUTORESET,
            img_height=wrappers.resize,
            img_width=wrappers.resize,
            grayscale=wrappers.grayscale,
            stack_num=1,  # stacks are built from single frames, the same for every backend
            frameskip=wrappers.frame_skip,
            maxpool=wrappers.max_pool,
            noop_max=wrappers.noop_max,
            episodic_life=False,  # ALE's restarts the whole game at a lost life
            reward_clipping=False,  # returns are of the unclipped game
            use_fire_reset=wrappers.fire_reset and fire_index(game) is not None,
        )
        return AleEngine(env, start_rewards(game, wrappers.fire_reset, wrappers.noop_max))


class AleEngine(GymnasiumEngine):
    """``ale_py.vector_env.AtariVectorEnv``, whose games step on C++ threads after :meth:`send`.

    Args:
        start_rewards: rewards before a game's first step, which ALE drops, by the frame at which the game starts.
    """

    def __init__(self, env: Any, start_rewards: Mapping[int, float] | None = None):
        super().__init__(env)
        self._channels_last = len(env.single_observation_space.shape) == 4
        self._start_rewards = start_rewards or {}
        self._pending_reward = np.zeros(self.num_envs)
        self._over = np.zeros(self.num_envs, bool)

    def send(self, actions: np.ndarray) -> None:
        self.env.send(actions)

    def save_games(self) -> list[dict[str, Any]] | None:
        return None  # ALE's vector environment cannot save games

    def _reset(self, seeds: list[int]) -> tuple[Any, ...]:
        frames, info = self.env.reset(seed=np.array(seeds))
        self._set_pending_reward(np.ones(self.num_envs, bool), info)
        self._over = np.zeros(self.num_envs, bool)
        return self._channels_first(frames), info

    def _step(self) -> tuple[Any, ...]:
        frames, rewards, terminated, truncated, info = self.env.recv()
        if self._start_rewards:
            rewards = rewards + self._pending_reward
            self._set_pending_reward(self._over, info)
            self._over = terminated | truncated
        return self._channels_first(frames), rewards, terminated, truncated, info

    def _set_pending_reward(self, new: np.ndarray, info: dict[str, Any]) -> None:
        """Set the reward that is added to the first step of each game in ``new`` ``(N,) bool``."""
        self._pending_reward[:] = 0
        for i in np.flatnonzero(new):
            self._pending_reward[i] = self._start_rewards.get(int(info["episode_frame_number"][i]), 0.0)

    def _channels_first(self, frames: np.ndarray) -> np.ndarray:
        return frames[:, 0].transpose(0, 3, 1, 2) if self._channels_last else frames
