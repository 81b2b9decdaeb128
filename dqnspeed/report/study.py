"""Figures of searches: the scores of the trials, scores against each option, and the importance of options."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dqnspeed.cli.optuna_search import RETURN, TIME, open_study
from dqnspeed.report.figures import Figure, Series
from dqnspeed.report.runs import Run
from dqnspeed.tracking.run_folder import STUDY

if TYPE_CHECKING:
    import optuna


def search_figures(runs: Iterable[Run], problems: list[str]) -> list[Figure]:
    """The figures of all searches whose jobs are among ``runs``.

    Args:
        problems: gets a sentence if a study cannot be read.
    """
    figures = list[Figure]()
    folders = [folder for folder in dict.fromkeys(run.folder.parent for run in runs) if (folder / STUDY).exists()]
    for number, folder in enumerate(folders, 1):
        try:
            found = list(_study_figures(open_study(folder)))
        except ModuleNotFoundError:
            problems.append("The plots of a search need Optuna. pip install 'dqnspeed[optuna]' installs it.")
        except Exception as error:  # the database is damaged, or of another version
            problems.append(f"{folder / STUDY}: cannot be read ({' '.join(str(error).split())[:200]}).")
        else:
            suffixes = (f"_{number}", f", {folder.name}") if len(folders) > 1 else ("", "")
            figures += [
                dataclasses.replace(figure, name=figure.name + suffixes[0], title=figure.title + suffixes[1])
                for figure in found
            ]
    return figures


def _study_figures(study: optuna.Study) -> Iterator[Figure]:
    """For each objective the scores of the trials, also by option, and the importance of each option."""
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    trials = study.get_trials(states=[TrialState.COMPLETE])
    numbers, names = [float(trial.number) for trial in trials], [f"trial {trial.number}" for trial in trials]
    for index, direction in enumerate(study.directions if trials else []):
        objective, unit, better, note = RETURN, "mean return", max, "Completed trials, and the best score so far."
        if direction == StudyDirection.MINIMIZE:
            objective, unit, better = TIME, "seconds to solve", min
            note += " Unsolved trials count twice their limit."
        scores = [float(trial.values[index]) for trial in trials]
        best = list(itertools.accumulate(scores, better))
        series = [
            Series("best so far", "mean", None, numbers, best, text="best so far"),
            Series("a trial", "points", None, numbers, scores, text=names),
        ]
        yield Figure(f"search_{objective}", "Search", "trial", unit, note, series)
        for key in dict.fromkeys(key for trial in trials for key in trial.params):
            tried = [number for number, trial in enumerate(trials) if key in trial.params]
            values = [trials[number].params[key] for number in tried]
            if len({*map(str, values)}) < 2:
                continue
            are_numbers = all(isinstance(value, (int, float)) for value in values)
            log_x = are_numbers and bool(getattr(trials[tried[0]].distributions[key], "log", False))
            x = [float(value) for value in values] if are_numbers else [str(value) for value in values]
            by_option = Series("a trial", "points", None, x, [scores[n] for n in tried], text=[names[n] for n in tried])
            name, title = re.sub(r"[^a-z0-9]+", "_", key.lower()), f"{unit.capitalize()} against {key}"
            yield Figure(
                f"search_{objective}_by_{name}", title, key, unit, "Completed trials.", [by_option], log_x=log_x
            )
        if len(set(scores)) > 1:
            yield from _importance(study, index, objective, unit)


def _importance(study: optuna.Study, index: int, objective: str, unit: str) -> Iterator[Figure]:
    """The importance of each option, if Optuna can estimate it."""
    import optuna

    sign = -1 if objective == RETURN else 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns that low values count as good, which is intended
            shares = optuna.importance.get_param_importances(
                study, target=lambda trial: sign * float(trial.values[index])
            )
    except Exception as error:  # a library is missing, or no option is in every trial
        print(f"dqnspeed: the importance of options for the {unit} is not drawn: {error}", file=sys.stderr)
        return
    series = Series("importance", "bar", None, list(shares), [float(share) for share in shares.values()])
    yield Figure(
        f"importance_{objective}", f"Importance of each option for the {unit}", "", "share of the importance",
        "Optuna's estimate from the completed trials.", [series], from_zero=True,
    )  # fmt: skip
