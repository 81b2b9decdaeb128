"""What a report says, whatever it is written as."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dqnspeed.report import tables
from dqnspeed.report.figures import Figure, figures_of
from dqnspeed.report.rungs import Rung, game, shared_words
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import Table, as_text, duration, with_evaluations
from dqnspeed.system.messages import __version__

NOT_KNOWN = "not known"
NAMED = 4  # options in which runs of a rung differ
PACKAGES = "python", "torch", "numpy", "gymnasium", "ale-py"


@dataclass(frozen=True)
class Report:
    """Rungs with all that is told of them.

    Attributes:
        baseline: the rung that changes are measured against, if it is there.
        progress: a sentence on a sweep that is not done, or empty.
        problems: sentences on what could not be read.
        search: figures of the searches that the runs are of.
    """

    rungs: list[Rung]
    baseline: Rung | None
    given_title: str | None
    progress: str
    problems: list[str]
    search: Sequence[Figure] = ()

    @cached_property
    def runs(self) -> list[Run]:
        return [run for rung in self.rungs for run in rung.runs]

    @cached_property
    def title(self) -> str:
        if self.given_title:
            return self.given_title
        games = ", ".join(dict.fromkeys(game(run.env) for run in self.runs))
        rungs = self.rungs[0].name if len(self.rungs) == 1 else f"{len(self.rungs)} rungs"
        return f"{games}: {rungs}, " + (
            f"seed {self.runs[0].seed}" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        )

    @cached_property
    def headlines(self) -> list[str]:
        return tables.headlines(self.rungs, self.baseline)

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before the numbers."""
        counts = Counter(mark.partition(":")[0] for run in self.runs for mark in run.marks)
        said = {
            "failed": "failed: {} of {} runs, for the reasons below.",
            "not finished": "not finished: {} of {} runs, which count as far as they came.",
            "pruned": "pruned: {} of {} runs, which a search ended early as unpromising ones.",
            "began again": "began again: {} of {} runs were killed before their first checkpoint, and their times are "
            "those since.",
            "shared machine": "shared machine: {} of {} runs were slowed down by other work, so their speeds and times "
            "are no measure of it.",
        }
        found = [said[mark].format(count, len(self.runs)) for mark, count in counts.items() if mark in said]
        sentences = [sentence[0].upper() + sentence[1:] for sentence in found]
        for rung in self.rungs:
            if mixed := rung.mixed:
                more = f" and {len(mixed) - NAMED} more" if len(mixed) > NAMED else ""
                sentences.append(f"{rung.name}: its runs differ also in {', '.join(mixed[:NAMED])}{more}.")
        return sentences

    @cached_property
    def shared_words(self) -> str:
        """The overrides that all rungs have, which their names leave out."""
        return " ".join(shared_words([rung.label for rung in self.rungs]))

    @cached_property
    def summary_table(self) -> Table:
        return tables.rung_table(self.rungs, self.baseline)

    @cached_property
    def statistics_table(self) -> Table:
        return tables.statistics_table(self.rungs)

    @cached_property
    def run_table(self) -> Table:
        return tables.run_table(self.runs)

    @cached_property
    def record_table(self) -> Table:
        """When and by which command each run was made."""
        names, rows = {id(run): rung.name for rung in self.rungs for run in rung.runs}, []
        for run in self.runs:
            started, ended = (time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) for at in run.span or (0, 0))
            rows.append([names[id(run)], str(run.seed), outcome(run), started, ended, str(run.folder), run.command])
        columns = ["rung", "seed", "outcome", "started", "last written", "folder", "command"]
        return Table(columns, rows, left=len(columns))

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        """Machine, versions and commit, with the number of runs where they are not all alike."""
        kinds: dict[str, Callable[[Run], str]] = {
            "machine": tell_machine,
            "versions": tell_versions,
            "commit": tell_commit,
        }
        found = []
        for name, tell in kinds.items():
            counts = Counter(tell(run) for run in self.runs)
            found += [
                (name, f"{text} ({n} run{'' if n == 1 else 's'})" if len(counts) > 1 else text)
                for text, n in counts.items()
            ]
        return [*found, ("report", f"dqnspeed {__version__}, {time.strftime('%Y-%m-%d %H:%M')}")]

    @cached_property
    def figures(self) -> list[Figure]:
        return [*figures_of(self.rungs), *self.search]

    def markdown(self, pictures: Sequence[str]) -> str:
        """The report as Markdown.

        Args:
            pictures: files of pictures, as links go from the page.
        """
        drawn = {figure.name: figure for figure in self.figures}
        said = [*filter(None, [self.progress]), *self.headlines, *self.warnings]
        parts = [f"# {as_text(self.title)}", *map(as_text, said), self.summary_table.markdown(is_html=True)]
        parts += [as_text(self.notes), "## Statistics", self.statistics_table.markdown(is_html=True)]
        for path in pictures:
            figure = drawn[path.rpartition("/")[2].rpartition(".")[0]]
            title = as_text(figure.title)
            parts += [f"## {title}", f"![{title}]({path})", as_text(figure.note)]
        parts += ["## Runs", self.run_table.markdown(is_html=True)]
        parts += ["## What was run", self.record_table.markdown(is_html=True)]
        parts += ["\n".join(f"- {name}: {as_text(text)}" for name, text in self.facts)]
        if self.problems:
            problems = "\n".join(f"- {as_text(problem)}" for problem in self.problems)
            parts += ["## What could not be read", problems]
        return "\n\n".join(parts) + "\n"

    @property
    def notes(self) -> str:
        """How the numbers of the summary came about."""
        said = [f"All with {self.shared_words}."] if self.shared_words else []
        if self.baseline:
            said.append(f"Changes are against {self.baseline.name}.")
        if any(rung.book for rung in self.rungs):
            said.append(
                "The book's figures are of an i5-6600K with a GTX 1080 Ti, one seed each, and its changes are against "
                "its own baseline."
            )
        said.append("Steps are those of the agent; speeds leave out the warm-up.")
        if len(self.runs) > len(self.rungs):
            said.append(
                "Of several seeds, speeds are medians, and times to solve Kaplan and Meier's median, in which a run "
                "that was ended unsolved counts as one that takes longer. In brackets are 95 % intervals of a "
                "bootstrap over seeds; fewer than five seeds have none."
            )
        return " ".join(said)


def outcome(run: Run) -> str:
    """What became of a run."""
    least = "at least " if run.summary.get("time_is_lower_bound") else ""
    ended = f"not solved in {duration(run.seconds)}"
    if run.solved:
        ended = f"solved in {least}{duration(run.time_to_solve[0])}{with_evaluations([run])}"
    ended = f"trained for {duration(run.seconds)}" if run.bound is None else ended
    return "; ".join([*([ended] if run.ended_well else []), *run.marks])


def tell_machine(run: Run) -> str:
    """Processor, cores, memory, device."""
    machine = run.summary.get("machine")
    if not isinstance(machine, dict):
        return NOT_KNOWN
    device = machine.get("gpu") or machine.get("device")
    return f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, {device}"


def tell_commit(run: Run) -> str:
    return str(run.summary.get("git_commit") or NOT_KNOWN)


def tell_versions(run: Run) -> str:
    versions = run.summary.get("versions")
    if not isinstance(versions, dict):
        return NOT_KNOWN
    return ", ".join(f"{name} {versions[name]}" for name in ("dqnspeed", *PACKAGES) if name in versions)
