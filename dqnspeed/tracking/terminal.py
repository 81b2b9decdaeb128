"""Progress in the terminal or a notebook: a live line, or plain lines if the output is neither."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import atari_game
from dqnspeed.system import machine
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.run_folder import EVALUATING
from dqnspeed.tracking.time_left import TimeLeft

PLAIN_EVERY_S = 10.0
NAME_WIDTH, BAR_WIDTH = 24, 8  # of a run's name in progress lines, and of its bar


def opening(run: RunConfig, label: str, device: str, threads: int, folder: Path, resumed: bool = False) -> list[str]:
    """The first lines of a run: name, goal, limits, machine and folder; for an unchanged rung also a description.

    Args:
        label: name of the run.
        threads: torch threads of the learner.
    """
    game, stop, actors = atari_game(run.env), run.stop, run.parallelism.num_actors
    name = run.env.id if game is None or game.rom in run.env.id.lower() else f"{run.env.id} ({game.rom})"
    games = "1 environment" if run.num_envs == 1 else f"{run.num_envs} environments"
    where = run.parallelism.name
    if run.parallelism.processes:
        where += f" (1 actor process with {games})" if actors == 1 else f" ({actors} actor processes, {games} each)"
    else:
        where += f", {games}"
    whose = f"{stop.window} training games" if stop.on == "train" else "the games of an evaluation"
    goal = "none" if stop.reward_bound is None else f"a mean return of {stop.reward_bound:g} over {whose}"
    limits = [f"{stop.max_steps:,} agent steps"] if stop.max_steps else []
    limits += [f"{stop.max_minutes:g} minute{'s' * (stop.max_minutes != 1)}"] if stop.max_minutes else []
    return [
        f"{label}{' resumes' if resumed else ''}: {name}, algo={run.algo.name}, backend={run.backend.name}, "
        f"parallelism={where}, seed {run.seed}",
        f"goal: {goal}; limits: {' or '.join(limits) or 'none, Ctrl-C saves and ends it'}",
        f"device {device}, {_number(machine.cores(), 'core')}, {_number(threads, 'torch thread')}; files in {folder}",
        *([run.experiment.about] if label == run.experiment.name and not resumed else []),
    ]


def show(metrics: Mapping[str, float], step: int) -> list[str]:
    """State of a run in words, most important first; without epsilon if the policy has none."""

    def number(name: str, form: str) -> str:
        value = metrics.get(name, math.nan)
        return format(value, form) if math.isfinite(value) else "-"

    counted, ended, epsilon = number("episode/counted", ".0f"), number("episode/count", ".0f"), "train/epsilon"
    return [
        f"mean {number('episode/return_mean_100', '.2f')}",
        f"loss {number('train/loss', '.3g')}",
        f"{number('perf/steps_per_second', ',.0f')} steps/s",
        f"{step:,} steps",
        f"{ended if counted in (ended, '-') else f'{counted} of {ended}'} games",
        *([f"eps {number(epsilon, '.2f')}"] if math.isfinite(metrics.get(epsilon, math.nan)) else []),
        f"{number('perf/updates_per_second', ',.0f')} updates/s",
        f"{number('perf/samples_per_step', '.1f')} samples/step",
    ]


class RunProgress(Callback):
    """Base class of the ways to show progress."""

    optional = True

    def __init__(self, label: str, time_left: TimeLeft):
        self._time_left, self._name = time_left, label if len(label) <= NAME_WIDTH else f"{label[: NAME_WIDTH - 3]}..."
        if time_left.earlier:
            print(time_left.earlier, flush=True)

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        seconds = training.seconds + metrics.get(EVALUATING, 0.0)
        done, left = self._time_left.until(training.agent_steps, seconds, metrics.get("perf/steps_per_second", 0))
        self.draw(min(1.0, done), seconds, [left, *show(metrics, training.agent_steps)])

    def draw(self, done: float, seconds: float, state: list[str]) -> None:
        """Show the share of the time used up, the seconds so far, and the state in words, most important first."""
        raise NotImplementedError


class RichProgress(RunProgress):
    """A live bar with the current state of the run, cut to the width of the terminal."""

    def __init__(self, label: str, time_left: TimeLeft):
        super().__init__(label, time_left)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[state]}", markup=False),
        )
        self._task = self._progress.add_task(self._name, total=1.0, state="starting")
        self._progress.start()

    def draw(self, done: float, seconds: float, state: list[str]) -> None:
        room = self._progress.console.width - len(self._name) - BAR_WIDTH - 2
        while len(state) > 1 and len("  ".join(state)) > room:
            state.pop()
        self._progress.update(self._task, completed=done, state="  ".join(state))

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        self._progress.stop()


class NotebookProgress(RunProgress):
    """A bar with the current state of the run below the cell of a notebook, redrawn at each report."""

    def __init__(self, label: str, time_left: TimeLeft):
        from IPython.display import display

        super().__init__(label, time_left)
        self._display = display({"text/plain": f"{self._name}: starting"}, raw=True, display_id=True)

    def draw(self, done: float, seconds: float, state: list[str]) -> None:
        line = f"{self._name}: {'  '.join(state)}"
        # The browser draws the bar, without widgets, which a notebook may lack.
        bar = f'<progress value="{done:.3f}"></progress> {html.escape(line)}'
        self._display.update({"text/plain": line, "text/html": bar}, raw=True)


class PlainProgress(RunProgress):
    """A line every ten seconds, for logs and pipes."""

    _next = 0.0

    def draw(self, done: float, seconds: float, state: list[str]) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY_S
            print("  ".join([f"{self._name}: {seconds:.0f} s", *state]), flush=True)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_notebook() -> bool:
    """Whether the output is a notebook's."""
    return Console().is_jupyter


def make_progress(run: RunConfig, label: str, time_left: TimeLeft) -> Callback:
    """Make the progress of ``tracking.progress``; ``auto``: a bar in a terminal or a notebook, else ``plain``."""
    kind = run.tracking.progress
    if kind == "auto":
        console = Console()
        kind = "notebook" if console.is_jupyter else "rich" if console.is_terminal else "plain"
    kinds = {"rich": RichProgress, "notebook": NotebookProgress, "plain": PlainProgress}
    return kinds[kind](label, time_left) if kind in kinds else Callback()
