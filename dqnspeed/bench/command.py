"""``python -m dqnspeed.bench``: which of these speed-ups pays on this machine?"""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dqnspeed.bench import result as results
from dqnspeed.bench.measuring import Measuring
from dqnspeed.bench.pairs import check_statistics
from dqnspeed.bench.plan import BASELINE, Plan
from dqnspeed.bench.progress import Bar, shown
from dqnspeed.bench.recommend import SAFE, WIDER
from dqnspeed.bench.result import Result
from dqnspeed.bench.suites import SUITES, Suite
from dqnspeed.cli.app import run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.system import machine
from dqnspeed.tracking.run_folder import why_not_made
from dqnspeed.training.folder_lock import new_folder

BENCH = "bench"  # where results are, unless out= says otherwise
ABOUT = """Measure on this machine which of the engineering speed-ups pays, and end with one line to paste.

Everything is measured in pairs with its reference, in turns, so that a noisy machine slows both. GROUP=OPTION and
KEY=VALUE of dqnspeed.train, such as env=breakout, hold for all that is measured. Ctrl-C keeps what was measured."""


@dataclass(frozen=True)
class BenchConfig:
    suite: str = option(
        "quick: in ten minutes; full: compiled trainings and more games, too; micro: parts",
        choices=SUITES,
        default="quick",
    )
    out: str | None = option("a new folder for the result, null: one in bench/", default=None)
    allow: str | None = option("what else the line may change", choices=("algorithm",), default=None)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.bench [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]",
    ABOUT,
    BenchConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
    is_other=lambda _: True,
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    check_statistics()
    suite = Suite(options.suite, overrides)
    folder, seconds = _new_folder(options.out), suite.seconds()
    print(f"suite={suite.name} takes about {shown(seconds)} minutes here; the result goes to {folder}", flush=True)
    bar = Bar(seconds)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, bar.interrupt)
    measuring = Measuring(begin(suite.plan, options.suite), folder / results.FILE, bar)
    try:
        with bar, measuring:
            suite.run(measuring, SAFE if options.allow is None else WIDER)
    finally:  # also after Ctrl-C
        _tell(measuring.result, folder)
    baseline = measuring.result.find("rungs", BASELINE)
    if baseline is not None and baseline.error:
        raise RunError(f"the baseline could not be measured, and so no line is recommended: {baseline.error}")


def begin(plan: Plan, suite: str) -> Result:
    """A result of ``plan`` in which nothing is measured yet."""
    return Result(
        command=shlex.join(["python", "-m", "dqnspeed.bench", *sys.argv[1:]]), started=results.now(), suite=suite,
        env=plan.reference.env.id, overrides=plan.overrides, commit=machine.git_commit(),
        machine=machine.describe(machine.pick_device(plan.reference.device)), versions=machine.versions(),
    )  # fmt: skip


def _tell(result: Result, folder: Path) -> None:
    from dqnspeed.bench import show

    show.table(result)
    show.write(result, folder)
    print(folder)


def _new_folder(named: str | None) -> Path:
    folder = Path(named or BENCH)
    try:
        if named is None:
            return new_folder(folder / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
        folder.mkdir(parents=True)
    except OSError as error:
        if not isinstance(error, FileExistsError) or not folder.exists():
            raise ConfigError(f"out={folder}: cannot be made ({why_not_made(folder, error)}).") from error
        if named is None:
            raise ConfigError(f"{BENCH}: is a file, where the folder of results goes; name one, out=FOLDER.") from error
        raise ConfigError(f"out={named}: is there already; name a new folder.") from error
    return folder


def main() -> None:
    """Console entry point."""
    run_app(_main)
