"""Records of a run, or of the runs of a sweep, for Python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dqnspeed.config.options import ConfigError
from dqnspeed.tracking.run_folder import (
    EPISODE_COLUMNS,
    METRICS,
    SUMMARY,
    DamagedError,
    Row,
    flat,
    holding,
    holds_run,
    read_config,
    read_episodes,
    read_metrics,
    read_summary,
)

REPORT_COLUMNS = ("step", "time")
Table = Any  # a pandas.DataFrame where pandas is installed, else a list of dicts, one a row


@dataclass(frozen=True, eq=False)  # tables have no single answer to ==
class Results:
    """Records of a run, or of the runs of a sweep, at the time of reading.

    The tables of a sweep hold the rows of all runs; the first column ``run`` is the folder of a run below the sweep's.

    Attributes:
        folder: folder of the run or the sweep.
        summary: for a run a dict, the contents of ``summary.json``: ``solved``, ``stopped_by``, ``time_to_solve_s``
            (seconds), ``agent_steps``, ``steps_per_second``, ``return_mean_100``, ``seed`` and more. Empty while the
            run trains, after a kill, or if the file is damaged. For a sweep a table with one row per run, which has the
            options of the run too, in columns such as ``config.num_envs`` and ``config.optimizer.lr``.
        config: for a run its options as a dict of groups, such as ``config["optimizer"]["lr"]``; for a sweep empty.
        metrics: table with one row per report: ``step`` (agent steps), ``time`` (seconds of training) and metrics such
            as ``episode/return_mean_100``. In pandas a missing metric is NaN.
        episodes: table with one row per finished episode. ``episode`` and ``begun`` number the episodes as they ended
            and as they began. ``return`` is unclipped, ``length`` in agent steps, ``time`` in seconds of training.
            ``env`` is the index of the environment, ``video`` the path of a video or empty.
        runs: for a sweep the results of each run, in the order of their folders; empty for a run.
    """

    folder: Path
    summary: Any = field(repr=False)
    config: Row = field(repr=False)
    metrics: Table = field(repr=False)
    episodes: Table = field(repr=False)
    runs: tuple[Results, ...] = field(repr=False, default=())


def read(folder: Path) -> Results:
    """Read the records of the run in ``folder``, or of all runs below it.

    A :class:`UserWarning` names lines that cannot be read, and a summary that is missing or damaged.

    Raises:
        ConfigError: there is no such folder, or it holds no run.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder.")
    is_run = holds_run(folder) or (folder / SUMMARY).exists()
    below = [folder] if is_run else sorted(holding([folder], METRICS, SUMMARY), key=in_order)
    if not below:
        raise ConfigError(f"{folder}: holds no run (no {METRICS}).")
    runs = list[Results]()
    summaries, all_metrics, all_episodes = list[Row](), list[Row](), list[Row]()
    for path in below:
        summary, metrics, episodes, damages = _rows(path)
        for damage in damages:
            warnings.warn(damage, stacklevel=3)  # at the caller of dqnspeed.read
        config = read_config(path)
        runs.append(Results(path, summary, config, _table(metrics, REPORT_COLUMNS), _table(episodes, EPISODE_COLUMNS)))
        named = {"run": str(path.relative_to(folder))}
        summaries.append({**named, **summary, **{f"config.{key}": value for key, value in flat(config).items()}})
        all_metrics += [{**named, **row} for row in metrics]
        all_episodes += [{**named, **row} for row in episodes]
    if below == [folder]:
        return runs[0]
    return Results(
        folder,
        _table(summaries, ["run"]),
        {},
        _table(all_metrics, ["run", *REPORT_COLUMNS]),
        _table(all_episodes, ["run", *EPISODE_COLUMNS]),
        tuple(runs),
    )


def _rows(folder: Path) -> tuple[Row, list[Row], list[Row], list[str]]:
    """The summary, the reports and the games of a run, and sentences on what could not be read."""
    metrics, lost = read_metrics(folder)
    episodes, also_lost = read_episodes(folder)
    summary: Row = {}
    unread = "" if (folder / SUMMARY).exists() else f"{folder}: is running still or was killed (no {SUMMARY})."
    try:
        summary = {} if unread else read_summary(folder)
    except DamagedError as error:
        unread = str(error)
    if summary.get("stopped_by") == "error" and not holds_run(folder):
        lost = also_lost = ""  # it failed before it reported
    return summary, metrics, episodes, [damage for damage in (unread, lost, also_lost) if damage]


def _table(rows: list[Row], columns: Iterable[str]) -> Table:
    """``rows`` as a table; ``columns`` come first, even if there are no rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(dict.fromkeys([*columns, *(key for row in rows for key in row)])))


def in_order(path: Path) -> list[tuple[int, str]]:
    """A key by which ``2`` comes before ``10``."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", str(path))]
