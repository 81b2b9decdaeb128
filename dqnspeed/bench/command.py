"""``python -m dqnspeed.bench``: which of the speed-ups pays on this machine?"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dqnspeed.bench import report
from dqnspeed.bench.pairs import check_statistics
from dqnspeed.bench.plan import BASELINE, TRAININGS
from dqnspeed.bench.recommend import ANY_ALGORITHM, SAME_LEARNING
from dqnspeed.bench.result import Result
from dqnspeed.bench.session import BenchSession
from dqnspeed.bench.suites import SUITES, Suite
from dqnspeed.cli.app import run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.system import atomic
from dqnspeed.system.signals import ending_signals
from dqnspeed.tracking.run_folder import why_not_made
from dqnspeed.training.folder_lock import new_folder

ABOUT = """Measure on this machine which of the engineering speed-ups pays, and end with one command to paste.

Each candidate and its reference take turns, so that a noisy machine slows both. Overrides of dqnspeed.train, for
example env=breakout, hold for everything measured. Ctrl-C keeps what was measured."""


@dataclass(frozen=True)
class BenchConfig:
    suite: str = option(
        "quick: ten minutes; full: also compiled trainings and more games at once; micro: only parts of a training",
        choices=SUITES,
        default="quick",
    )
    out: str | None = option("a new folder for the result, null: one in bench/", default=None)
    allow: str | None = option("what else the recommended command may change", choices=("algorithm",), default=None)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.bench [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]",
    ABOUT,
    BenchConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    check_statistics()
    suite = Suite(options.suite, overrides)
    folder, seconds = _make_folder(options.out), suite.seconds()
    print(f"suite={suite.name} takes about {seconds / 60:.0f} minutes. The result goes to {folder}.", flush=True)
    session = BenchSession(suite.plan, suite.name, folder, seconds)
    for number in ending_signals():
        signal.signal(number, session.end)
    try:
        with session:
            suite.run(session, SAME_LEARNING if options.allow is None else ANY_ALGORITHM)
    except KeyboardInterrupt:
        sys.exit(128 + (session.received or signal.SIGINT))
    finally:
        report.print_result(session.result)
        write_page(session.result, folder)
        print(folder)
    baseline = session.result.find(TRAININGS, BASELINE)
    if baseline is not None and baseline.error:
        raise RunError(f"the baseline could not be measured, so no command is recommended: {baseline.error}")


def write_page(result: Result, folder: Path) -> None:
    """Write the page into ``folder``; print why if that fails."""
    try:
        atomic.write_text(folder / report.PAGE, report.page(result))
    except OSError as error:
        print(f"dqnspeed: {folder}: {report.PAGE} cannot be written ({error.strerror}).", file=sys.stderr)


def _make_folder(out: str | None) -> Path:
    folder = Path(out or "bench")
    try:
        if out is None:
            return new_folder(folder / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"out={folder}: cannot be made ({why_not_made(folder, error)}). Name a new folder."
        ) from error
    return folder


def main() -> None:
    """Console entry point."""
    run_app(_main)
