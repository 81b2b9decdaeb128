"""``python -m dqnspeed.report [FOLDER...]``: a table of runs, and a picture of their learning curves."""

from __future__ import annotations

import importlib.util
import math
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dqnspeed.cli import compose
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import (
    HYDRA,
    HYDRA_OVERRIDES,
    METRICS,
    SUMMARY,
    SWEEP,
    DamagedError,
    newest_run,
    read_episodes,
    read_metrics,
    read_summary,
)

NUMBER = (int, float, type(None))
# What a row of the table needs of a summary.json.
NEEDED: dict[str, Any] = {
    "experiment": str, "kind": list, "seed": int, "solved": bool, "stopped_by": (str, type(None)),
    "steps_per_second": NUMBER, "updates_per_second": NUMBER, "replay_ratio": NUMBER, "return_mean_100": NUMBER,
    "time_to_solve_s": NUMBER,
}  # fmt: skip
LEGEND_WIDTH, LEGEND_LINES = 80, 6  # characters, and lines that fit into the plot
MEAN = "episode/return_mean_100"
ENDED_WELL = ("reward_bound", "max_steps", "max_minutes")


@dataclass(frozen=True)
class ReportConfig:
    curves: str | None = option("also draw the learning curves, into this file (needs matplotlib)", default=None)


def _is_folder(argument: str) -> bool:
    """Whether an argument is a folder; that of a sweep's job may be named ``num_envs=2``."""
    return not argument.partition("=")[0].isidentifier() or "=" not in argument or Path(argument).exists()


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.report [FOLDER...] [KEY=VALUE...]",
    "The table of the runs in FOLDER..., by default of the newest run or sweep, and their learning curves.",
    ReportConfig,
    others="folders of runs and sweeps",
    is_other=_is_folder,
)


def runs_below(folders: Sequence[Path]) -> list[Path]:
    """Folders of runs at or below ``folders``."""
    return sorted({path.parent for folder in folders for name in (METRICS, SUMMARY) for path in folder.rglob(name)})


def load(folder: Path) -> dict[str, Any]:
    """A run's summary, with ``label`` and ``kind`` computed if an older version did not write them; of a run without
    one, what its last report says.

    Raises:
        DamagedError: ``summary.json`` is damaged, or the configuration of a run without one.
    """
    if not (folder / SUMMARY).exists():
        return _so_far(folder)
    summary = read_summary(folder)
    for key, kind in NEEDED.items():
        if key not in summary or not isinstance(summary[key], kind):
            raise DamagedError(f"{folder / SUMMARY}: is damaged ({key} is {summary.get(key, 'missing')}).")
    if isinstance(summary.get("label"), str):
        return summary
    if not (folder / HYDRA_OVERRIDES).exists():
        return {**summary, "label": summary["experiment"]}
    return {**summary, **_named(summary, *_configuration(folder))}


def _so_far(folder: Path) -> dict[str, Any]:
    run, overrides = _configuration(folder)
    reports, _ = read_metrics(folder)
    last = reports[-1] if reports else {}
    summary = {
        "experiment": run.experiment.name,
        "kind": run.experiment.kind,
        "seed": run.seed,
        "solved": False,
        "stopped_by": "running still, or killed",
        "steps_per_second": last.get("perf/steps_per_second"),
        "updates_per_second": last.get("perf/updates_per_second"),
        "replay_ratio": last.get("perf/replay_ratio"),
        "return_mean_100": last.get(MEAN),
        "time_to_solve_s": None,
    }
    return {**summary, **_named(summary, run, overrides)}


def _named(summary: dict[str, Any], run: RunConfig, overrides: Sequence[str]) -> dict[str, Any]:
    changed = compose.changed(run, overrides)
    return {
        "label": changes.label(summary["experiment"], overrides, changed),
        "kind": changes.kinds(summary["kind"], changed),
    }


