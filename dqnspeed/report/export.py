"""Runs and their learning curves as tidy CSV files, for pandas and other tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from dqnspeed.report.human_normalized import game_of, human_normalized_score
from dqnspeed.report.rungs import Rung
from dqnspeed.system import atomic

RUNS_CSV, CURVES_CSV = "report_runs.csv", "report_curves.csv"
RUN_COLUMNS = [
    "run", "rung", "recipe", "algo", "game", "env", "seed", "protocol", "steps", "frames", "seconds", "return", "hns",
]  # fmt: skip
CURVE_COLUMNS = ["run", "rung", "game", "seed", "seconds", "steps", "return"]


def write_csv(rungs: Sequence[Rung], folder: Path) -> list[Path]:
    """Write one row a run into :data:`RUNS_CSV`, and one a report of a run into :data:`CURVES_CSV`.

    A value that is not known is an empty cell.

    Returns:
        the paths of the files.

    Raises:
        OSError: a file could not be written.
    """
    runs, curves = list[list[object]](), list[list[object]]()
    for rung in rungs:
        for run in rung.runs:
            name, game = str(run.folder), game_of(run)
            row = [name, rung.name, rung.recipe, run.value("algo"), game, run.env, run.seed, run.protocol]
            row += [run.steps, run.frames, round(run.seconds, 3), run.mean_return, human_normalized_score(run)]
            runs.append(row)
            for (seconds, mean), (steps, _) in zip(run.mean_returns("time"), run.mean_returns("step"), strict=True):
                curves.append([name, rung.name, game, run.seed, seconds, int(steps), mean])
    paths = [folder / RUNS_CSV, folder / CURVES_CSV]
    atomic.write_text(paths[0], _csv(RUN_COLUMNS, runs))
    atomic.write_text(paths[1], _csv(CURVE_COLUMNS, curves))
    return paths


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *rows])
    return text.getvalue()
