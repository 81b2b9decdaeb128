"""``python -m dqnspeed.bench.against base=COMMIT``: the parts of a training, in turns with those of a commit.

``make bench-compare`` runs it, for a person before and after a change.
"""

from __future__ import annotations

import dataclasses
import io
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from dqnspeed.bench import compare
from dqnspeed.bench import result as results
from dqnspeed.bench.compare import Change
from dqnspeed.bench.measuring import OF_REFERENCE, Measuring
from dqnspeed.bench.pairs import Pace, check_statistics
from dqnspeed.bench.plan import Made, Piece, Plan
from dqnspeed.bench.progress import Bar, shown
from dqnspeed.bench.result import Disturbances, Measurement, Result
from dqnspeed.bench.show import console_of_any_width
from dqnspeed.bench.subject import Program
from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.system import machine
from dqnspeed.system.disturbances import LOOK_S, Watch

ROOT = Path(__file__).resolve().parents[2]
CHILD = "dqnspeed/bench/child.py"
# Starts the child of the source tree that the argument names, wherever another is installed.
START = "import sys; sys.path.insert(0, sys.argv.pop()); from dqnspeed.bench.child import main; main()"
PACE = Pace(settle_s=0.1, slice_s=0.4, min_pairs=6, max_pairs=12, start_s=15.0)  # two processes for each piece


@dataclass(frozen=True)
class AgainstConfig:
    base: str = option("the commit to compare with", default="HEAD")
    out: str | None = option("a new file for the result, null: it is printed alone", default=None)
    fail_below: float | None = option("exit code 1 if a piece fell below this ratio", gt=0, default=None)
    seed: int = option("seed of everything random", ge=0, lt=2**32, default=0)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.bench.against [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]",
    "Measure the parts of a training as they are in this source tree, in turns with those of a commit.",
    AgainstConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
    is_other=lambda _: True,
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    if options.out is not None and (Path(options.out).exists() or not Path(options.out).absolute().parent.is_dir()):
        raise ConfigError(f"out={options.out}: must be a new file in a folder that is there.")
    check_statistics()
    source = source_of(options.base)
    plan = Plan(overrides, options.seed)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    begun = Result(
        command=shlex.join(["python", "-m", "dqnspeed.bench.against", *sys.argv[1:]]), started=results.now(),
        suite="micro", env=plan.reference.env.id, seed=options.seed, overrides=list(overrides),
        machine=machine.describe(machine.pick_device(plan.reference.device)), versions=machine.versions(),
        commit=machine.git_commit(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="dqnspeed-bench-") as folder:
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            how: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.10.12 and 3.11.4
            archive.extractall(Path(folder, "base"), **how)
        pieces = [of_two_trees(piece, Path(folder, "base"), options.base) for piece, _ in plan.pieces()]
        seconds = 2 * LOOK_S + len(pieces) * PACE.seconds(paired=True)
        print(f"{len(pieces)} pieces against {options.base} take about {shown(seconds)} minutes here", flush=True)
        with Bar(seconds) as bar, Measuring(begun, Path(options.out or Path(folder, results.FILE)), bar) as measuring:
            try:
                _measure(measuring, pieces)
            finally:  # also after Ctrl-C
                changes = changes_in(measuring.result)
                _tell(changes, measuring.result)
    if options.fail_below is not None:
        compare.hold(changes, options.fail_below)


def source_of(base: str) -> bytes:
    """The package in the commit ``base`` of this source tree's repository, as a tar archive.

    Raises:
        ConfigError: there is no repository or no such commit, or it has no bench.
    """
    if not (ROOT / ".git").exists():
        raise ConfigError(f"base={base}: {ROOT} is no git repository; compare results by compare=OLD.json NEW.json.")
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").decode().strip()
    if not commit:
        raise ConfigError(f"base={base}: is no commit of {ROOT}.")
    if not _git("ls-tree", commit, CHILD):
        raise ConfigError(f"base={base}: has no bench yet ({CHILD}).")
    return _git("archive", "--format=tar", commit, "dqnspeed", "conf")


def _git(*arguments: str) -> bytes:
    """What git prints; nothing if it fails."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True).stdout


def of_two_trees(piece: Piece, base: Path, name: str) -> tuple[Piece, Piece]:
    """``piece`` of this source tree, and the same of the tree ``base``, which is called ``name``."""

    def of(tree: Path) -> Made:
        made = piece.make()
        program = Program([sys.executable, "-c", START, str(tree)], made.program.stdin)
        return dataclasses.replace(made, program=program)

    ours, theirs = (partial(of, tree) for tree in (ROOT, base))
    return dataclasses.replace(piece, make=ours), dataclasses.replace(piece, name=name, make=theirs)


def _measure(measuring: Measuring, pieces: Sequence[tuple[Piece, Piece]]) -> None:
    watch = Watch()
    before = watch.before()
    measuring.change(disturbances=Disturbances(before))
    for piece, reference in pieces:
        try:
            piece.make()
        except ConfigError as error:  # with these overrides neither tree can do it
            print(f"dqnspeed: {piece.group}: {piece.name}: is not compared: {error}", file=sys.stderr)
            continue
        measuring.measure(piece, PACE, reference)
    measuring.end_reference()
    measuring.change(disturbances=Disturbances(before, watch.after()), ended=results.now(), complete=True)


def changes_in(result: Result) -> list[Change]:
    """The rows of a result as changes of their reference."""

    def before(row: Measurement) -> Measurement:
        error = row.error if (row.error or "").startswith(OF_REFERENCE) else None
        return dataclasses.replace(row, value=row.reference, error=error)

    return [Change(before(row), row, row.ratio) for row in result.measurements]


def _tell(changes: Sequence[Change], result: Result) -> None:
    console = console_of_any_width()
    for sentence in (*result.disturbances.before, *result.disturbances.after):
        console.print(Text(sentence, "yellow"), soft_wrap=True)
    compare.tell(changes, console)


def main() -> None:
    """Console entry point."""
    run_app(_main)


if __name__ == "__main__":
    main()
