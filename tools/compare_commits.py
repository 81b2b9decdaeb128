"""Compare the speed of each part of a training with its speed at a commit.

``python tools/compare_commits.py base=COMMIT`` measures both in turns.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare_results import print_changes

from dqnspeed.bench.measured_process import Program
from dqnspeed.bench.pairs import SamplingPlan, check_statistics
from dqnspeed.bench.plan import START, ComposedWorkload, Piece, Plan
from dqnspeed.bench.session import BenchSession
from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option

ROOT = Path(__file__).resolve().parents[1]
# Starts a measured process with the code of the source tree in its argument, whichever dqnspeed is installed.
START_IN_TREE = f"import sys; tree = sys.argv.pop(); sys.path[:0] = [tree, tree + '/packages/atari-warp']; {START}"
SAMPLING = SamplingPlan(settle_s=0.1, slice_s=0.4, num_pairs=10, start_s=15.0)  # two processes start for each piece


@dataclass(frozen=True)
class Options:
    base: str = option("the commit to compare with", default="HEAD")
    fail_below: float | None = option("exit code 1 if a piece fell below this ratio", gt=0, default=None)


COMMAND_LINE = CommandLine(
    "python tools/compare_commits.py [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]",
    "Compare the speed of each part of a training in this source tree with its speed at a commit.",
    Options,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    check_statistics()
    plan = Plan(overrides)
    pieces = list(plan.parts())
    with tempfile.TemporaryDirectory(prefix="dqnspeed-") as folder:
        unpack(options.base, folder)
        session = BenchSession(plan, "micro", Path(folder), len(pieces) * SAMPLING.seconds(paired=True))
        try:
            with session:
                for piece in pieces:
                    base = dataclasses.replace(piece, name=options.base, compose=composed_in(folder, piece))
                    here = dataclasses.replace(piece, compose=composed_in(str(ROOT), piece), reference=base)
                    session.measure(here, SAMPLING)
        finally:  # also after Ctrl-C
            print(*session.result.disturbances, sep="\n")
            print_changes(session.result.measurements, options.fail_below)


def unpack(base: str, folder: str) -> None:
    """Write the files of the commit ``base`` into ``folder``; raises :class:`ConfigError`."""
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", base]
    archive = subprocess.run(git, capture_output=True)
    if archive.returncode:
        reason = archive.stderr.decode(errors="replace").strip()
        raise ConfigError(f"base={base}: git cannot read it ({reason}). Name a commit of {ROOT}.")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def composed_in(tree: str, piece: Piece) -> Callable[[], ComposedWorkload]:
    """A function that composes ``piece`` with the code of the source tree ``tree``."""

    def compose() -> ComposedWorkload:
        workload = piece.compose()
        program = Program([sys.executable, "-c", START_IN_TREE, tree], workload.program.stdin)
        return dataclasses.replace(workload, program=program)

    return compose


if __name__ == "__main__":
    run_app(_main)
