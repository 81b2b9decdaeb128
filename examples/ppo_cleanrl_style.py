"""PPO on Atari in one file, over Gymnasium's vector interface: ``python examples/ppo_cleanrl_style.py env=atari_warp``.

``env=ale`` trains on ale-py's AtariVectorEnv and ``env=envpool`` on EnvPool, with the same loop. The loop follows the
PPO paper (Schulman et al. 2017) and its "37 Implementation Details" (Huang et al. 2022), with CleanRL's numbers for
Atari. Options: ``game=breakout minutes=2 num_envs=8 threads=1 seed=1 device=cpu``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

OPTIONS = {
    "env": "atari_warp", "game": "pong", "minutes": 2.0, "num_envs": 8, "threads": 1, "seed": 1, "device": "cpu",
}  # fmt: skip
TOTAL_STEPS, NUM_STEPS, MINIBATCHES, EPOCHS = 10_000_000, 128, 4, 4
LEARNING_RATE, GAMMA, GAE_LAMBDA, CLIP, ENT_COEF, VF_COEF, MAX_GRAD_NORM = 2.5e-4, 0.99, 0.95, 0.1, 0.01, 0.5, 0.5
REPORT_SECONDS, WINDOW = 10, 20


def make_env(env: str, game: str, num_envs: int, threads: int) -> Any:
    """Vector environment with NEXT_STEP autoreset, whole games as episodes and points as rewards."""
    if env == "atari_warp":
        from atari_warp import AtariVectorEnv

        return AtariVectorEnv(game, num_envs, num_threads=threads, reward_clipping=False)
    if env == "ale":
        from ale_py.vector_env import AtariVectorEnv

        return AtariVectorEnv(game, num_envs, num_threads=threads, reward_clipping=False)
    if env == "envpool":
        import envpool

        task = game.title().replace("_", "") + "-v5"
        return envpool.make(task, env_type="gymnasium", num_envs=num_envs, num_threads=threads, use_fire_reset=True)
    sys.exit(f"env={env}: unknown. Choose atari_warp, ale or envpool.")


def layer(module: nn.Module, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """Policy and value function on the convolutions of Mnih et al. 2015."""

    def __init__(self, num_actions: int):
        super().__init__()
        self.features = nn.Sequential(
            layer(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
            layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(), layer(nn.Linear(3136, 512)), nn.ReLU(),
        )  # fmt: skip
        self.policy, self.value = layer(nn.Linear(512, num_actions), 0.01), layer(nn.Linear(512, 1), 1.0)

    def forward(self, observations: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Distribution over actions, and values ``(B,)``, of observations ``(B, 4, 84, 84) uint8``."""
        features = self.features(observations / 255.0)
        return Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)


def advantages_of(rewards: Any, values: Any, is_terminal: Any, is_last: Any) -> torch.Tensor:
    """Generalized advantage estimates ``(T, N)``; ``values`` is ``(T + 1, N)``.

    In NEXT_STEP mode the observation after the last step of a game is the game's final one. A truncated game thus
    bootstraps from ``values[t + 1]`` like any other step.
    """
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        error = rewards[t] + GAMMA * values[t + 1] * ~is_terminal[t] - values[t]
        following = advantages[t] = error + GAMMA * GAE_LAMBDA * ~is_last[t] * following
    return advantages


def update(agent: Agent, optimizer: Any, batch: dict[str, torch.Tensor]) -> None:
    """Epochs of minibatches over ``batch``, whose tensors have one row a transition."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(batch["actions"])).chunk(MINIBATCHES):
            observations, actions, log_probs, old_values, advantages = (column[rows] for column in batch.values())
            policy, values = agent(observations)
            returns = advantages + old_values
            ratio = (policy.log_prob(actions) - log_probs).exp()
            scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            policy_loss = -torch.min(scaled * ratio, scaled * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            clipped = old_values + (values - old_values).clamp(-CLIP, CLIP)
            value_loss = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()
            loss = policy_loss - ENT_COEF * policy.entropy().mean() + VF_COEF * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()


def train(env: str, game: str, minutes: float, num_envs: int, threads: int, seed: int, device: str) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    envs = make_env(env, game, num_envs, threads)
    agent = Agent(int(envs.single_action_space.n)).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    shape = NUM_STEPS, num_envs
    observations = torch.zeros((NUM_STEPS + 1, num_envs, 4, 84, 84), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.long, device=device)
    log_probs, rewards = (torch.zeros(shape, device=device) for _ in range(2))
    values = torch.zeros((NUM_STEPS + 1, num_envs), device=device)
    is_terminal, is_last, is_transition = (torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3))
    returns, running = deque[float](maxlen=WINDOW), np.zeros(num_envs)

    observation, info = envs.reset() if env == "envpool" else envs.reset(seed=seed)
    lives, starts = np.array(info["lives"]), np.zeros(num_envs, bool)
    steps, emulation_s, began = 0, 0.0, time.perf_counter()
    reported_steps, reported_s, reported_at = 0, 0.0, began
    while time.perf_counter() - began < 60 * minutes:
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0.0, 1 - steps / TOTAL_STEPS)
        for t in range(NUM_STEPS):
            observations[t] = torch.as_tensor(observation)
            with torch.no_grad():
                policy, values[t] = agent(observations[t])
                actions[t] = policy.sample()
                log_probs[t] = policy.log_prob(actions[t])
            chosen = actions[t].cpu().numpy().astype(np.int32)
            before = time.perf_counter()
            observation, points, terminated, truncated, info = envs.step(chosen)
            emulation_s += time.perf_counter() - before
            lost_life = (info["lives"] > 0) & (info["lives"] < lives)
            lives = np.array(info["lives"])
            is_transition[t] = torch.as_tensor(~starts)  # the step after the end of a game ignores its action
            starts = terminated | truncated
            rewards[t] = torch.as_tensor(np.sign(points))
            is_terminal[t] = torch.as_tensor(terminated | lost_life)
            is_last[t] = torch.as_tensor(starts | lost_life)
            running += points
            returns.extend(running[starts])
            running[starts] = 0
        steps += NUM_STEPS * num_envs
        observations[-1] = torch.as_tensor(observation)
        with torch.no_grad():
            values[-1] = agent(observations[-1])[1]
        columns = {
            "observations": observations[:-1], "actions": actions, "log_probs": log_probs, "values": values[:-1],
            "advantages": advantages_of(rewards, values, is_terminal, is_last),
        }  # fmt: skip
        update(agent, optimizer, {name: column[is_transition] for name, column in columns.items()})

        now = time.perf_counter()
        if now - reported_at >= REPORT_SECONDS or now - began >= 60 * minutes:
            seconds = now - reported_at
            score = f"mean return of {len(returns)} games {np.mean(returns):.1f}" if returns else "no game has ended"
            rate = (steps - reported_steps) / seconds
            print(
                f"{env} {game}: {now - began:.0f} s, {steps:,} steps, {rate:,.0f} steps/s, "
                f"emulation {(emulation_s - reported_s) / seconds:.0%} of the time, {score}",
                flush=True,
            )
            reported_steps, reported_s, reported_at = steps, emulation_s, now
    seconds = time.perf_counter() - began
    print(f"{env} {game}: {4 * steps / seconds:,.0f} frames/s, emulation {emulation_s / seconds:.1%} of the time")
    envs.close()


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
