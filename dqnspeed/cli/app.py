"""Run a command: print its version or its errors as one sentence, and set its exit code."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser

from dqnspeed.cli.errors import ASKED_FOR, FULL_ERROR, RunError, explain, is_user_error
from dqnspeed.cli.plugins import find_modules_here
from dqnspeed.cli.sweep import sweep
from dqnspeed.config.options import ConfigError
from dqnspeed.system.messages import about
from dqnspeed.system.streams import output_error, tolerate_output_errors

USAGE_EXIT_CODE = 2


def run_app(job: Callable[..., Any], prints: bool = True) -> None:
    """Run a command; print errors as one sentence, and the results of the jobs of a sweep.

    Args:
        prints: the output is the purpose of the command, so the command fails if the output cannot be written.
    """
    tolerate_output_errors()
    if "--version" in sys.argv[1:]:
        print(about())
        check_output()
        return
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    os.environ.setdefault(ASKED_FOR, os.environ.get("HYDRA_FULL_ERROR", ""))  # jobs in other processes read it
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them
    with one_sentence():
        find_modules_here()
    gc.freeze()  # the garbage collector skips all imported objects, which saves a tenth of the start-up
    try:
        with one_sentence():
            job()
    except KeyboardInterrupt as error:
        received = [each for each in error.args if isinstance(each, signal.Signals)]
        sys.exit(128 + (received or [signal.SIGINT])[0])
    finally:
        print(*sweep.table(), sep="\n", end="\n" if sweep.jobs else "", flush=True)
        for line in sweep.problems():
            print(line, file=sys.stderr)
        if prints:
            check_output()
    if sweep.has_failed:
        sys.exit(1)


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Print a mistake of the user on stderr and exit with code 2; print the error of a run and exit with code 1.

    ``HYDRA_FULL_ERROR=1`` prints the traceback first.
    """
    try:
        yield
    except RunError as error:
        fail(str(error), code=1)
    except Exception as error:
        if not is_user_error(error):
            raise
        if FULL_ERROR:
            traceback.print_exc()
        fail(explain(error))


def check_output() -> None:
    """End with a sentence and exit code 1 if standard output could not be written."""
    if why := output_error():
        fail(f"standard output: could not be written ({why}).", code=1)


def fail(sentence: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    print(f"dqnspeed: {sentence}", file=sys.stderr)
    sys.exit(code)


def check_flags() -> None:
    """Raise :class:`ConfigError` if a flag is unknown, or names another main configuration."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            flags = get_args_parser().parse_args()
    except SystemExit as error:
        advice = "flags go before or after all KEY=VALUE" if "=" in printed.getvalue() else "see --hydra-help"
        raise ConfigError(f"{printed.getvalue().rpartition('error: ')[2].strip()}; {advice}.") from error
    if flags.config_name or flags.config_path:
        raise ConfigError("--config-name, --config-path: not taken; --config-dir FOLDER adds option files of your own.")
