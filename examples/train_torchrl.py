"""PPO of TorchRL on Atari: ``python examples/train_torchrl.py env=atari_warp``.

``env=torchrl`` makes the games one by one, in Gymnasium's wrappers, and ``env=ale`` takes ale-py's AtariVectorEnv.
The numbers are CleanRL's for Atari. TorchRL refuses the autoreset mode NEXT_STEP, and resets games itself in
DISABLED. Options: ``game=breakout minutes=2 num_envs=8 threads=1 seed=1``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from functools import partial
from typing import Any

import gymnasium
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import GymWrapper, ParallelEnv, RewardSum, SerialEnv, SignTransform, TransformedEnv
from torchrl.modules import ActorValueOperator, ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

OPTIONS = {"env": "atari_warp", "game": "pong", "minutes": 2.0, "num_envs": 8, "threads": 1, "seed": 1}
NUM_STEPS, MINIBATCHES, EPOCHS, LEARNING_RATE = 128, 4, 4, 2.5e-4


def make_env(env: str, game: str, num_envs: int, threads: int) -> Any:
    """Games as one batched environment of TorchRL, with lives as episodes and clipped rewards."""
    if env == "atari_warp":
        from atari_warp import AtariVectorEnv

        games = AtariVectorEnv(game, num_envs, preset="standard", autoreset_mode="Disabled", num_threads=threads)
        return GymWrapper(games, categorical_action_encoding=True)
    if env == "ale":
        from ale_py.vector_env import AtariVectorEnv

        games = AtariVectorEnv(game, num_envs, autoreset_mode="SameStep", num_threads=threads, episodic_life=True)
        return GymWrapper(games, categorical_action_encoding=True)
    if env == "torchrl":
        batched = ParallelEnv if threads > 1 else SerialEnv
        return TransformedEnv(batched(num_envs, partial(single_game, game)), SignTransform(in_keys=["reward"]))
    sys.exit(f"env={env}: unknown. Choose atari_warp, ale or torchrl.")


def single_game(game: str) -> Any:
    import ale_py

    gymnasium.register_envs(ale_py)
    name = game.title().replace("_", "") + "NoFrameskip-v4"
    single = AtariPreprocessing(gymnasium.make(name), terminal_on_life_loss=True)
    return GymWrapper(FrameStackObservation(single, 4), categorical_action_encoding=True)


def layer(module: nn.Module, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Features(nn.Sequential):
    """Convolutions of Mnih et al. 2015 over frames ``(..., 4, 84, 84) uint8``."""

    def __init__(self) -> None:
        super().__init__(
            layer(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
            layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(), layer(nn.Linear(3136, 512)), nn.ReLU(),
        )  # fmt: skip

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return super().forward(frames.flatten(0, -4) / 255.0).unflatten(0, frames.shape[:-3])


def make_agent(num_actions: int) -> ActorValueOperator:
    return ActorValueOperator(
        TensorDictModule(Features(), in_keys=["observation"], out_keys=["features"]),
        ProbabilisticActor(
            TensorDictModule(layer(nn.Linear(512, num_actions), 0.01), in_keys=["features"], out_keys=["logits"]),
            in_keys=["logits"], distribution_class=Categorical, return_log_prob=True,
        ),
        TensorDictModule(layer(nn.Linear(512, 1), 1.0), in_keys=["features"], out_keys=["state_value"]),
    )  # fmt: skip


def train(env: str, game: str, minutes: float, num_envs: int, threads: int, seed: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    games = make_env(env, game, num_envs, threads)
    games.set_seed(seed)
    games = games.append_transform(RewardSum())
    agent = make_agent(games.action_spec.space.n)
    policy, critic = agent.get_policy_operator(), agent.get_value_operator()
    collector = Collector(
        games, policy, frames_per_batch=NUM_STEPS * num_envs, total_frames=-1, auto_register_policy_transforms=False
    )
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    loss = ClipPPOLoss(
        policy, critic, clip_epsilon=0.1, entropy_coeff=0.01, critic_coeff=0.5, normalize_advantage=True,
        loss_critic_type="l2", clip_value=True,
    )  # fmt: skip
    optimizer = torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE, eps=1e-5)
    size = NUM_STEPS * num_envs
    replay = ReplayBuffer(
        storage=LazyTensorStorage(size), sampler=SamplerWithoutReplacement(), batch_size=size // MINIBATCHES
    )
    returns, steps, began = deque[float](maxlen=20), 0, time.perf_counter()
    reported_steps, reported_at = 0, began
    for batch in collector:
        steps += batch.numel()
        ended = batch["next", "done"]
        returns.extend(batch["next", "episode_reward"][ended].tolist())
        with torch.no_grad():
            batch = advantage(batch)
        replay.extend(batch.reshape(-1))
        for _ in range(EPOCHS):
            for minibatch in replay:
                losses = loss(minibatch)
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        now = time.perf_counter()
        is_over = now - began >= 60 * minutes
        if now - reported_at >= 10 or is_over:
            rate = (steps - reported_steps) / (now - reported_at)
            score = f"mean reward of {len(returns)} episodes {sum(returns) / max(1, len(returns)):.1f}"
            print(f"{env} {game}: {now - began:.0f} s, {steps:,} steps, {rate:,.0f} steps/s, {score}", flush=True)
            reported_steps, reported_at = steps, now
        if is_over:
            break
    print(f"{env} {game}: {4 * steps / (time.perf_counter() - began):,.0f} frames/s")
    collector.shutdown()


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
