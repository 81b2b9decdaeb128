"""The search that runs are jobs of, as figures: its history, its scores against what was chosen, and by Optuna how much
each option mattered."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dqnspeed.cli.optuna_search import RETURN, TIME, open_study
from dqnspeed.report.figures import Figure, Series
from dqnspeed.report.runs import Run
from dqnspeed.tracking.run_folder import STUDY

if TYPE_CHECKING:
    import optuna

UNITS = {RETURN: "mean return", TIME: "seconds to solve"}


def search_figures(
    runs: Iterable[Run], note: Callable[[str], None], complain: Callable[[str], None]
) -> Iterator[Figure]:
    """The figures of all searches that ``runs`` are jobs of.

    Args:
        note: is called with a sentence if a library is not installed; ``complain``, if a study cannot be read.
    """
    folders = [folder for folder in dict.fromkeys(run.folder.parent for run in runs) if (folder / STUDY).exists()]
    if folders and importlib.util.find_spec("optuna") is None:
        note("the plots of a search need Optuna; pip install 'dqnspeed[optuna]' brings it.")
        return
    for number, folder in enumerate(folders, 1):
        try:
            found = list(_figures(open_study(folder), note))
        except Exception as error:  # a database that is damaged, or of another version
            complain(f"{folder / STUDY}: cannot be read ({' '.join(str(error).split())[:200]}).")
            continue
        for figure in found:
            if len(folders) > 1:
                title = f"{figure.title}, {folder.name}"
                figure = dataclasses.replace(figure, name=f"{figure.name}_{number}", title=title)
            yield figure


def _by_parameter(
    trials: Sequence[optuna.trial.FrozenTrial], values: Sequence[float], objective: str, names: list[str]
) -> Iterator[Figure]:
    """Scores of the trials against each parameter of which they tried several values."""
    for key in dict.fromkeys(key for trial in trials for key in trial.params):
        tried = [place for place, trial in enumerate(trials) if key in trial.params]
        chosen = [trials[place].params[key] for place in tried]
        if len({*map(str, chosen)}) < 2:
            continue
        are_numbers = all(isinstance(one, (int, float)) for one in chosen)
        what, unit = UNITS[objective].capitalize(), UNITS[objective]
        x = [float(one) for one in chosen] if are_numbers else [str(one) for one in chosen]
        text = [names[place] for place in tried]
        series = Series("a trial", "points", None, x, [values[place] for place in tried], text=text)
        log_x = are_numbers and bool(getattr(trials[tried[0]].distributions[key], "log", False))
        name = f"search_{objective}_by_{re.sub(r'[^a-z0-9]+', '_', key.lower())}"
        yield Figure(name, f"{what} against {key}", key, unit, "Trials that came to their end.", [series], log_x=log_x)


def _figures(study: optuna.Study, note: Callable[[str], None]) -> Iterator[Figure]:
    """The history of each objective, and how much each option mattered for it, if Optuna can tell."""
    import optuna

    complete = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    numbers = [float(trial.number) for trial in complete]
    for place, direction in enumerate(study.directions):
        is_return = direction == optuna.study.StudyDirection.MAXIMIZE
        objective, better, sign = (RETURN, max, -1) if is_return else (TIME, min, 1)
        values = [float(trial.values[place]) for trial in complete]

        def cost(trial: optuna.trial.FrozenTrial, place: int = place, sign: int = sign) -> float:
            return sign * float(trial.values[place])

        if values:
            best = list(itertools.accumulate(values, better))
            names = [f"trial {number:.0f}" for number in numbers]
            yield Figure(
                f"search_{objective}", "The search", "trial", UNITS[objective],
                "Trials that came to their end, and the best until then; those that were pruned or failed are marked "
                f"in the table of the runs.{'' if is_return else ' Unsolved ones stand at twice their limit.'}",
                [Series("the best so far", "mean", None, numbers, best, text="the best so far"),
                 Series("a trial", "points", None, numbers, values, text=names)],
            )  # fmt: skip
            yield from _by_parameter(complete, values, objective, names)
        if len(set(values)) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that low targets are taken for good, as they are here
                try:
                    shares = optuna.importance.get_param_importances(study, target=cost)
                except (
                    Exception
                ) as error:  # a library that it needs for this is missing, or no option is in every trial
                    reason = " ".join(str(error).split())[:200]
                    note(f"how much each option matters for the {UNITS[objective]} is not drawn: {reason}")
                    continue
            yield Figure(
                f"importance_{objective}", f"How much each option matters for the {UNITS[objective]}", "",
                "share of the importance", "By Optuna's estimate over the trials that came to their end.",
                [Series("importance", "bar", None, list(shares), [float(share) for share in shares.values()])],
                from_zero=True,
            )  # fmt: skip
