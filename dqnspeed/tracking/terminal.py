"""Progress in the terminal or a notebook: a live line, or plain lines if the output is neither."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import atari_game
from dqnspeed.system import machine
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.run_folder import EVALUATING
from dqnspeed.tracking.time_left import range_of

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
    goal = "no bound" if stop.reward_bound is None else f"a mean return of {stop.reward_bound:g} over {whose}"
    limits = [f"{stop.max_steps:,} agent steps"] if stop.max_steps else []
    limits += [f"{stop.max_minutes:g} minutes"] if stop.max_minutes else []
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
    """Base class of the ways to show progress.

    Args:
        times: seconds that earlier runs took to solve, in ascending order; infinite for a run that met a limit.
    """

    optional = True

    def __init__(self, run: RunConfig, label: str, times: Sequence[float] = ()):
        self._stop, self._name = run.stop, label if len(label) <= NAME_WIDTH else f"{label[: NAME_WIDTH - 3]}..."
        solved = [seconds for seconds in times if math.isfinite(seconds)]
        self._usual = solved if 2 * len(solved) >= len(times) else []
        if solved:
            print(
                f"solved after {range_of(solved)} here ({len(solved)} of {_number(len(times), 'earlier run')})",
                flush=True,
            )

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        seconds = training.seconds + metrics.get(EVALUATING, 0.0)
        done, left = self._limits(training.agent_steps, seconds, metrics.get("perf/steps_per_second", 0))
        self.draw(min(1.0, done), seconds, [left, *show(metrics, training.agent_steps)])

    def draw(self, done: float, seconds: float, state: list[str]) -> None:
        """Show the share of the time used up, the seconds so far, and the state in words, most important first."""
        raise NotImplementedError

    def _limits(self, step: int, seconds: float, steps_per_second: float) -> tuple[float, str]:
        """Share of the time used up, and the time left in words: as in earlier runs, or to the nearer limit."""
        left = [usual - seconds for usual in self._usual if usual > seconds]
        if left:
            return seconds / self._usual[-1], f"usually {range_of(left)} left"
        max_steps, max_minutes, done = self._stop.max_steps, self._stop.max_minutes, 0.0
        if max_minutes:
            done = seconds / (60 * max_minutes)
            left.append(60 * max_minutes - seconds)
        if max_steps:
            done = max(done, step / max_steps)
            left += [(max_steps - step) / steps_per_second] if steps_per_second > 0 else []
        if not left:
            return done, "?" if max_steps else "no limit"
        time_left = timedelta(seconds=max(0, int(min(left))))
        return done, f"{time_left} left" if self._stop.reward_bound is None else f"limit in {time_left}"


class RichProgress(RunProgress):
    """A live bar with the current state of the run, cut to the width of the terminal."""

    def __init__(self, run: RunConfig, label: str, times: Sequence[float] = ()):
        super().__init__(run, label, times)
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

    def __init__(self, run: RunConfig, label: str, times: Sequence[float] = ()):
        from IPython.display import display

        super().__init__(run, label, times)
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


def make_progress(run: RunConfig, label: str, times: Sequence[float]) -> Callback:
    """Make the progress of ``tracking.progress``; ``auto``: a bar in a terminal or a notebook, else ``plain``."""
    kind = run.tracking.progress
    if kind == "auto":
        console = Console()
        kind = "notebook" if console.is_jupyter else "rich" if console.is_terminal else "plain"
    kinds = {"rich": RichProgress, "notebook": NotebookProgress, "plain": PlainProgress}
    return kinds[kind](run, label, times) if kind in kinds else Callback()
