"""``python -m dqnspeed.report [FOLDER...]``: a page, a table, statistics and pictures of runs."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.report import pictures
from dqnspeed.report.contents import Report
from dqnspeed.report.page import render_page
from dqnspeed.report.progress import progress_of
from dqnspeed.report.rungs import baseline_of, rungs_of
from dqnspeed.report.runs import Run, read_run, runs_below
from dqnspeed.report.study import search_figures
from dqnspeed.report.watch import REFRESH_S, serve_page
from dqnspeed.system import atomic
from dqnspeed.tracking import run_folder
from dqnspeed.tracking.results import in_order
from dqnspeed.tracking.run_folder import METRICS, SWEEP, DamagedError

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "report"
INSTALL = "pip install 'dqnspeed[report]' installs it."


@dataclass(frozen=True)
class ReportConfig:
    out: str | None = option("folder to write into, by default the first FOLDER", default=None)
    title: str | None = option("title of the report, by default the game and what is compared", default=None)
    baseline: str | None = option("rung that the others are compared with, by default baseline", default=None)
    group_by: str | None = option("option whose values are compared instead of rungs, such as algo", default=None)
    watch: bool = option("show the page on this machine, and update it until the runs have ended", default=False)


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


@dataclass
class Problems:
    """Sentences on what could not be read or written; each is printed once."""

    sentences: list[str] = field(default_factory=list)
    printed: set[str] = field(default_factory=set)

    def print(self, sentence: str) -> None:
        """Print ``sentence``, which is no problem."""
        if sentence not in self.printed:
            self.printed.add(sentence)
            print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)

    def add(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)
        self.print(sentence)

    @contextlib.contextmanager
    def of_writing(self, path: Path) -> Iterator[None]:
        """Add a sentence if ``path`` cannot be written in the block."""
        try:
            yield
        except OSError as error:
            self.add(f"{path}: cannot be written ({error.strerror}). Name another folder with out=FOLDER.")


def _main() -> None:
    options, arguments = COMMAND_LINE.read(sys.argv[1:])
    folders, problems = [Path(argument) for argument in arguments], Problems()
    if options.watch and not _has_plotly():
        raise ConfigError(f"watch=true: needs plotly. {INSTALL}")
    if not folders:
        newest = run_folder.newest_run("run")
        folders = [run_folder.sweep_above(newest) or newest]
        problems.print(f"reports the newest, {folders[0]}")
    usable = [folder for folder in folders if _is_usable(folder, options.watch, problems)]
    num_lasting = len(problems.sentences)
    report = read_report(options, usable, problems)
    is_watched = options.watch and not report.progress.is_done
    if report.rungs or is_watched:
        out = _make_folder(Path(options.out)) if options.out else usable[0]
        report = _watch(options, usable, out, problems, num_lasting) if is_watched else report
        if report.rungs:
            _write_files(report, out, problems)
    if not report.rungs and not problems.sentences:
        problems.add(f"{usable[0]}: holds no run (no {METRICS}).")
    if problems.sentences:
        sys.exit(1)


def _is_usable(folder: Path, watch: bool, problems: Problems) -> bool:
    """Whether ``folder`` holds runs, or a sweep to be watched whose runs are still to come."""
    with run_folder.looking_into(folder):
        usable = bool(runs_below([folder])) or (watch and (folder / SWEEP).exists())
        if not folder.is_dir():
            problems.add(f"{folder}: there is no such folder.")
        elif not usable:
            problems.add(f"{folder}: holds no run (no {METRICS}).")
    return usable


def _make_folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be made ({run_folder.why_not_made(out, error)}).") from error
    return out


def read_report(options: ReportConfig, folders: Sequence[Path], problems: Problems) -> Report:
    """The report on the runs below ``folders``; without rungs if no run can be read."""
    runs = list[Run]()
    for folder in sorted(runs_below(folders), key=in_order):
        try:
            runs.append(read_run(folder))
        except (DamagedError, ConfigError) as error:
            problems.add(str(error))
        else:
            for damage in runs[-1].damages:
                problems.add(damage)
    progress = progress_of(folders, runs)
    if not runs:
        return Report([], None, options.title, progress, problems.sentences)
    rungs, baseline = rungs_of(runs, options.group_by), None
    try:
        baseline = baseline_of(rungs, options.baseline)
    except ConfigError as error:
        if not options.watch:
            raise
        if progress.is_done:
            problems.add(str(error))
        else:
            problems.print(f"so far: {error}")
    search = list(search_figures(runs, problems.print, problems.add))
    return Report(rungs, baseline, options.title, progress, [*problems.sentences], search)


def _watch(options: ReportConfig, folders: Sequence[Path], out: Path, problems: Problems, num_lasting: int) -> Report:
    """Serve the page and update it until the runs have ended; the first ``num_lasting`` problems are kept."""
    with serve_page(out / PAGE) as address:
        problems.print(f"{address} shows the page; Ctrl-C ends it.")
        while True:
            del problems.sentences[num_lasting:]  # a file that was being written may be complete by now
            report = read_report(options, folders, problems)
            if report.rungs:
                _write(out / PAGE, render_page(report, out), problems)
            if not report.progress.is_done:
                print(f"dqnspeed: {report.progress.sentence()}", file=sys.stderr, flush=True)
            time.sleep(REFRESH_S)  # also after the last page, which browsers must load
            if report.progress.is_done:
                return report


def _write_files(report: Report, out: Path, problems: Problems) -> None:
    """Write all files, and print the table."""
    _write(out / MARKDOWN, report.markdown(_write_pictures(report, out, problems)), problems)
    has_page = _has_plotly() and _write(out / PAGE, render_page(report, out), problems)
    print(report.summary_table.markdown())
    if len(report.runs) > len(report.rungs):
        print(f"\n{report.run_table.markdown()}")
    missing = "" if _has_plotly() else f"; {PAGE} needs plotly. {INSTALL}"
    print("", *report.sentences, f"\n{out / (PAGE if has_page else MARKDOWN)}{missing}", sep="\n", flush=True)


def _write_pictures(report: Report, out: Path, problems: Problems) -> dict[str, str]:
    """Draw every figure if matplotlib is installed; returns links to the files by the names of figures."""
    links, folder = dict[str, str](), out / PICTURES
    if importlib.util.find_spec("matplotlib") is None:
        return links
    with problems.of_writing(folder):
        if folder.is_symlink():
            raise OSError(errno.EINVAL, atomic.NOT_REGULAR)
        folder.mkdir(exist_ok=True)
        for figure in report.figures:
            pictures.write_png(figure, folder / f"{figure.name}.png")
            links[figure.name] = f"{PICTURES}/{figure.name}.png"
    return links


def _write(path: Path, text: str, problems: Problems) -> bool:
    with problems.of_writing(path):
        atomic.write_text(path, text)
        return True
    return False


def _has_plotly() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("plotly", "jinja2"))


def main() -> None:
    """Console entry point. The exit code is 1 if something could not be read or written."""
    run_app(_main)
