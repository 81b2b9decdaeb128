"""Command lines of ``name=value`` options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from atari_warp.games import EmulatorError, find_game, known_games

CHOICES = {"compile_rom": ("yes", "no"), "actions": ("legal", "minimal", "all")}


def parse_options(
    arguments: Sequence[str] | None, defaults: Mapping[str, str | int], doc: str | None
) -> dict[str, str | int]:
    """Parse options of a command; ``--help`` prints ``doc`` and exits.

    Args:
        arguments: ``None`` takes the command line of this process.
        defaults: value of each option; an option whose default is an integer takes integers of at least 1.

    Raises:
        EmulatorError: an option is unknown, or its value is not allowed.
    """
    options, arguments = dict(defaults), sys.argv[1:] if arguments is None else arguments
    given = {argument.partition("=")[0] for argument in arguments}
    if {"-h", "--help"} & set(arguments):
        print(doc)
        raise SystemExit(0)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name not in defaults or not equals:
            raise EmulatorError(f"{argument}: unknown option. Choose from {', '.join(f'{key}=' for key in defaults)}.")
        if isinstance(defaults[name], int) and not (value.isdecimal() and int(value)):
            raise EmulatorError(f"{argument}: must be an integer of at least 1.")
        if name in ("mode", "difficulty") and not value.isdecimal() and value not in ("default", "all"):
            raise EmulatorError(f"{argument}: must be one of ALE's numbers, all, or default.")
        if name in CHOICES and value not in CHOICES[name]:
            raise EmulatorError(f"{argument}: must be {' or '.join(CHOICES[name])}.")
        options[name] = int(value) if isinstance(defaults[name], int) else value
    if options.get("compile_rom") == "yes" and options["device"] != "cpu":
        if "compile_rom" in given:
            raise EmulatorError("compile_rom=yes: works on device=cpu only.")
        options["compile_rom"] = "no"
    if not Path(str(options.get("out", "."))).is_dir():
        raise EmulatorError(f"out={options['out']}: no such folder.")
    return options


def chosen_games(options: Mapping[str, str | int]) -> list[str]:
    """Names of the games that ``game=`` lists. Raises :class:`EmulatorError` if one is unknown."""
    names = str(options["game"])
    return [find_game(name).name for name in (known_games() if names == "all" else names.split(","))]


def exit_with(command: Callable[[], int]) -> NoReturn:
    """Run a command and exit with its status, as shells expect it after Ctrl-C or when a reader is gone."""
    try:
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # output at exit would fail again
        status = 141
    sys.exit(status)
