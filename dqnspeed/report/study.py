"""Figures of searches: the scores of the trials, scores against each option, and the importance of options."""

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
    """The figures of all searches whose jobs are among ``runs``.

    Args:
        note: called with a sentence if a library is not installed.
        complain: called with a sentence if a study cannot be read.
    """
    folders = [folder for folder in dict.fromkeys(run.folder.parent for run in runs) if (folder / STUDY).exists()]
    if folders and importlib.util.find_spec("optuna") is None:
        note("The plots of a search need Optuna. pip install 'dqnspeed[optuna]' installs it.")
        return
    for number, folder in enumerate(folders, 1):
        try:
            found = list(_study_figures(open_study(folder), note))
        except Exception as error:  # the database is damaged, or of another version
            complain(f"{folder / STUDY}: cannot be read ({_short_text(error)}).")
            continue
        for figure in found:
            if len(folders) > 1:
                title = f"{figure.title}, {folder.name}"
                figure = dataclasses.replace(figure, name=f"{figure.name}_{number}", title=title)
            yield figure


def _study_figures(study: optuna.Study, note: Callable[[str], None]) -> Iterator[Figure]:
    """For each objective the scores of the trials, and the importance of each option if Optuna can estimate it."""
    import optuna

    trials = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    for index, direction in enumerate(study.directions if trials else []):
        is_return = direction == optuna.study.StudyDirection.MAXIMIZE
        objective, better = (RETURN, max) if is_return else (TIME, min)
        scores = [float(trial.values[index]) for trial in trials]
        yield _history(trials, scores, objective, list(itertools.accumulate(scores, better)))
        yield from _scores_by_option(trials, scores, objective)
        if len(set(scores)) == 1:
            continue

        def cost(trial: optuna.trial.FrozenTrial, index: int = index, sign: int = -1 if is_return else 1) -> float:
            return sign * float(trial.values[index])

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna warns that low values count as good, which is intended
                importances = optuna.importance.get_param_importances(study, target=cost)
        except Exception as error:  # a library is missing, or no option is in every trial
            note(f"The importance of options for the {UNITS[objective]} is not drawn: {_short_text(error)}")
            continue
        series = Series("importance", "bar", None, list(importances), [float(share) for share in importances.values()])
        yield Figure(
            f"importance_{objective}", f"Importance of each option for the {UNITS[objective]}", "",
            "share of the importance", "Optuna's estimate from the completed trials.", [series], from_zero=True,
        )  # fmt: skip


def _history(
    trials: Sequence[optuna.trial.FrozenTrial], scores: list[float], objective: str, best: list[float]
) -> Figure:
    numbers = [float(trial.number) for trial in trials]
    note = "Completed trials, and the best score so far; the table of runs marks trials that were pruned or failed."
    note += " Unsolved trials count twice their limit." if objective == TIME else ""
    series = [
        Series("best so far", "mean", None, numbers, best, text="best so far"),
        Series("a trial", "points", None, numbers, scores, text=[f"trial {trial.number}" for trial in trials]),
    ]
    return Figure(f"search_{objective}", "Search", "trial", UNITS[objective], note, series)


def _scores_by_option(
    trials: Sequence[optuna.trial.FrozenTrial], scores: Sequence[float], objective: str
) -> Iterator[Figure]:
    """Scores against each option of which trials have several values."""
    unit = UNITS[objective]
    for key in dict.fromkeys(key for trial in trials for key in trial.params):
        tried = [(trial, score) for trial, score in zip(trials, scores, strict=True) if key in trial.params]
        values = [trial.params[key] for trial, _ in tried]
        if len({*map(str, values)}) < 2:
            continue
        are_numbers = all(isinstance(value, (int, float)) for value in values)
        log_x = are_numbers and bool(getattr(tried[0][0].distributions[key], "log", False))
        x = [float(value) for value in values] if are_numbers else [str(value) for value in values]
        text = [f"trial {trial.number}" for trial, _ in tried]
        series = Series("a trial", "points", None, x, [score for _, score in tried], text=text)
        name = f"search_{objective}_by_{re.sub(r'[^a-z0-9]+', '_', key.lower())}"
        yield Figure(name, f"{unit.capitalize()} against {key}", key, unit, "Completed trials.", [series], log_x=log_x)


def _short_text(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
