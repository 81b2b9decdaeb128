"""PPO and DQN of Stable-Baselines3 on Atari: ``python examples/train_sb3.py env=atari_warp algorithm=ppo``.

``env=sb3`` makes the games as Stable-Baselines3 does, with ``make_atari_env`` and ``VecFrameStack``. Numbers are RL
Baselines3 Zoo's, but DQN starts to learn after 10,000 steps. Options: ``algorithm=dqn game=breakout minutes=2
num_envs=8 threads=1 seed=1``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback

OPTIONS = {
    "env": "atari_warp", "algorithm": "ppo", "game": "pong", "minutes": 2.0, "num_envs": 8, "threads": 1, "seed": 1,
}  # fmt: skip
STEPS = 10_000_000


def make_env(env: str, game: str, num_envs: int, threads: int) -> Any:
    if env == "atari_warp":
        import atari_warp

        return atari_warp.sb3.VecEnv(game, num_envs, num_threads=threads)
    if env == "sb3":
        import ale_py
        import gymnasium
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        gymnasium.register_envs(ale_py)
        name = game.title().replace("_", "") + "NoFrameskip-v4"
        return VecFrameStack(make_atari_env(name, num_envs), 4)
    sys.exit(f"env={env}: unknown. Choose atari_warp or sb3.")


class Report(BaseCallback):
    """Prints a line every ten seconds, and ends the training when the time is over."""

    def __init__(self, label: str, minutes: float):
        super().__init__()
        self._label, self._limit_s = label, 60 * minutes
        self._returns = deque[float](maxlen=20)

    def _on_training_start(self) -> None:
        self._began = self._reported_at = time.perf_counter()
        self._reported_steps = 0

    def _on_step(self) -> bool:
        self._returns.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        now = time.perf_counter()
        is_over = now - self._began >= self._limit_s
        if is_over or now - self._reported_at >= 10:
            rate = (self.num_timesteps - self._reported_steps) / (now - self._reported_at)
            mean = sum(self._returns) / max(1, len(self._returns))
            score = f"mean return of {len(self._returns)} games {mean:.1f}" if self._returns else "no game has ended"
            print(
                f"{self._label}: {now - self._began:.0f} s, {self.num_timesteps:,} steps, {rate:,.0f} steps/s, {score}",
                flush=True,
            )
            self._reported_steps, self._reported_at = self.num_timesteps, now
        if is_over:
            print(f"{self._label}: {4 * self.num_timesteps / (now - self._began):,.0f} frames/s")
        return not is_over


def train(env: str, algorithm: str, game: str, minutes: float, num_envs: int, threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    games = make_env(env, game, num_envs, threads)
    if algorithm == "ppo":
        model: Any = PPO(
            "CnnPolicy", games, n_steps=128, n_epochs=4, batch_size=256, learning_rate=lambda left: 2.5e-4 * left,
            clip_range=lambda left: 0.1 * left, vf_coef=0.5, ent_coef=0.01, seed=seed,
        )  # fmt: skip
    elif algorithm == "dqn":
        model = DQN(
            "CnnPolicy", games, buffer_size=100_000, learning_rate=1e-4, batch_size=32, learning_starts=10_000,
            target_update_interval=1000, train_freq=4, gradient_steps=1, exploration_fraction=0.1,
            exploration_final_eps=0.01, optimize_memory_usage=False, seed=seed,
        )  # fmt: skip
    else:
        sys.exit(f"algorithm={algorithm}: unknown. Choose ppo or dqn.")
    model.learn(STEPS, callback=Report(f"{env} {algorithm} {game}", minutes))
    games.close()


def options(words: list[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = dict(OPTIONS)
    for word in words:
        name, _, value = word.partition("=")
        if name not in OPTIONS:
            sys.exit(f"{word}: unknown option. Choose from {', '.join(f'{name}=' for name in OPTIONS)}.")
        try:
            chosen[name] = type(OPTIONS[name])(value)
        except ValueError:
            sys.exit(f"{word}: must be a number.")
    return chosen


if __name__ == "__main__":
    train(**options(sys.argv[1:]))
