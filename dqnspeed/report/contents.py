"""The contents of a report, from which both the page and the Markdown are written."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dqnspeed.report import tables
from dqnspeed.report.figures import Figure, figures_of
from dqnspeed.report.human_normalized import HumanNormalizedScores
from dqnspeed.report.progress import Progress
from dqnspeed.report.rungs import Rung, game_name, shared_overrides
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import Table, escaped
from dqnspeed.system.messages import __version__
from dqnspeed.tracking.run_folder import Row

MAX_OPTIONS_LISTED, MAX_GAMES_LISTED = 4, 8
PACKAGES = "dqnspeed", "python", "torch", "numpy", "gymnasium", "ale-py"
# Sentences on the remarks that concern the whole report.
WARNINGS = {
    "failed": "Failed: {} of {} runs. Their remarks give the reasons.",
    "not finished": "Not finished: {} of {} runs that began. The report shows what they have recorded so far.",
    "pruned": "Pruned: {} of {} runs. A search ended them early as unpromising.",
    "began again": "Began again: {} of {} runs, killed before their first checkpoint. Their times start at the last "
    "beginning.",
    "shared machine": "Shared machine: {} of {} runs, slowed down by other programs or a live page. Their speeds and "
    "times are no measure of the machine.",
}


@dataclass(frozen=True)
class Report:
    """Rungs, and everything a report says about them.

    Attributes:
        baseline: the rung that others are compared with.
        given_title: the title, in place of the game and what is compared.
        problems: sentences on what could not be read.
        search_figures: figures of the searches that the runs belong to.
        scores: human-normalised scores, which then come first.
    """

    rungs: list[Rung]
    baseline: Rung | None
    given_title: str | None
    progress: Progress
    problems: list[str]
    search_figures: Sequence[Figure] = ()
    scores: HumanNormalizedScores | None = None

    @cached_property
    def runs(self) -> list[Run]:
        return [run for rung in self.rungs for run in rung.runs]

    @cached_property
    def title(self) -> str:
        games = _games_in_words(run.env for run in self.runs)
        rungs = self.rungs[0].name if len(self.rungs) == 1 else f"{len(self.rungs)} rungs"
        runs = f"seed {self.runs[0].seed}" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return self.given_title or f"{games}: {rungs}, {runs}"

    @cached_property
    def headlines(self) -> list[str]:
        if self.scores and self.scores.recipes:
            return self.scores.headlines
        return tables.headlines(self.rungs, self.baseline)

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences to read before the numbers."""
        counts = Counter(remark.partition(":")[0] for run in self.runs for remark in run.remarks)
        found = [WARNINGS[remark].format(n, len(self.runs)) for remark, n in counts.items() if remark in WARNINGS]
        found += self.scores.remarks if self.scores else []
        found += self._mixed_protocols()
        for rung in self.rungs:
            options = rung.differing_options
            more = f" and {len(options) - MAX_OPTIONS_LISTED} more" if len(options) > MAX_OPTIONS_LISTED else ""
            if options:
                found.append(f"{rung.name}: its runs also differ in {', '.join(options[:MAX_OPTIONS_LISTED])}{more}.")
        return found

    def _mixed_protocols(self) -> Iterator[str]:
        """Sentences on recipes whose runs of one game have different protocols."""
        protocols = dict[tuple[str, str], dict[str, None]]()
        for rung in self.rungs:
            protocols.setdefault((rung.recipe, rung.task[0]), {})[rung.protocol or "unknown"] = None
        games = dict[tuple[str, str], list[str]]()
        for (recipe, env), names in protocols.items():
            if len(names) > 1:
                games.setdefault((recipe, "; ".join(names)), []).append(env)
        for (recipe, mixed), envs in games.items():
            runs = f"runs of {_games_in_words(envs)}"
            yield f"{recipe}: its {runs} have different protocols ({mixed}), a row each, and are never averaged."

    @property
    def sentences(self) -> list[str]:
        """The progress of a sweep that is not done, the headlines and the warnings."""
        return [*filter(None, [self.progress.sentence()]), *self.headlines, *self.warnings]

    @cached_property
    def summary_table(self) -> Table:
        return tables.rung_table(self.rungs, self.baseline)

    @property
    def first_tables(self) -> list[Table]:
        """The tables of human-normalised scores, or else of rungs and of several runs."""
        if self.scores and self.scores.recipes:
            return [self.scores.game_table, self.scores.recipe_table]
        return [self.summary_table, self.run_table] if len(self.runs) > len(self.rungs) else [self.summary_table]

    @cached_property
    def statistics_table(self) -> Table:
        return tables.statistics_table(self.rungs, self.baseline)

    @cached_property
    def run_table(self) -> Table:
        return tables.run_table(self.runs)

    @cached_property
    def record_table(self) -> Table:
        """Time and command of each run."""
        rows = []
        for rung in self.rungs:
            for run in rung.runs:
                rows.append([rung.name, str(run.seed), *map(_local_time, run.span), str(run.folder), run.command])
        columns = ["rung", "seed", "started", "last written", "folder", "command"]
        return Table(columns, rows, num_text_columns=len(columns))

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        """Machine, versions and commit, with the number of runs of each if they differ."""
        found = []
        for name, describe in {"machine": _machine, "versions": _versions, "commit": _commit}.items():
            counts = Counter(describe(run.summary) or "not known" for run in self.runs)
            for text, n in counts.items():
                found.append((name, f"{text} ({n} run{'s' if n > 1 else ''})" if len(counts) > 1 else text))
        for protocol, n in Counter(run.protocol for run in self.runs if run.protocol).items():
            found.append(("protocol", f"{protocol} ({n} run{'s' if n > 1 else ''})"))
        return [*found, ("report", f"dqnspeed {__version__}, {_local_time(time.time())}")]

    @cached_property
    def figures(self) -> list[Figure]:
        first = self.scores.figures if self.scores else []
        return [*first, *figures_of(self.rungs), *self.search_figures]

    def markdown(self, pictures: Mapping[str, str]) -> str:
        """The report as Markdown.

        Args:
            pictures: links to pictures by the names of figures.
        """
        parts = [f"# {escaped(self.title)}", *map(escaped, self.sentences)]
        if self.scores and self.scores.recipes:
            parts += ["## Human-normalised scores", self.scores.game_table.markdown(True)]
            parts += [self.scores.recipe_table.markdown(True), self.scores.note, "## Summary"]
        parts += [self.summary_table.markdown(True)]
        parts += [escaped(self.notes), "## Statistics", self.statistics_table.markdown(True)]
        for figure in self.figures:
            if figure.name in pictures:
                title = escaped(figure.title)
                parts += [f"## {title}", f"![{title}]({pictures[figure.name]})", escaped(figure.note)]
        parts += ["## Runs", self.run_table.markdown(True)]
        parts += ["## Commands and machines", self.record_table.markdown(True)]
        parts += ["\n".join(f"- {name}: {escaped(text)}" for name, text in self.facts)]
        if self.problems:
            parts += ["## What could not be read", "\n".join(f"- {escaped(problem)}" for problem in self.problems)]
        return "\n\n".join(parts) + "\n"

    @property
    def notes(self) -> str:
        """How the numbers of the summary were computed."""
        shared = " ".join(shared_overrides([run.label for run in self.runs]))
        notes = [f"All runs have {shared}."] if shared else []
        if self.baseline and self.baseline.ended_well:
            notes.append(f"Changes are relative to {self.baseline.name}.")
        if any(rung.book for rung in self.rungs):
            notes.append(
                "The book's figures were measured on an i5-6600K with a GTX 1080 Ti, with one seed each. The book's "
                "changes are relative to its own baseline."
            )
        notes.append("Steps are agent steps. Speeds leave out the warm-up.")
        if len(self.runs) > len(self.rungs):
            notes.append(
                "With several seeds, speeds are medians. Times to solve are Kaplan-Meier medians, in which a run that "
                "ended unsolved takes longer than it was trained. Brackets hold 95 % intervals of a bootstrap over "
                "seeds; fewer than five seeds have none."
            )
        return " ".join(notes)


def _games_in_words(envs: Iterable[str]) -> str:
    names = dict.fromkeys(map(game_name, envs))
    return ", ".join(names) if len(names) <= MAX_GAMES_LISTED else f"{len(names)} games"


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _machine(summary: Row) -> str:
    machine = summary["machine"]
    device = machine.get("gpu") or machine.get("device")
    facts = [machine.get("cpu"), f"{machine.get('cores')} cores", f"{machine.get('memory_gib')} GiB", device]
    return ", ".join(map(str, facts)) if machine else ""


def _versions(summary: Row) -> str:
    return ", ".join(f"{name} {summary['versions'][name]}" for name in PACKAGES if name in summary["versions"])


def _commit(summary: Row) -> str:
    return str(summary.get("git_commit") or "")
