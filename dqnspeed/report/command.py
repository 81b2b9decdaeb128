"""``python -m dqnspeed.report [FOLDER...]``: a page, a table, statistics and pictures of runs."""

from __future__ import annotations

import errno
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.report import pictures
from dqnspeed.report.contents import Report
from dqnspeed.report.page import page
from dqnspeed.report.progress import Progress, progress_of
from dqnspeed.report.rungs import baseline_of, rungs_of
from dqnspeed.report.runs import Run, read_run, runs_below
from dqnspeed.report.study import search_figures
from dqnspeed.report.watch import EVERY_S, served
from dqnspeed.system import atomic
from dqnspeed.tracking.results import in_order
from dqnspeed.tracking.run_folder import (
    METRICS,
    SWEEP,
    DamagedError,
    looking_into,
    newest_run,
    sweep_above,
    why_not_made,
)

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "report"
NEEDS = "pip install 'dqnspeed[report]' brings it."


@dataclass(frozen=True)
class ReportConfig:
    out: str | None = option("the folder to write into, by default the first FOLDER", default=None)
    title: str | None = option("the title, by default the game and what was compared", default=None)
    baseline: str | None = option("the rung that changes are measured against, by default baseline", default=None)
    group_by: str | None = option("the option whose values are compared, such as algo, in place of rungs", default=None)
    watch: bool = option("show the page on this machine, drawn anew until the runs have ended", default=False)


def _is_folder(argument: str) -> bool:
    """Whether an argument is a folder; that of a sweep's job may be named ``num_envs=2``."""
    return not argument.partition("=")[0].isidentifier() or "=" not in argument or Path(argument).exists()


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.report [FOLDER...] [KEY=VALUE...]",
    f"A report of the runs in FOLDER..., by default of the newest run or sweep: a table here, and in the first folder\n"
    f"{PAGE}, {MARKDOWN} and pictures.",
    ReportConfig,
    others="folders of runs and sweeps",
    is_other=_is_folder,
)


@dataclass
class Problems:
    """Sentences on what could not be read or written; each is printed once."""

    said: list[str] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)

    def note(self, sentence: str) -> None:
        """Say what is no problem."""
        if sentence not in self.noted:
            self.noted.add(sentence)
            print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)

    def add(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.append(sentence)
            self.note(sentence)


def _main() -> None:
    options, others = COMMAND_LINE.read(sys.argv[1:])
    folders = [Path(other) for other in others]
    if not folders:
        newest = newest_run("run")
        folders = [sweep_above(newest) or newest]
        print(f"dqnspeed: reports the newest, {folders[0]}", file=sys.stderr, flush=True)
    problems = Problems()
    for folder in folders:
        with looking_into(folder):
            if not folder.is_dir():
                problems.add(f"{folder}: there is no such folder.")
            elif not _holds_runs(folder, options):
                problems.add(f"{folder}: holds no run (no {METRICS}).")
    found = [folder for folder in folders if _holds_runs(folder, options)]
    if options.watch and not _plots():
        raise ConfigError(f"watch=true: needs plotly; {NEEDS}")
    lasting = len(problems.said)
    report, progress = _report(options, found, problems)
    watched = options.watch and not progress.done
    if not (report or watched or problems.said):
        problems.add(f"{found[0]}: holds no run (no {METRICS}).")
    if report or watched:
        out = _made(Path(options.out)) if options.out else found[0]
        if watched:
            report = _watched(options, found, out, problems, lasting) or report
        if report:
            _finish(options, report, out, problems)
    if problems.said:
        sys.exit(1)


def _holds_runs(folder: Path, options: ReportConfig) -> bool:
    """Whether there are runs, or, to be watched, are to come."""
    return bool(folder.is_dir() and (runs_below([folder]) or (options.watch and (folder / SWEEP).exists())))


def _made(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be made ({why_not_made(out, error)}).") from error
    return out


def _report(options: ReportConfig, folders: Sequence[Path], problems: Problems) -> tuple[Report | None, Progress]:
    """What can be told of the runs below ``folders``, and how far they are; ``None`` if none can be read."""
    runs = list[Run]()
    for folder in sorted(runs_below(folders), key=in_order):
        try:
            runs.append(read_run(folder))
        except (DamagedError, ConfigError) as error:
            problems.add(str(error))
            continue
        for damage in runs[-1].damages:
            problems.add(damage)
    progress = progress_of(folders, runs)
    if not runs:
        return None, progress
    try:
        rungs = rungs_of(runs, options.group_by, options.baseline)
    except ConfigError as error:
        if not options.watch:
            raise
        rungs = rungs_of(runs, options.group_by)
        if progress.done:
            problems.add(str(error))
        else:
            problems.note(f"so far: {error}")
    baseline = baseline_of(rungs, options.baseline)
    search = list(search_figures(runs, problems.note, problems.add))
    return Report(rungs, baseline, options.title, progress.sentence(), [*problems.said], search), progress


def _watched(
    options: ReportConfig, folders: Sequence[Path], out: Path, problems: Problems, lasting: int
) -> Report | None:
    """Draw and show the page again and again until the runs have ended; the first ``lasting`` problems stay."""
    with served(out / PAGE) as address:
        print(f"dqnspeed: {address} shows the page; Ctrl-C ends it.", file=sys.stderr, flush=True)
        while True:
            del problems.said[lasting:]  # what was read while it was being written may be whole by now
            report, progress = _report(options, folders, problems)
            if report:
                _write(out / PAGE, page(report, out), problems)
            if progress.done:
                time.sleep(EVERY_S)  # so that browsers have the last page
                return report
            print(f"dqnspeed: {progress.sentence()}", file=sys.stderr, flush=True)
            time.sleep(EVERY_S)


def _finish(options: ReportConfig, report: Report, out: Path, problems: Problems) -> None:
    """Write all files, and print the table."""
    _write(out / MARKDOWN, report.markdown(_pictures(report, out, problems)), problems)
    wrote = _plots() and _write(out / PAGE, page(report, out), problems)
    print(report.summary_table.markdown())
    if len(report.runs) > len(report.rungs):
        print(f"\n{report.run_table.markdown()}")
    print("", *filter(None, [*report.headlines, report.progress, *report.warnings]), sep="\n")
    missing = "" if _plots() else f"; {PAGE} needs plotly; {NEEDS}"
    print(f"\n{out / (PAGE if wrote else MARKDOWN)}{missing}", flush=True)


def _pictures(report: Report, out: Path, problems: Problems) -> list[str]:
    """Draw every figure; returns the files, as links from ``out`` go."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    drawn = list[str]()
    try:
        if (out / PICTURES).is_symlink():
            raise OSError(errno.EINVAL, atomic.NOT_REGULAR)
        (out / PICTURES).mkdir(exist_ok=True)
        for figure in report.figures:
            name = f"{PICTURES}/{figure.name}.png"
            pictures.draw(figure, out / name)
            drawn.append(name)
    except OSError as error:
        problems.add(_not_written(out / PICTURES, error))
    return drawn


def _write(path: Path, text: str, problems: Problems) -> bool:
    try:
        atomic.write_text(path, text)
    except OSError as error:
        problems.add(_not_written(path, error))
        return False
    return True


def _not_written(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written ({error.strerror}); out=FOLDER names another folder."


def _plots() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("plotly", "jinja2"))


def main() -> None:
    """Console entry point. The exit code is 1 if something could not be read or written."""
    run_app(_main)
