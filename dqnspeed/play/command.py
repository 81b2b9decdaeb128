"""``python -m dqnspeed.play``: plays a trained agent."""

from __future__ import annotations

import dataclasses
import json
import sys

from dqnspeed.agents.agent import folder_of
from dqnspeed.cli.app import fail, run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import ActorError
from dqnspeed.play.card import beside_card, zoo_table
from dqnspeed.play.games import play
from dqnspeed.play.options import NEWEST_RUN, PlayConfig
from dqnspeed.play.web import play_in_browser
from dqnspeed.system import atomic
from dqnspeed.system.signals import interrupt_on_signals
from dqnspeed.tracking.hub import HUB, pinned
from dqnspeed.tracking.published import output_of, read_evaluation
from dqnspeed.tracking.run_folder import PLAYED, newest_run
from dqnspeed.training.checkpoint import playable

COMMAND_LINE = CommandLine(
    "python -m dqnspeed.play [run=FOLDER|zoo:GAME|hub:USER/NAME] [KEY=VALUE...]",
    "Watch a trained agent, record its games, and see its score. zoo=list prints the agents that ship here.",
    PlayConfig,
)


def _main() -> None:
    options, _ = COMMAND_LINE.read(sys.argv[1:])
    if options.zoo:
        print(*zoo_table(), sep="\n")
        return
    if options.run == NEWEST_RUN:
        options = dataclasses.replace(options, run=str(newest_run("run with something to play", playable)))
        print(f"plays the newest run, {options.run}", flush=True)
    if options.run.startswith(HUB):
        options = dataclasses.replace(options, run=pinned(options.run))  # card and weights are of one commit
    try:
        if options.screen == "web":
            play_in_browser(options)
            return
        folder = folder_of(options.run)
        card = read_evaluation(folder)
        result = play(options)
    except ActorError as error:
        fail(str(error), code=1)
    num_games = len(result["games"])
    print(
        f"{result['checkpoint']} after {result['agent_steps']:,} agent steps: mean return {result['return_mean']:.2f} "
        f"± {result['return_std']:.2f} over {num_games} game{'' if num_games == 1 else 's'}\n"
        f"actions: {', '.join(f'{name} {count:,}' for name, count in result['actions'].items())}"
    )
    if card:
        print(beside_card(result, card))
    path = output_of(folder) / PLAYED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.open_regular(path, "ab") as file:
            file.write(f"{json.dumps(atomic.nan_to_none(result))}\n".encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written, so this result is not kept ({error.strerror}).") from error
    if card:
        print(f"results are in {path.parent}, since a published folder is never changed")
    if options.record and not all("video" in game for game in result["games"]):
        sys.exit(1)  # the recorder has printed the reason


def main() -> None:
    """Console entry point; SIGTERM and a closed terminal end it as Ctrl-C does, which deletes an unfinished video."""
    interrupt_on_signals()
    run_app(_main)
