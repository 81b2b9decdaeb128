"""Playing games: showing, recording and counting them."""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np

from dqnspeed import envs
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import AnyArray, Episode, Step
from dqnspeed.envs.games import atari_game
from dqnspeed.execution.arrays import host
from dqnspeed.networks.table import Table
from dqnspeed.play.options import PlayConfig
from dqnspeed.play.player import Player, action_names
from dqnspeed.play.recorder import Recorder, told
from dqnspeed.play.screen import Screen, WindowClosedError, wants_window
from dqnspeed.play.tables import Walk, World, draw, world_of
from dqnspeed.system import seeding
from dqnspeed.tracking.run_folder import TABLE, VIDEOS, check_links
from dqnspeed.tracking.video import check_encoder, frame_rate, video_name
from dqnspeed.training.evaluation import LONGEST, Game, copies, distinct, play_games


def play(options: PlayConfig) -> dict[str, Any]:
    """Play, show, record; returns what ``play.jsonl`` gets."""
    window = wants_window(options)
    if options.record:
        check_encoder("record=true")
    player = Player(options)
    check_links(player.folder)
    drawn = window or options.record
    if drawn and (refused := _cannot_draw(player)):
        if options.window or options.record:
            raise refused
        print(f"The games are not shown: {refused}")
        window = drawn = False
    seeding.seed_everything(options.seed)
    env = envs.make_vector_env(player.run, render_mode="rgb_array" if drawn else None)
    with ExitStack() as resources:
        resources.callback(env.close)
        names = action_names(env, player.spec)
        world = _world(player, names) if isinstance(player.network, Table) else None
        if world is not None:
            names = list(world.actions)
        fps = options.fps or frame_rate(player.run, player.spec)
        screen = resources.enter_context(Screen(fps)) if window else None
        counts, recorder = Counter[str](), None
        if drawn:
            recorder = resources.enter_context(contextlib.closing(Recorder(env, player, names, options, fps)))
        walk = None if world is None else Walk(world)

        def watch(observations: AnyArray, actions: np.ndarray, step: Step) -> None:
            observation = host(observations[0])
            counts[names[actions[0]]] += int(not step.first[0])
            if walk is not None:
                walk.add(int(observation.argmax()), int(actions[0]), step)
            for image in recorder.add(observation, int(actions[0]), step) if recorder is not None else ():
                if screen is not None:
                    screen.show(image)

        def act(observations: AnyArray) -> np.ndarray:
            if recorder is not None:
                recorder.start()
            return player.act(host(observations))

        games, played, closed = [], list[Game](), False
        ends = play_games(env, player.spec, act, [options.seed], options.episodes, watch)
        try:
            for number, episode in enumerate(ends, start=1):
                games.append(_result(number, episode))
                played.append(episode)
                name = f"play_{player.path.stem}_seed{options.seed}_{video_name(number, episode)}"
                film = None if recorder is None else recorder.end(name)
                if film is not None:
                    games[-1]["video"] = f"{VIDEOS}/{film.name}"
                print(f"game {number}: return {episode.episode_return:g}, {episode.length:,} agent steps"
                      + ("" if film is None else f", {film}"), flush=True)  # fmt: skip
                if walk is not None:
                    games[-1]["path"] = walk.end()
                    print(f"  {games[-1]['path']}", flush=True)
        except WindowClosedError:
            closed = True
        if world is not None:
            _draw_table(player, world)
    returns = [game["return"] for game in games]
    other = "deterministic=false" if player.run.algo.has_policy and player.deterministic else "epsilon=0.05"
    if len(games) < options.episodes and not closed:
        print(f"The play was ended: a game took {LONGEST:,} steps, and the agent may be looping; try {other}.")
    if note := copies(played):
        print(f"{note} {other}, or noop_max=30 in an ALE game, makes them differ.")
    if not games and closed:
        raise KeyboardInterrupt
    if not games:
        raise ConfigError(f"run={options.run}: no game ended within {LONGEST:,} agent steps; try {other}.")
    return {
        "checkpoint": player.path.name,
        "agent_steps": player.agent_steps,
        "epsilon": options.epsilon,
        "deterministic": player.deterministic,
        "noop_max": player.noop_max,
        "seed": options.seed,
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "actions": dict(counts.most_common()),
        "distinct_games": distinct(played),
        "games": games,
    }


def _cannot_draw(player: Player) -> ConfigError | None:
    """Why an environment of the user's own cannot be drawn."""
    if atari_game(player.run.env) is not None:
        return None
    try:
        with contextlib.closing(envs.make_vector_env(player.run, render_mode="rgb_array")) as env:
            env.reset([0] * env.num_envs)
            env.render()
    except ConfigError as error:
        return error
    return None


def _world(player: Player, numbers: list[str]) -> World:
    env = envs.make_env(player.run.env, player.run.wrappers)
    try:
        return world_of(env, numbers)
    finally:
        env.close()


def _draw_table(player: Player, world: World) -> None:
    """Write the table into the run's folder as ``table.png``."""
    path = player.folder / TABLE
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{TABLE} needs matplotlib; pip install 'dqnspeed[report]' brings it.")
        return
    values = player.network.state_dict()["values"].cpu().numpy()
    with told(path):
        draw(values, world, path, f"{player.run.env.id} after {player.agent_steps:,} agent steps")
        print(path)


def _result(number: int, episode: Episode) -> dict[str, Any]:
    return {"game": number, "return": episode.episode_return, "length": episode.length}
