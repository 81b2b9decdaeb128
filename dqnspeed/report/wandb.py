"""The report as one of W&B's: panels of the same runs there, and the tables, built with ``wandb-workspaces``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from dqnspeed.config.options import ConfigError
from dqnspeed.report.contents import Report
from dqnspeed.report.figures import COLOURS
from dqnspeed.report.rungs import Rung, differing
from dqnspeed.report.summaries import MEAN
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import wandb_ids
from dqnspeed.tracking.wandb import SECONDS, STEP, check_server

FILE = "report.wandb.json"  # what is sent
TITLE = 128  # the most characters that W&B takes
WIDE, HIGH, ACROSS = 12, 8, 24  # of a panel and of the page, in W&B's units
COLUMNS = 8  # the most options that are drawn beside the results
# What is drawn: title, metric and what against.
CURVES = (
    ("Return against wall clock", MEAN, SECONDS),
    ("Return against agent steps", MEAN, STEP),
    ("Evaluations", "eval/return_mean", STEP),
    ("Agent steps a second", "perf/steps_per_second", SECONDS),
    ("Replay ratio", "perf/replay_ratio", SECONDS),
    ("Loss", "train/loss_avg", STEP),
    ("Length of games", "episode/length", STEP),
    ("Exploration", "train/epsilon", STEP),
)
AXES = {SECONDS: "seconds of training", STEP: "agent steps"}
RESULTS = ("time_to_solve_s", "return_mean_100", "steps_per_second")  # of the summary


class NotSentError(Exception):
    """The report could not be sent; the message is one sentence without its full stop."""


def check() -> None:
    """Raise :class:`ConfigError` if the library that builds reports is not installed."""
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise ConfigError("wandb=true: needs wandb-workspaces; pip install 'dqnspeed[wandb]' brings it.")


def send(report: Report, path: Path) -> str:
    """Write the report to ``path``, send it, and return its address.

    Raises:
        NotSentError: no run was tracked by W&B, or it cannot be reached; if only that, ``path`` has been written.
        OSError: ``path`` cannot be written.
    """
    import wandb

    tracked = [run.config.get("tracking") or {} for run in report.runs if wandb_ids(run.folder)]
    projects = list(dict.fromkeys(str(tracking["project"]) for tracking in tracked if "project" in tracking))
    if len(projects) != 1:
        found = f"the runs are in {len(projects)} projects" if projects else "none of the runs was tracked by W&B"
        raise NotSentError(f"{found}, and a report is of the runs of one")
    built = build(report, projects[0])
    _write(built, path)
    try:
        check_server(wandb)
        if not wandb.login(verify=True):
            raise OSError("not logged in")
        api = wandb.Api()
        built.entity = api.settings.get("entity") or api.default_entity
        for runset in (runset for block in built.blocks for runset in getattr(block, "runsets", [])):
            runset.entity, runset.project = built.entity, built.project
        _write(built, path)
        built.save()
    except Exception as error:  # the library raises many, of its own and of its transport
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise NotSentError(
            f"{reason}; wandb login or WANDB_API_KEY logs in, and wandb sync sends runs that were offline. What would "
            f"be sent is {path}"
        ) from error
    return str(built.url)


def build(report: Report, project: str) -> Any:
    """The report, of which nothing was sent."""
    import wandb_workspaces.reports.v2 as wr

    runsets = [runset for rung in report.rungs if (runset := _runset(rung))]
    charts = [
        wr.LinePlot(
            title=title, x=against, y=[metric], title_x=AXES[against],
            layout=wr.Layout(x=number % 2 * WIDE, y=number // 2 * HIGH, w=WIDE, h=HIGH),
        )
        for number, (title, metric, against) in enumerate(CURVES)
    ]  # fmt: skip
    columns = [
        wr.ParallelCoordinatesPlotColumn(wr.Config(key), display_name=key) for key in differing(report.runs)[:COLUMNS]
    ]
    columns += [wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(name)) for name in RESULTS]
    parallel = wr.ParallelCoordinatesPlot(columns=columns, layout=wr.Layout(w=ACROSS, h=HIGH))
    blocks = [wr.P(sentence) for sentence in [*report.headlines, *report.warnings, *report.problems]]
    blocks += [wr.MarkdownBlock(report.summary_table.markdown()), wr.P(report.notes)]
    blocks += [wr.H2("Curves"), wr.PanelGrid(runsets=runsets, panels=charts)]
    blocks += [wr.H2("Options and results"), wr.PanelGrid(runsets=runsets, panels=[parallel])]
    for title, table in (("Statistics", report.statistics_table), ("Runs", report.run_table)):
        blocks += [wr.H2(title), wr.MarkdownBlock(table.markdown())]
    blocks.append(wr.MarkdownBlock("\n".join(f"- {name}: {text}" for name, text in report.facts)))
    return wr.Report(project=project, entity="", title=report.title[:TITLE], blocks=blocks, width="fluid")


def _runset(rung: Rung) -> Any:
    """The runs of a rung, in its colour; ``None`` if W&B has none of them."""
    import wandb_workspaces.reports.v2 as wr
    from wandb_workspaces import expr

    found = [one for run in rung.runs for one in wandb_ids(run.folder)]
    if not found:
        return None
    colour = wr.RunSettings(color=COLOURS[rung.number % len(COLOURS)])
    only = expr.And(expr.Metric("ID").isin(found))
    return wr.Runset(name=rung.name, filters=only, run_settings=dict.fromkeys(found, colour))


def _write(built: Any, path: Path) -> None:
    atomic.write_text(path, built._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n")
