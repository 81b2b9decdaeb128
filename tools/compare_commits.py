"""``python tools/compare_commits.py base=COMMIT``: the speed of each part of a training, in turns with a commit."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare_results import tell

from dqnspeed.bench import result as results
from dqnspeed.bench.command import begin
from dqnspeed.bench.measured_process import Program
from dqnspeed.bench.measuring import Measuring
from dqnspeed.bench.pairs import Pace, check_statistics
from dqnspeed.bench.plan import Made, Piece, Plan
from dqnspeed.bench.progress import Bar
from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option

ROOT = Path(__file__).resolve().parents[1]
# Starts the child of the source tree that the argument names, wherever another is installed.
START = """import sys
tree = sys.argv.pop()
sys.path[:0] = [tree, tree + "/packages/atari-warp"]
from dqnspeed.bench.child import main
main()"""
PACE = Pace(settle_s=0.1, slice_s=0.4, min_pairs=6, max_pairs=12, start_s=15.0)  # two processes for each piece


@dataclass(frozen=True)
class Options:
    base: str = option("the commit to compare with", default="HEAD")
    fail_below: float | None = option("exit code 1 if a piece fell below this ratio", gt=0, default=None)


COMMAND_LINE = CommandLine(
    "python tools/compare_commits.py [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]",
    "Measure the parts of a training in this source tree, in turns with the parts of a commit.",
    Options,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
    is_other=lambda _: True,
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    check_statistics()
    plan = Plan(overrides)
    pieces = [piece for piece, _ in plan.pieces()]
    with tempfile.TemporaryDirectory(prefix="dqnspeed-") as folder:
        unpack(options.base, folder)
        bar = Bar(len(pieces) * PACE.seconds(paired=True))
        measuring = Measuring(begin(plan, "micro"), Path(folder, results.FILE), bar)
        try:
            with bar, measuring:
                for piece in pieces:
                    base = dataclasses.replace(piece, name=options.base, make=made_in(folder, piece))
                    measuring.measure(dataclasses.replace(piece, make=made_in(str(ROOT), piece)), PACE, base)
        finally:  # also after Ctrl-C
            print(*measuring.result.disturbances, sep="\n")
            tell(measuring.result.measurements, options.fail_below)


def unpack(base: str, folder: str) -> None:
    """Write the files of the commit ``base`` into ``folder``; raises :class:`ConfigError`."""
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", base]
    found = subprocess.run(git, capture_output=True)
    if found.returncode:
        said = found.stderr.decode(errors="replace").strip()
        raise ConfigError(f"base={base}: git cannot read it ({said}). Name a commit of {ROOT}.")
    subprocess.run(["tar", "-x", "-C", folder], input=found.stdout, check=True)


def made_in(tree: str, piece: Piece) -> Callable[[], Made]:
    """A function that composes ``piece`` with the code of the source tree ``tree``."""

    def make() -> Made:
        made = piece.make()
        return dataclasses.replace(made, program=Program([sys.executable, "-c", START, tree], made.program.stdin))

    return make


if __name__ == "__main__":
    run_app(_main)
