"""``dqnspeed COMMAND ...``: lists the commands, or runs one."""

from __future__ import annotations

import importlib
import sys

from dqnspeed.config.options import nearest
from dqnspeed.system.messages import about
from dqnspeed.system.streams import output_error, tolerate_output_errors

COMMANDS = {
    "train": "train an agent; everything is an override, GROUP=OPTION or KEY=VALUE",
    "play": "watch a trained agent, record its games, and see what it scores",
    "publish": "a folder to give away: a trained agent, its evaluation, a film and a model card",
    "report": "a page of runs: their table, plots and statistics",
    "bench": "which of the speed-ups pays on this machine? ends with one line to paste",
    "doctor": "why does it not learn? checks an environment and a few updates",
    "options": "what every option means, what it takes, and its default",
}


def main() -> None:
    """Console entry point: the first argument is the command, and the command reads the others."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "--version"):
        tolerate_output_errors()
        print(about() if name == "--version" else _help())
        if why := output_error():
            print(f"dqnspeed: standard output: could not be written ({why}).", file=sys.stderr)
            sys.exit(1)
    elif name in COMMANDS:
        del sys.argv[1]
        importlib.import_module(module_of(name)).main()
    else:
        print(f"dqnspeed: {_unknown(name)}", file=sys.stderr)
        sys.exit(2)


def module_of(command: str) -> str:
    """The name of the module that has ``main()`` of a command."""
    return "dqnspeed.cli.train" if command == "train" else f"dqnspeed.{command}.command"


def _help() -> str:
    return "\n".join([
        "dqnspeed: how fast can an Atari agent learn on this machine?",
        "",
        *(f"  dqnspeed {name:<8} {what}" for name, what in COMMANDS.items()),
        "",
        "dqnspeed COMMAND --help tells more of one. python -m dqnspeed.COMMAND and dqnspeed-COMMAND are the same.",
        "dqnspeed train experiment=speedrun is where to begin.",
    ])  # fmt: skip


def _unknown(name: str) -> str:
    advice = "; overrides come after a command, as in dqnspeed train KEY=VALUE" if "=" in name else ""
    return f"{name}: is no command{nearest(name, list(COMMANDS))}; choose one of {', '.join(COMMANDS)}{advice}."
