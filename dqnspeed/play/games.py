"""Playing games: showing, recording and counting them."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from dqnspeed import envs
from dqnspeed.agents.agent import Agent, load
from dqnspeed.agents.choice import ActionChoice
from dqnspeed.agents.saliency import check_saliency
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import AnyArray, Step
from dqnspeed.envs.backends import auto
from dqnspeed.execution.arrays import host
from dqnspeed.networks.table import Table
from dqnspeed.play.options import PlayConfig
from dqnspeed.play.recorder import Recorder, print_write_errors
from dqnspeed.play.screen import Screen, WindowClosedError, wants_window
from dqnspeed.play.tables import draw_table
from dqnspeed.system import seeding
from dqnspeed.tracking.run_folder import TABLE, VIDEOS, check_links
from dqnspeed.tracking.video import check_encoder, frame_rate, video_name
from dqnspeed.training.evaluation import MAX_IDLE_STEPS, Game, copies, distinct, play_games


class Session:
    """Chooses actions in one environment, and shows, records and counts the games.

    Attributes:
        games: the games that have ended.
        results: their entries in ``play.jsonl``.
        counts: number of times that each action was taken in these games.
    """

    def __init__(
        self,
        agent: Agent,
        options: PlayConfig,
        deterministic: bool,
        names: list[str],
        recorder: Recorder,
        screen: Screen | None,
    ):
        self._agent, self._options = agent, options
        self._names, self._recorder, self._screen = names, recorder, screen
        self._choose = ActionChoice(options.seed, drawn=not deterministic, epsilon=options.epsilon)
        self._values = np.zeros((options.num_envs, len(names)), np.float32)  # outputs for the last observations
        self.games, self.results, self.counts = list[Game](), list[dict[str, Any]](), Counter[str]()
        self._taken = [Counter[str]() for _ in range(options.num_envs)]  # in the game of each environment

    def act(self, observations: AnyArray) -> np.ndarray:
        """Actions ``(N,)`` for observations ``(N, stack * C, ...)``."""
        self._recorder.start()
        self._values = self._agent.compute(self._agent.network, host(observations))
        return self._choose(self._values)

    def watch(self, observations: AnyArray, actions: np.ndarray, step: Step) -> None:
        """Count, record and show a step."""
        for env_index in np.flatnonzero(~step.first):  # a step that only starts a game ignores the action
            self._taken[env_index][self._names[actions[env_index]]] += 1
        for image in self._recorder.add(host(observations[0]), self._values[0], int(actions[0]), step):
            if self._screen is not None:
                self._screen.show(image)

    def end_game(self, game: Game) -> None:
        """Keep and print the result of a game."""
        self.games.append(game)
        self.counts += self._taken[game.env]
        self._taken[game.env].clear()
        number = len(self.games)
        result: dict[str, Any] = {"game": number, "return": game.episode_return, "length": game.length}
        line = f"game {number}: return {game.episode_return:g}, {game.length:,} agent steps"
        name = f"play_{self._agent.checkpoint.stem}_seed{self._options.seed}_{video_name(number, game)}"
        if video := self._recorder.end(name):
            result["video"] = f"{VIDEOS}/{video.name}"
            line += f", {video}"
        self.results.append(result)
        print(line, flush=True)


def play(options: PlayConfig) -> dict[str, Any]:
    """Play games, and show and record them.

    Returns:
        The line for ``play.jsonl``.
    """
    if options.num_envs > 1:
        options = _unshown(options)
    for name in ("overlay", "saliency"):
        if getattr(options, name) and options.screen == "none" and not options.record:
            raise ConfigError(f"{name}=true: is not seen if games are neither shown nor recorded. Leave it out.")
    has_window = wants_window(options)
    if options.record:
        check_encoder("record=true")
    agent = load(options.run, options.checkpoint, options.device, options.trust, options.noop_max)
    deterministic = is_deterministic(agent, options)
    if options.saliency:
        check_saliency(agent)
    check_links(agent.output)
    renders = has_window or options.record
    if renders and (problem := agent.render_problem()):
        if options.screen or options.record:
            raise problem
        print(f"The games are not shown: {problem}")
        has_window = renders = False
    seeding.seed_everything(options.seed)
    # More threads gain little on a few observations, and wait for each other on a busy machine.
    torch.set_num_threads(agent.config.execution.threads or 1)
    is_closed = False
    played = dataclasses.replace(agent.config, num_envs=options.num_envs)
    if options.num_envs > 1:
        played = dataclasses.replace(played, backend=auto.choose(played))  # the fastest, since nothing is rendered
    seeds = [(options.seed + i) % 2**31 for i in range(options.num_envs)]
    with ExitStack() as resources:
        env = envs.make_vector_env(played, render_mode="rgb_array" if renders else None)
        resources.callback(env.close)
        names, fps = agent.action_names, options.fps or frame_rate(agent.config, agent.spec)
        screen = resources.enter_context(contextlib.closing(Screen(fps))) if has_window else None
        recorder = resources.enter_context(contextlib.closing(Recorder(env, agent, names, options, fps, renders)))
        session = Session(agent, options, deterministic, names, recorder, screen)
        try:
            for game in play_games(env, agent.spec, session.act, seeds, options.episodes, session.watch):
                session.end_game(game)
        except WindowClosedError:
            is_closed = True
    games = session.games
    other = "deterministic=false" if agent.has_policy and deterministic else "epsilon=0.05"
    if is_closed and not games:
        raise KeyboardInterrupt
    if not games:
        raise ConfigError(f"run={options.run}: no game ended within {MAX_IDLE_STEPS:,} agent steps. Try {other}.")
    if len(games) < options.episodes and not is_closed:
        print(f"The play has ended: a game took {MAX_IDLE_STEPS:,} steps, so the agent may be looping. Try {other}.")
    if note := copies(games):
        noops = ", or noop_max=30 in an ALE game," if (agent.noop_max or 0) < 30 else ""
        print(f"{note} {other}{noops} makes them differ.")
    if isinstance(agent.network, Table):
        _draw(agent, names)
    returns = [game.episode_return for game in games]
    return {
        "checkpoint": agent.checkpoint.name,
        "agent_steps": agent.agent_steps,
        "epsilon": options.epsilon,
        "deterministic": deterministic,
        "noop_max": agent.noop_max,
        "seed": options.seed,
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "actions": dict(session.counts.most_common()),
        "distinct_games": distinct(games),
        "games": session.results,
    }


def is_deterministic(agent: Agent, options: PlayConfig) -> bool:
    """Whether the agent takes its best action.

    Raises:
        ConfigError: ``deterministic=false`` asks to draw from a policy that the agent has not.
    """
    chosen = agent.config.eval.deterministic if options.deterministic is None else options.deterministic
    if not chosen and not agent.has_policy:
        raise ConfigError(
            f"deterministic=false: algo={agent.config.algo.name} learns action values and no policy to draw from. "
            f"Use epsilon=0.05 for some random actions."
        )
    return chosen


def _unshown(options: PlayConfig) -> PlayConfig:
    """``options`` for several games at once, without a window.

    Raises:
        ConfigError: a window or a film is asked for.
    """
    shown = "record=true" if options.record else f"screen={options.screen}"
    if options.record or options.screen == "window":
        raise ConfigError(f"num_envs={options.num_envs}: does not go with {shown}, which takes one game. Use 1.")
    return dataclasses.replace(options, screen="none", num_envs=min(options.num_envs, options.episodes))


def _draw(agent: Agent, names: list[str]) -> None:
    """Draw the table of Q-learning into the run's folder."""
    path, config = agent.output / TABLE, agent.config
    values = agent.network.state_dict()["values"].cpu().numpy()
    with contextlib.closing(envs.make_env(config.env, config.wrappers)) as env, print_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_table(values, env, names, path, f"{config.env.id} after {agent.agent_steps:,} agent steps")
        print(path)
