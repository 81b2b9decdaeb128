"""Playing whole games: evaluation during training, and play of a trained network."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import statistics
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from dqnspeed.actors.stepper import env_seeds
from dqnspeed.algorithms import algorithm_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import AnyArray, EnvSpec, Episode, FrameStack, Step, VectorEnv, make_env, make_vector_env
from dqnspeed.envs.backends.gymnasium import play_by_table
from dqnspeed.envs.games import atari_game
from dqnspeed.exploration.epsilon_greedy import EpsilonGreedy
from dqnspeed.exploration.policy import Policy
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding

log = logging.getLogger(__name__)

MAX_EVAL_ENVS = 8  # environments that play an evaluation side by side
TABLE_STATES = 1024  # environments with at most as many numbered states are played by a table of actions
MAX_IDLE_STEPS = 200_000  # most agent steps of each environment until a game ends; a greedy policy may loop for ever
SEEDS = 2**31  # above the numbers of all actors, for seeds of evaluations


@dataclass(frozen=True)
class Game(Episode):
    """A game played to its end; ``digest`` is equal for games with the same actions and rewards."""

    digest: bytes = b""


def with_starts(run: RunConfig, noop_max: int) -> RunConfig:
    """``run`` with up to ``noop_max`` no-ops at the start of an ALE game; 0 keeps its own.

    Without them ALE starts every game the same, whatever the seed, and a greedy policy repeats one game.
    """
    if not noop_max or atari_game(run.env) is None:
        return run
    return dataclasses.replace(run, wrappers=dataclasses.replace(run.wrappers, noop_max=noop_max))


def copies(games: Sequence[Game]) -> str:
    """A sentence if some of the games are copies of others, else an empty string."""
    if (different := distinct(games)) == len(games):
        return ""
    return (
        f"Only {different} of {len(games)} games differ in what was done and earned, so their mean and spread say no "
        f"more than those {different}."
    )


def distinct(games: Sequence[Game]) -> int:
    """Number of games that differ."""
    return len({game.digest for game in games})


def shared_out(games: int, count: int) -> list[int]:
    """The number of games of each of ``count`` environments."""
    return [games // count + (i < games % count) for i in range(count)]


def play_games(
    env: VectorEnv,
    spec: EnvSpec,
    act: Callable[[AnyArray], np.ndarray],
    seeds: list[int],
    games: int,
    watch: Callable[[AnyArray, np.ndarray, Step], None] = lambda *_: None,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[Game]:
    """Play ``games`` whole games, a fixed number in each environment, so that short games are not preferred.

    Args:
        act: actions ``(N,)`` for observations ``(N, stack * C, ...)``, which are where the environments have them.
        watch: called after each step with the observations acted on, the actions, and the step.
        give_up: called before each step; True ends the play, as do :data:`MAX_IDLE_STEPS` steps in which no game ends.
    """
    count = env.num_envs
    left = shared_out(games, count)
    stack = FrameStack(count, spec.stack, spec.frame_shape, spec.frame_dtype)
    stack.push(env.reset(seeds), np.ones(count, bool))
    digests = [hashlib.blake2b(digest_size=16) for _ in range(count)]
    idle = 0
    while any(left) and idle < MAX_IDLE_STEPS and not give_up():
        idle += 1
        actions = act(stack.observations)
        env.send(actions)
        step = env.recv()
        watch(stack.observations, actions, step)
        stack.push(step.frames, step.first)
        for i, digest in enumerate(digests):
            if not step.first[i]:  # that action was ignored
                digest.update(struct.pack("<qf", actions[i], step.rewards[i]))
        for episode in step.episodes:
            played, digests[episode.env] = digests[episode.env], hashlib.blake2b(digest_size=16)
            if left[episode.env]:
                left[episode.env] -= 1
                idle = 0
                yield Game(episode.env, episode.episode_return, episode.length, digest=played.digest())


class Evaluator:
    """Every ``eval.every_steps`` agent steps: ``eval.episodes`` games, greedy or drawn from the policy.

    It has its own environments and seeds, so training is not affected; each evaluation has new seeds. ``mean`` is the
    mean return of the last one.
    """

    def __init__(self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device):
        self._config, self._seed, self._spec, self._network = run.eval, run.seed, spec, network
        self._run = with_starts(
            dataclasses.replace(run, num_envs=min(run.eval.episodes, MAX_EVAL_ENVS)), run.eval.noop_max
        )
        self._device = device
        self._env: VectorEnv | None = None
        self._single = list[gymnasium.Env]()  # where a table of actions plays
        few = spec.num_states is not None and spec.num_states <= TABLE_STATES
        self._by_table = few and run.eval.deterministic and run.eval.epsilon == 0
        self._next = run.eval.every_steps
        self._warned_of_copies = False
        self.mean: float | None = None
        self.count = 0

    def is_due(self, agent_steps: int) -> bool:
        return self._next is not None and agent_steps >= self._next

    def play(self, agent_steps: int, give_up: Callable[[], bool]) -> list[Game]:
        """The games of one evaluation; none if it was given up, or if a game did not end, since only short games would
        count then."""
        assert self._config.every_steps is not None
        number = self.count + 1
        policy = self._policy(np.random.default_rng([self._seed, SEEDS, number]))
        seeds = env_seeds(self._seed, SEEDS, self._run.num_envs, segment=number)
        play = self._play_by_table if self._by_table else self._play_together
        with seeding.preserve():
            seeding.seed_everything(seeds[0])
            self._network.eval()  # without the noise of exploration
            try:
                episodes = play(policy, seeds, give_up)
            finally:
                self._network.train()
        if give_up():
            return []
        self._next = agent_steps + self._config.every_steps
        if len(episodes) < self._config.episodes:
            log.warning(
                "an evaluation was ended and does not count: no game ended within %s steps, after %d had.",
                f"{MAX_IDLE_STEPS:,}", len(episodes),
            )  # fmt: skip
            return []
        if (note := copies(episodes)) and not self._warned_of_copies:
            log.warning(
                "evaluation %d: %s %s, or eval.noop_max in an ALE game, makes them differ.",
                number,
                note,
                "eval.deterministic=false" if self._run.algo.has_policy else "eval.epsilon",
            )
            self._warned_of_copies = True
        self.count, self.mean = number, statistics.fmean(e.episode_return for e in episodes)
        return episodes

    def _policy(self, rng: np.random.Generator) -> Policy:
        run, spec = self._run, self._spec
        run = dataclasses.replace(
            run, execution=dataclasses.replace(run.execution, compile=False)
        )  # for the little that it plays
        if not self._config.deterministic:
            return algorithm_of(run).policy(run, spec, self._network, self._device, rng)
        return EpsilonGreedy(self._network, spec.num_actions, run.execution, self._device, rng)

    def _play_together(self, policy: Policy, seeds: list[int], give_up: Callable[[], bool]) -> list[Game]:
        """Games in environments that step side by side."""

        def act(observations: AnyArray) -> np.ndarray:
            return policy(observations, self._config.epsilon)[0]

        if self._env is None:
            self._env = make_vector_env(self._run)
        return list(play_games(self._env, self._spec, act, seeds, self._config.episodes, give_up=give_up))

    def _play_by_table(self, policy: Policy, seeds: list[int], give_up: Callable[[], bool]) -> list[Game]:
        """Games as in :meth:`_play_together`, one environment after another."""
        assert self._spec.num_states is not None
        if not self._single:
            self._single = [make_env(self._run.env, self._run.wrappers) for _ in seeds]
        best = policy(np.eye(self._spec.num_states, dtype=self._spec.frame_dtype), 0.0)[0]
        games = list[Game]()
        shares = shared_out(self._config.episodes, len(seeds))
        for i, (env, seed, share) in enumerate(zip(self._single, seeds, shares, strict=True)):
            for actions, rewards in play_by_table(env, best, seed, share, MAX_IDLE_STEPS, give_up):
                length = len(actions)
                digest = hashlib.blake2b(struct.pack(f"<{length}q{length}d", *actions, *rewards), digest_size=16)
                games.append(Game(i, sum(rewards), length, digest=digest.digest()))
        return games

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "every": self._config.every_steps, "mean": self.mean, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["next"] is not None and self._config.every_steps is not None:
            every = self._config.every_steps  # which another value may have been given in the meantime
            self._next = state["next"] - state["every"] + every
        self.mean, self.count = state["mean"], state["count"]

    def close(self) -> None:
        for env in (self._env, *self._single):
            if env is not None:
                env.close()


def evaluation_metrics(episodes: list[Game]) -> dict[str, float]:
    """``eval/*`` of one evaluation."""
    returns = [e.episode_return for e in episodes]
    return {
        "eval/return_mean": statistics.fmean(returns),
        "eval/return_std": statistics.pstdev(returns),
        "eval/length_mean": statistics.fmean(e.length for e in episodes),
        "eval/distinct_games": distinct(episodes),
    }
