"""``python -m dqnspeed.report FOLDER...``: the table of a sweep's runs, and their learning curves as a picture."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dqnspeed import about

# Overrides that change neither what is learnt nor how fast.
UNTOLD = ("experiment=", "seed=", "tracking", "checkpoint", "stop.", "hydra.")


def runs_below(folders: Sequence[Path]) -> list[Path]:
    """Folders of finished runs at or below ``folders``."""
    return sorted({path.parent for folder in folders for path in folder.rglob("summary.json")})


def load(folder: Path) -> dict[str, Any]:
    """A run's summary, with ``label``: its rung and whatever the command line changed besides."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    given = folder / ".hydra" / "overrides.yaml"
    overrides = [str(line) for line in OmegaConf.load(given)] if given.exists() else []
    changes = [line for line in overrides if not line.startswith(UNTOLD)]
    return {**summary, "label": " ".join([summary["experiment"], *changes])}


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, slowest first; speeds are also given relative to the baseline where it is among them."""
    lines = [
        "| rung | kind | seed | agent steps/s | updates/s | replay ratio | mean return | solved after |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    baseline = next((s["steps_per_second"] for s in summaries if s["label"] == "baseline"), None)
    for summary in sorted(summaries, key=lambda s: s["steps_per_second"]):
        steps = summary["steps_per_second"]
        relative = f" ({steps / baseline:.2f}×)" if baseline else ""
        mean = summary["return_mean_100"]
        cells = [
            f"`{summary['label']}`",
            ", ".join(summary["kind"]) + (" (of the rung)" if summary["label"] != summary["experiment"] else ""),
            str(summary["seed"]),
            f"{steps:.0f}{relative}",
            f"{summary['updates_per_second']:.1f}",
            f"{summary['replay_ratio']:.1f}",
            "-" if mean is None else f"{mean:.1f}",
            f"{summary['time_to_solve_s']:.0f} s" if summary["solved"] else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def curves(folders: Sequence[Path], picture: Path) -> None:
    """Draw mean and single returns of each run against wall clock."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for folder in folders:
        summary = load(folder)
        with (folder / "episodes.csv").open() as file:
            episodes = [(float(e["wall_time_s"]) / 60, float(e["return"])) for e in csv.DictReader(file)]
        reports = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        means = [(r["time"] / 60, r["episode/return_mean_100"]) for r in reports if "episode/return_mean_100" in r]
        if not means:
            continue
        (line,) = axes.plot(*zip(*means, strict=True), label=f"{summary['label']}, seed {summary['seed']}")
        minutes, returns = zip(*episodes, strict=True)
        axes.scatter(minutes, returns, s=4, alpha=0.35, color=line.get_color(), linewidths=0)
    axes.set(xlabel="minutes since the first environment step", ylabel="unclipped return")
    axes.set_title("Mean of the last 100 games (line) and single games (dots)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Console entry point."""
    parser = argparse.ArgumentParser(prog="dqnspeed-report", description="The table of runs, and their curves.")
    parser.add_argument("folders", nargs="+", type=Path, help="run or sweep folders")
    parser.add_argument("--curves", type=Path, metavar="PNG", help="also draw the learning curves (needs matplotlib)")
    parser.add_argument("--version", action="version", version=about())
    arguments = parser.parse_args()
    folders = runs_below(arguments.folders)
    if not folders:
        sys.exit(f"dqnspeed: no finished run (summary.json) in {', '.join(map(str, arguments.folders))}.")
    print(table([load(folder) for folder in folders]))
    if arguments.curves:
        curves(folders, arguments.curves)


if __name__ == "__main__":
    main()
