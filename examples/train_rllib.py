"""PPO of RLlib on Atari: ``python examples/train_rllib.py env=atari_warp``.

``env=rllib`` makes the games one by one in RLlib's Atari wrappers, as RLlib's examples do, and ``env=ale`` takes
ale-py's AtariVectorEnv. The numbers are CleanRL's for Atari. RLlib pins Gymnasium, so install RLlib into an
environment of its own. Options: ``game=breakout minutes=2 num_envs=8 threads=1 seed=1``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from gymnasium.vector import VectorObservationWrapper
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

OPTIONS = {"env": "atari_warp", "game": "pong", "minutes": 2.0, "num_envs": 8, "threads": 1, "seed": 1}
NUM_STEPS, MINIBATCHES, EPOCHS = 128, 4, 4


class ImagesForRLlib(VectorObservationWrapper):
    """Frames ``(N, 4, 84, 84) uint8`` as ``(N, 84, 84, 4) float32`` from -1 to 1, which RLlib's networks take."""

    def __init__(self, env: gymnasium.vector.VectorEnv):
        super().__init__(env)
        self.single_observation_space = gymnasium.spaces.Box(-1.0, 1.0, (84, 84, 4), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: np.ndarray) -> np.ndarray:
        return observations.transpose(0, 2, 3, 1) / np.float32(127.5) - np.float32(1)


def make_env(context: dict[str, Any]) -> Any:
    """Vector environment with NEXT_STEP autoreset for RLlib's runner of environments, with lives as episodes."""
    env, game, num_envs, threads = context["env"], context["game"], context["num_envs"], context["threads"]
    if env == "atari_warp":
        from atari_warp import AtariVectorEnv

        return ImagesForRLlib(AtariVectorEnv(game, num_envs, preset="standard", num_threads=threads))
    from ale_py.vector_env import AtariVectorEnv

    return ImagesForRLlib(AtariVectorEnv(game, num_envs, episodic_life=True, num_threads=threads))


def make_single(context: dict[str, Any]) -> Any:
    import ale_py

    gymnasium.register_envs(ale_py)
    name = context["game"].title().replace("_", "") + "NoFrameskip-v4"
    single = wrap_atari_for_new_api_stack(gymnasium.make(name), dim=84, framestack=4)
    return gymnasium.wrappers.TransformReward(single, np.sign)


def train(env: str, game: str, minutes: float, num_envs: int, threads: int, seed: int) -> None:
    if env not in ("atari_warp", "ale", "rllib"):
        sys.exit(f"env={env}: unknown. Choose atari_warp, ale or rllib.")
    torch.set_num_threads(threads)
    ray.init(num_cpus=threads, include_dashboard=False, log_to_driver=False)
    tune.register_env("atari", make_single if env == "rllib" else make_env)
    batch = NUM_STEPS * num_envs
    algorithm = (
        PPOConfig()
        .environment("atari", env_config={"env": env, "game": game, "threads": threads})
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=num_envs, rollout_fragment_length=NUM_STEPS,
            gym_env_vectorize_mode="sync" if env == "rllib" else "vector_entry_point",
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=batch, minibatch_size=batch // MINIBATCHES, num_epochs=EPOCHS, lr=2.5e-4,
            gamma=0.99, lambda_=0.95, clip_param=0.1, vf_loss_coeff=0.5, vf_clip_param=10.0, entropy_coeff=0.01,
            use_kl_loss=False, grad_clip=0.5, grad_clip_by="global_norm",
        )
        .rl_module(
            model_config=DefaultModelConfig(
                conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]], conv_activation="relu",
                head_fcnet_hiddens=[512], vf_share_layers=True,
            )
        )
        .debugging(seed=seed, log_level="ERROR")
        .build_algo()
    )  # fmt: skip
    steps, began = 0, time.perf_counter()
    reported_steps, reported_at = 0, began
    is_over = False
    while not is_over:
        runners = algorithm.train()["env_runners"]
        steps = int(runners["num_env_steps_sampled_lifetime"])
        now = time.perf_counter()
        is_over = now - began >= 60 * minutes
        if now - reported_at >= 10 or is_over:
            rate = (steps - reported_steps) / (now - reported_at)
            score = runners.get("episode_return_mean", float("nan"))
            print(
                f"{env} {game}: {now - began:.0f} s, {steps:,} steps, {rate:,.0f} steps/s, "
                f"mean reward of an episode {score:.1f}",
                flush=True,
            )
            reported_steps, reported_at = steps, now
    print(f"{env} {game}: {4 * steps / (time.perf_counter() - began):,.0f} frames/s")
    algorithm.stop()
    ray.shutdown()


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
