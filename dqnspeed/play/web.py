"""``screen=web``: games on a page in the browser."""

from __future__ import annotations

import contextlib
import itertools

import torch

from dqnspeed.agents.agent import load
from dqnspeed.agents.choice import ActionChoice
from dqnspeed.agents.saliency import check_saliency
from dqnspeed.config.options import ConfigError, check_installed
from dqnspeed.live.server import PageServer, read_page
from dqnspeed.live.viewer import Viewer, show_games
from dqnspeed.play.games import is_deterministic
from dqnspeed.play.options import PlayConfig

REMIND_S = 60


def play_in_browser(options: PlayConfig) -> None:
    """Show ``options.episodes`` games on a page; their results are printed and not kept.

    Raises:
        ConfigError: the agent cannot be loaded, an option does not go with ``screen=web``, or no port can be opened.
    """
    for name in ("record", "overlay"):
        if getattr(options, name):
            raise ConfigError(f"screen=web: does not go with {name}=true. Leave one of them out.")
    if options.num_envs > 1:
        raise ConfigError(f"num_envs={options.num_envs}: does not go with screen=web, which shows one game. Use 1.")
    check_installed("screen=web", "aiohttp", "live")
    agent = load(options.run, options.checkpoint, options.device, options.trust, options.noop_max)
    torch.set_num_threads(agent.config.execution.threads or 1)  # as in games.play
    if options.saliency:
        check_saliency(agent)
    choice = ActionChoice(options.seed, not is_deterministic(agent, options), options.epsilon)
    with contextlib.closing(Viewer(agent, choice, options.seed, options.fps)) as viewer:
        viewer.on_message({"saliency": options.saliency})
        server = PageServer(read_page(), viewer.on_message)
        ended = "The play was ended."
        try:
            print(f"{server.line}\nCtrl-C ends the play.", flush=True)
            server.send_facts(
                title=f"{agent.config.env.id}, {options.run}",
                algo=f"{agent.config.algo.name}, {agent.checkpoint.name} after {agent.agent_steps:,} agent steps",
                playing="The agent is playing.",
                **viewer.facts,
            )
            if not server.watched.wait(REMIND_S):
                print("Nobody has opened the page yet. Open the address above, or end with Ctrl-C.", flush=True)
                server.watched.wait()
            games = (moment for moment in show_games(viewer, server) if moment.is_over)
            for number, game in enumerate(itertools.islice(games, options.episodes), start=1):
                print(f"game {number}: return {game.total:g}, {game.step:,} agent steps", flush=True)
            ended = f"The play has ended after {options.episodes} game{'' if options.episodes == 1 else 's'}."
        finally:
            server.close(ended=ended)
