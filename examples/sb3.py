"""How far Stable-Baselines3 gets here: ``python examples/sb3.py ppo|dqn SEED MINUTES [ENV]``.

It needs ``pip install 'stable-baselines3>=2.3'``, and trains with the numbers that RL Baselines3 Zoo has for Atari
(hyperparams/ppo.yml and dqn.yml). Pong is solved when the mean unclipped return of the last 100 training games is 17,
and the clock starts at the first step of the environment, as in dqnspeed; games count as they end here, and in dqnspeed
in the order in which they began. Other games, such as ``BreakoutNoFrameskip-v4``, are played until the time is over.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

import ale_py
import gymnasium
import stable_baselines3
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

gymnasium.register_envs(ale_py)
PONG, BOUND, WINDOW, STEPS = "PongNoFrameskip-v4", 17.0, 100, 10_000_000


class UntilSolved(BaseCallback):
    """Prints a line a minute, and ends the training when the mean return is ``bound`` or the time is over."""

    def __init__(self, label: str, minutes: float, bound: float):
        super().__init__()
        self._label, self._limit_s, self._bound = label, minutes * 60, bound
        self._returns = deque[float](maxlen=WINDOW)

    def _on_training_start(self) -> None:
        self._started = time.monotonic()
        self._told = 0.0

    def _on_step(self) -> bool:
        self._returns.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        seconds = time.monotonic() - self._started
        mean = sum(self._returns) / max(1, len(self._returns))
        solved = len(self._returns) == WINDOW and mean >= self._bound
        if solved or seconds >= self._limit_s or seconds - self._told >= 60:
            self._told = seconds
            what = "solved" if solved else "going on" if seconds < self._limit_s else "time is over"
            told = f"mean {mean:.2f} of {len(self._returns)} games" if self._returns else "no game has ended"
            print(f"{self._label}: {seconds:.0f} s, {self.num_timesteps} steps, {told}, {what}", flush=True)
        return not solved and seconds < self._limit_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=["ppo", "dqn"])
    parser.add_argument("seed", type=int)
    parser.add_argument("minutes", type=float, help="to give up after")
    parser.add_argument("env", nargs="?", default=PONG, help="id of a game without frame skip; default: %(default)s")
    given = parser.parse_args()
    try:
        spec = gymnasium.spec(given.env)
    except gymnasium.error.Error as error:
        parser.error(f"env {given.env}: {error}")
    if spec.kwargs.get("frameskip") != 1:
        parser.error(f"env {given.env}: frames are skipped by a wrapper here; give an id such as {PONG}")
    name, seed, minutes = given.algorithm, given.seed, given.minutes
    games = {"ppo": 8, "dqn": 1}[name]
    env = VecFrameStack(make_atari_env(given.env, n_envs=games, seed=seed), n_stack=4)
    if name == "ppo":
        model = PPO(
            "CnnPolicy", env, n_steps=128, n_epochs=4, batch_size=256, learning_rate=lambda left: 2.5e-4 * left,
            clip_range=lambda left: 0.1 * left, vf_coef=0.5, ent_coef=0.01, seed=seed,
        )  # fmt: skip
    else:
        model = DQN(
            "CnnPolicy", env, buffer_size=100_000, learning_rate=1e-4, batch_size=32, learning_starts=100_000,
            target_update_interval=1000, train_freq=4, gradient_steps=1, exploration_fraction=0.1,
            exploration_final_eps=0.01, seed=seed,
        )  # fmt: skip
    label = f"stable-baselines3 {stable_baselines3.__version__} {name} {given.env} seed {seed}"
    model.learn(STEPS, callback=UntilSolved(label, minutes, BOUND if given.env == PONG else float("inf")))


if __name__ == "__main__":
    main()