def _configuration(folder: Path) -> tuple[RunConfig, list[str]]:
    """The configuration of a run, and the overrides that it was started with."""
    path = folder / HYDRA_OVERRIDES
    try:
        overrides = [str(line) for line in OmegaConf.load(path)] if path.exists() else []
        return compose.from_hydra(resuming.load_run(folder)), overrides
    except Exception as error:  # damaged YAML, or options that no longer exist
        raise DamagedError(f"{folder / HYDRA}: is damaged ({' '.join(str(error).split())}).") from error


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, slowest first; speeds are also given relative to the baseline if there is one."""
    lines = [
        "| run | kind | seed | agent steps/s | updates/s | replay ratio | mean return | solved after "
        "| by the exponential mean |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    baselines = (s["steps_per_second"] for s in summaries if s["label"] == "baseline" and _ended_well(s))
    baseline = next(baselines, None)
    for summary in sorted(summaries, key=lambda s: s["steps_per_second"] or 0):
        relative = f" ({(summary['steps_per_second'] or 0) / baseline:.2f}×)" if baseline else ""
        bound = "≥ " if summary.get("time_is_lower_bound") else ""
        solved = bound + _shown(summary["time_to_solve_s"], ".0f", " s") if summary["solved"] else "no"
        cells = [
            f"`{summary['label']}`",
            ", ".join(map(str, summary["kind"])),
            str(summary["seed"]),
            _shown(summary["steps_per_second"], ".0f", relative),
            _shown(summary["updates_per_second"], ".1f"),
            _shown(summary["replay_ratio"], ".1f"),
            _shown(summary["return_mean_100"], ".1f"),
            solved if _ended_well(summary) else f"**not finished: {summary['stopped_by']}**",
            _shown(summary.get("time_to_solve_avg_s"), ".0f", " s"),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _ended_well(summary: dict[str, Any]) -> bool:
    """Whether the run was ended by its bound or a limit, not by an error or a signal."""
    return summary["stopped_by"] in ENDED_WELL


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:{form}}{unit}"


def curves(runs: Iterable[tuple[Path, dict[str, Any]]], picture: Path) -> list[str]:
    """Draw mean and single returns of each run, a folder and its summary, against wall clock.

    Returns:
        A sentence for each file that is damaged; the rest of it is drawn.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    damages: list[str] = []
    legend_lines = 0
    for folder, summary in runs:
        episodes, lost = read_episodes(folder)
        reports, also_lost = read_metrics(folder)
        damages += filter(None, (lost, also_lost))
        means = [(report["time"] / 60, report[MEAN]) for report in reports if MEAN in report]
        if not means:
            continue
        mark = "" if _ended_well(summary) else f" (not finished: {summary['stopped_by']})"
        name = f"{summary['label']}, seed {summary['seed']}{mark}".replace("$", r"\$")
        name = textwrap.fill(name, LEGEND_WIDTH)
        legend_lines += name.count("\n") + 1
        (line,) = axes.plot(*zip(*means, strict=True), label=name, linestyle=":" if mark else "-")
        if episodes:
            minutes, returns = [game["wall_time_s"] / 60 for game in episodes], [game["return"] for game in episodes]
            axes.scatter(minutes, returns, s=4, alpha=0.35, color=line.get_color(), linewidths=0)
    axes.set(xlabel="minutes since the first environment step", ylabel="unclipped return")
    axes.set_title("Mean of the last games, as many as stop.window (line), and single games (dots)", fontsize=10)
    axes.grid(alpha=0.3)
    if legend_lines > LEGEND_LINES:  # it would hide the curves
        figure.set_size_inches(8, 4.5 + 0.15 * legend_lines)
        figure.legend(loc="outside lower left", frameon=False, fontsize=7)
    elif axes.lines:
        axes.legend(frameon=False, fontsize=8)
    try:
        with atomic.replacing(picture) as partial:
            figure.savefig(partial, dpi=120, format=picture.suffix[1:] or "png")
    except (OSError, ValueError) as error:
        damages.append(f"curves={picture}: cannot be written ({error}).")
    plt.close(figure)
    return damages


def _main() -> None:
    options, others = COMMAND_LINE.read(sys.argv[1:])
    folders = [Path(other) for other in others]
    if not folders:
        newest = newest_run("run")
        folders = [newest.parent if (newest.parent / SWEEP).exists() else newest]
        print(f"dqnspeed: reports the newest, {folders[0]}", file=sys.stderr, flush=True)
    problems = 0

    def report_problem(sentence: str) -> None:
        nonlocal problems
        problems += 1
        print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)

    picture = None if options.curves is None else Path(options.curves)
    if picture and importlib.util.find_spec("matplotlib") is None:
        report_problem(f"curves={options.curves}: needs matplotlib; pip install 'dqnspeed[report]' brings it.")
        picture = None
    runs = []
    for folder in folders:
        if not folder.is_dir():
            report_problem(f"{folder}: there is no such folder.")
        elif not runs_below([folder]):
            report_problem(f"{folder}: holds no run (no {METRICS}).")
    for folder in runs_below(folders):
        try:
            runs.append((folder, load(folder)))
        except (DamagedError, ConfigError) as error:
            report_problem(str(error))
    if runs:
        print(table([summary for _, summary in runs]), flush=True)
    if runs and picture:
        for sentence in curves(runs, picture):
            report_problem(sentence)
    if problems:
        sys.exit(1)


def main() -> None:
    """Console entry point. The exit code is 1 if something could not be read or written."""
    run_app(_main)
