"""``python -m dqnspeed.report [FOLDER...]``: a page, a table, statistics and pictures of runs."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, check_installed, option
from dqnspeed.live.server import PageServer
from dqnspeed.report import pictures
from dqnspeed.report.contents import Report
from dqnspeed.report.export import CURVES_CSV, RUNS_CSV, write_csv
from dqnspeed.report.human_normalized import scores_of
from dqnspeed.report.page import render_page
from dqnspeed.report.progress import progress_of
from dqnspeed.report.rungs import baseline_of, rungs_of
from dqnspeed.report.runs import Run, read_run, runs_below
from dqnspeed.report.study import search_figures
from dqnspeed.system import atomic
from dqnspeed.tracking import run_folder
from dqnspeed.tracking.results import in_order
from dqnspeed.tracking.run_folder import METRICS, SWEEP, DamagedError

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "report"
REFRESH_S = 30  # of watch=true; rare, because drawing a page slows the runs down
INSTALL = "pip install 'dqnspeed[report]' installs it."


@dataclass(frozen=True)
class ReportConfig:
    out: str | None = option("folder to write into, by default the first FOLDER", default=None)
    title: str | None = option("title of the report, by default the game and what is compared", default=None)
    baseline: str | None = option("rung that the others are compared with, by default baseline", default=None)
    group_by: str | None = option("option whose values are compared instead of rungs, such as algo", default=None)
    metric: str = option(
        "results that come first: mean returns, or human-normalised scores of Atari games (hns)",
        choices=["return", "hns"], default="return",
    )  # fmt: skip
    export: str | None = option(f"also write {RUNS_CSV} and {CURVES_CSV}", choices=["csv"], default=None)
    watch: bool = option("update the page until the runs have ended", default=False)


def _is_folder(argument: str) -> bool:
    """Whether an argument is a folder; the folder of a sweep's job may be named ``num_envs=2``."""
    key, equals, _ = argument.partition("=")
    return not equals or not key.isidentifier() or Path(argument).exists()


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.report [FOLDER...] [KEY=VALUE...]",
    f"Report the runs in FOLDER..., by default the newest run or sweep: print a table, and write\n"
    f"{PAGE}, {MARKDOWN} and pictures into the first folder.",
    ReportConfig,
    others="folders of runs and sweeps",
    is_other=_is_folder,
)


def _main() -> None:
    options, arguments = COMMAND_LINE.read(sys.argv[1:])
    if options.watch and not _has_plotly():
        raise ConfigError(f"watch=true: needs plotly. {INSTALL}")
    usable, problems = list[Path](), list[str]()
    for folder in [Path(argument) for argument in arguments] or [_newest()]:
        with run_folder.looking_into(folder):
            if not folder.is_dir():
                problems.append(f"{folder}: there is no such folder.")
            elif not runs_below([folder]) and not (options.watch and (folder / SWEEP).exists()):
                problems.append(f"{folder}: holds no run (no {METRICS}).")
            else:
                usable.append(folder)
    report = read_report(options, usable, problems)
    out = Path(options.out) if options.out else next(iter(usable), Path())
    with contextlib.ExitStack() as resources:
        server: PageServer | None = None
        if options.watch and not report.progress.is_done:
            try:
                check_installed("watch=true", "aiohttp", "live")
                server = resources.enter_context(contextlib.closing(PageServer("")))
            except ConfigError as error:  # the file is updated all the same
                print(f"dqnspeed: {error} Only the file is updated.", file=sys.stderr)
        while options.watch and not report.progress.is_done:
            _show_progress(report, out, server)
            time.sleep(REFRESH_S)
            report = read_report(options, usable, problems)
        if report.rungs:
            _write_files(report, out, options.export)
            if server is not None and server.was_visited(2 * REFRESH_S):
                print(f"dqnspeed: serves the last page for at most {2 * REFRESH_S:g} s", file=sys.stderr, flush=True)
                server.set_page(render_page(report, out))
                server.wait_for_visit(2 * REFRESH_S)
        elif not report.problems:
            report.problems.append(f"{usable[0]}: holds no run (no {METRICS}).")
    for problem in dict.fromkeys(report.problems):
        print(f"dqnspeed: {problem}", file=sys.stderr)
    if report.problems:
        sys.exit(1)


