"""Actors with their buffer, and the contract of every kind of actors."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch

from dqnspeed.actors import ActorArguments, Actors, make_actors
from dqnspeed.actors.stepper import env_seeds
from dqnspeed.algorithms import make_buffer, make_learner
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import Episode, describe
from dqnspeed.execution.arrays import host

CONTRACT = ["algo.n_step=3", "exploration.decay_start=0", "exploration.decay_steps=100", "replay.buffer_size=2000"]
GREEDY = ["exploration.start=0", "exploration.final=0"]


class Started:
    """Actors with their buffer, as a run makes them.

    Args:
        state: ``actors`` and ``buffer`` to continue from.
        device: device of the buffer.
    """

    def __init__(
        self,
        run: RunConfig,
        state: dict[str, Any] | None = None,
        segment: int = 0,
        device: torch.device | None = None,
        make: Callable[[ActorArguments], Actors] = make_actors,
    ):
        self.run = run
        spec, learner_device = describe(run), torch.device("cuda" if run.device == "cuda" else "cpu")
        torch.manual_seed(0)
        self.learner: Any = make_learner(run, spec, learner_device)
        self.network: Any = self.learner.network
        self.buffer: Any = make_buffer(run, spec, device=device)
        if state:
            self.buffer.load_state_dict(state["buffer"])
        saved = state and state["actors"]
        self.actors = make(ActorArguments(run, spec, self.network, self.buffer, learner_device, saved, segment))
        self.new_games = self.actors.start().episodes
        self.agent_steps, self.episodes, self.limit = 0, list[Episode](), math.inf

    def rows(self) -> np.ndarray:
        """Rows of each environment."""
        return np.array([self.buffer.storage.rows_written(env_index) for env_index in range(self.run.total_envs)])

    def column(self, name: str) -> np.ndarray:
        """A column of the buffer, ``(num_envs, num_rows)``."""
        column: np.ndarray = self.buffer.storage.host.arrays[name]
        return column

    def collect(self, steps: int) -> None:
        """Collect until there are ``steps`` agent steps, and as many rows: a row may still be in a pipe."""
        while self.agent_steps < steps or self.rows().sum() < steps:
            self.actors.send()
            collected = self.actors.collect(self.limit, wait=True)
            self.agent_steps += collected.agent_steps
            self.episodes += [game for game in collected.episodes if isinstance(game, Episode)]

    def pause(self) -> dict[str, Any]:
        """Pause, and return the state to continue from."""
        self.agent_steps += self.actors.pause().agent_steps
        return {"actors": self.actors.state_dict(), "buffer": self.buffer.state_dict()}

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.actors.close()
        self.buffer.close()


def actor_process(index: int) -> BaseProcess:
    """Process of an actor on this machine."""
    return next(process for process in multiprocessing.active_children() if process.name == f"actor-{index}")


def assert_contract(started: Started) -> None:
    """Check transitions one by one: frames are (seed, episode, step)."""
    run, total_envs = started.run, started.run.total_envs
    started.collect(150)
    while started.rows().min() < 40 or len({game.env for game in started.episodes}) < total_envs:
        started.collect(started.agent_steps + 1)  # an actor may be slow to begin
    batch = started.buffer.sample(400)
    if batch.update_priorities is not None:
        batch.update_priorities(torch.ones(400))  # whatever was collected meanwhile
    games = list(started.episodes)
    assert [env for new in started.new_games for env in new.envs] == [*range(total_envs)]  # type: ignore[union-attr]

    actors = range(run.parallelism.num_actors)
    seeds = {seed % 1000 for actor in actors for seed in env_seeds(run.seed, actor, run.num_envs)}
    before, after = host(batch.observations), host(batch.next_observations)
    assert len(seeds) == total_envs and set(before[:, 0].astype(int)) == seeds
    np.testing.assert_array_equal(before[:, :2], after[:, :2])  # no transition crosses an episode's end
    taken = (after[:, 2] - before[:, 2]).astype(int)
    left = 7 - before[:, 2].astype(int)
    np.testing.assert_array_equal(taken, np.minimum(3, left))
    terminated = (left <= 3) & (before[:, 1] % 2 == 0)
    np.testing.assert_allclose(host(batch.discounts), np.where(terminated, 0, 0.99**taken), rtol=1e-5)
    # The first reward is 10 * action + step; any action may have given the later rewards.
    rest = host(batch.rewards) - (10 * host(batch.actions) + before[:, 2] + 1)
    lowest = sum(0.99**k * (before[:, 2] + k + 1) * (taken > k) for k in (1, 2))
    assert (rest >= lowest - 1e-3).all() and (rest <= lowest + 20 * 2).all()

    assert games and all(game.length == 7 for game in games)
    assert {game.env for game in games} == set(range(total_envs))


def assert_newest_weights(started: Started) -> None:
    for action in (2, 1):
        bias = started.network.q[-1].bias
        with torch.no_grad():
            bias[action] += 1000
            started.network.version.add_(1)
            float(bias[action])  # waits for a GPU
        changed = started.rows()
        started.collect(started.agent_steps + 100)  # steps that were chosen before the change
        while (started.rows() - changed).min() < 10:  # a slow actor has not brought them yet
            started.collect(started.agent_steps + 1)
        begin = started.rows()
        started.collect(started.agent_steps + 100)
        while not (started.rows() > begin).all():
            started.collect(started.agent_steps + 1)
        for env_index, end in enumerate(started.rows()):
            np.testing.assert_array_equal(started.column("actions")[env_index, begin[env_index] : end], action)
        with torch.no_grad():
            bias[action] -= 1000


def assert_pauses(started: Started) -> None:
    started.collect(40)
    for _ in range(20):  # one pause right after the other
        state, rows = started.pause()["actors"], started.rows().tolist()
        assert sum(actor["agent_steps"] for actor in state.values()) == started.agent_steps
        time.sleep(0.002)
        assert started.rows().tolist() == rows
        started.actors.resume()
    started.collect(started.agent_steps + 40)
