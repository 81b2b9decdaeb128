"""A user's script, which mypy checks as it checks the house; it is not run."""

from __future__ import annotations

import numpy as np

import dqnspeed
from dqnspeed import Agent, ConfigError, Results, RunConfig, RunError


def use(folder: str) -> int:
    run: RunConfig = dqnspeed.compose(["env=pong"])
    results: Results = dqnspeed.train(["env=cartpole", f"num_envs={run.num_envs}"], folder=folder)
    try:
        results = dqnspeed.read(folder)
    except (ConfigError, RunError) as error:
        print(error)
    agent: Agent = dqnspeed.load(results.folder, device="cpu")
    env = agent.make_env(render_mode="rgb_array")
    observation, _ = env.reset(seed=1)
    action: int = agent.act(observation)
    values: np.ndarray = agent.values(observation[None])
    observation, reward, terminated, truncated, _ = env.step(action)
    picture: np.ndarray = env.render()
    print(
        results.summary["solved"], results.metrics["step"], values.max() + reward, picture.shape, terminated, truncated
    )
    return action