def _newest() -> Path:
    """The newest run, or the sweep that it belongs to."""
    run = run_folder.newest_run("run")
    newest = run_folder.sweep_above(run) or run
    print(f"dqnspeed: reports the newest, {newest}", file=sys.stderr)
    return newest


def read_report(options: ReportConfig, folders: Sequence[Path], problems: Sequence[str] = ()) -> Report:
    """The report on the runs below ``folders``; without rungs if no run can be read.

    Args:
        problems: sentences on other folders, for the report.
    """
    runs, found = list[Run](), [*problems]
    for folder in sorted(runs_below(folders), key=in_order):
        try:
            runs.append(read_run(folder))
            found += runs[-1].damages
        except (DamagedError, ConfigError) as error:
            found.append(str(error))
    progress = progress_of(folders, runs)
    if not runs:
        return Report([], None, options.title, progress, found)
    rungs, baseline = rungs_of(runs, options.group_by), None
    try:
        baseline = baseline_of(rungs, options.baseline)
    except ConfigError as error:
        if not options.watch:
            raise
        found.append(str(error))  # while runs are being watched, the baseline may be to come
    search = search_figures(runs, found)
    scores = None
    if options.metric == "hns":
        try:
            scores = scores_of(rungs)
        except ConfigError as error:
            if not options.watch:
                raise
            found.append(str(error))  # and so may runs of Atari games
    return Report(rungs, baseline, options.title, progress, found, search, scores)


def _show_progress(report: Report, out: Path, server: PageServer | None) -> None:
    """Write the page, which browsers reload, and print the progress of the runs."""
    sentence = report.progress.sentence()
    if report.rungs:
        _make_folder(out)
        page, text = out / PAGE, render_page(report, out, REFRESH_S)
        if server is not None:
            server.set_page(text)
        places = [] if server is None else [server.url]
        try:
            atomic.write_text(page, text)
            places.append(page.absolute().as_uri())
        except OSError as error:  # the next time there may be room
            print(f"dqnspeed: {page}: cannot be written ({error.strerror}).", file=sys.stderr)
        if places:
            sentence += f" {' and '.join(places)} show{'s' * (len(places) == 1)} the page."
        sentence += " Ctrl-C ends it."
    print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be made ({run_folder.why_not_made(out, error)}).") from error


def _write_files(report: Report, out: Path, export: str | None) -> None:
    """Write all files, and print the tables."""
    _make_folder(out)
    page, missing = (out / PAGE, "") if _has_plotly() else (out / MARKDOWN, f"; {PAGE} needs plotly. {INSTALL}")
    written = [page]
    print("\n\n".join(table.markdown() for table in report.first_tables))
    print("", *report.sentences, sep="\n")
    try:
        if _has_plotly():
            atomic.write_text(out / PAGE, render_page(report, out))
        atomic.write_text(out / MARKDOWN, report.markdown(_write_pictures(report, out)))
        if export:
            written += write_csv(report.rungs, out)
        print(f"\n{', '.join(map(str, written))}{missing}", flush=True)
    except OSError as error:
        reason = f"{error.filename2 or error.filename or out}: cannot be written ({error.strerror})"
        report.problems.append(f"{reason}. Name another folder with out=FOLDER.")


def _write_pictures(report: Report, out: Path) -> dict[str, str]:
    """Draw every figure if matplotlib is installed; returns links to the files by the names of figures."""
    folder = out / PICTURES
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    if folder.is_symlink():
        raise OSError(errno.EINVAL, atomic.NOT_REGULAR, str(folder))
    folder.mkdir(exist_ok=True)
    for figure in report.figures:
        pictures.write_png(figure, folder / f"{figure.name}.png")
    return {figure.name: f"{PICTURES}/{figure.name}.png" for figure in report.figures}


def _has_plotly() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("plotly", "jinja2"))


def main() -> None:
    """Console entry point. The exit code is 1 if something could not be read or written."""
    run_app(_main)
