"""Progress in the terminal or a notebook: a live line, or plain lines if the output is neither."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import atari_game
from dqnspeed.system import machine
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.run_folder import EVALUATING
from dqnspeed.tracking.time_left import EarlierRuns

PLAIN_EVERY_S = 10.0
NAME_WIDTH, BAR_WIDTH = 24, 8  # of a run's name in progress lines, and of its bar


def opening(run: RunConfig, label: str, device: str, threads: int, folder: Path, resumed: bool = False) -> list[str]:
    """The first lines of a run: its name, goal and limits, where it runs, where its files go; and of a rung in which
    nothing is changed, what it is.

    Args:
        label: the run's name; ``threads``: torch threads of the learner.
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

    return [
        f"mean {number('episode/return_mean_100', '.2f')}",
        f"loss {number('train/loss', '.3g')}",
        f"{number('perf/steps_per_second', ',.0f')} steps/s",
        f"{step:,} steps",
        f"{_games(metrics)} games",
        *([f"eps {metrics['train/epsilon']:.2f}"] if math.isfinite(metrics.get("train/epsilon", math.nan)) else []),
        f"{number('perf/updates_per_second', ',.0f')} updates/s",
        f"{number('perf/samples_per_step', '.1f')} samples/step",
    ]


def _games(metrics: Mapping[str, float]) -> str:
    """Number of counted games, and of all ended games if these differ."""
    ended = metrics.get("episode/count", math.nan)
    counted = metrics.get("episode/counted", ended)
    if math.isnan(ended):
        return "-"
    return f"{ended:.0f}" if counted == ended else f"{counted:.0f} of {ended:.0f}"


def wall_time(metrics: Mapping[str, float], seconds: float) -> float:
    """Seconds of training and evaluations, of which ``seconds`` are training."""
    return seconds + metrics.get(EVALUATING, 0.0)


class Limit:
    """Progress towards the nearer of a run's limits."""

    def __init__(self, run: RunConfig):
        self._steps, minutes = run.stop.max_steps, run.stop.max_minutes
        self._seconds = None if minutes is None else minutes * 60
        self._form = "{} left" if run.stop.reward_bound is None else "limit in {}"  # it may be solved before

    def done(self, step: int, seconds: float) -> float:
        """Share of the limit used up, 0 without one."""
        return max(step / self._steps if self._steps else 0, seconds / self._seconds if self._seconds else 0)

    def left(self, step: int, seconds: float, steps_per_second: float) -> str:
        """Time left to the nearer limit, as text."""
        ways = []
        if self._seconds:
            ways.append(self._seconds - seconds)
        if self._steps and steps_per_second > 0:
            ways.append((self._steps - step) / steps_per_second)
        if not ways:
            return "no limit" if not self._steps else "?"
        minutes, rest = divmod(max(0, int(min(ways))), 60)
        hours, minutes = divmod(minutes, 60)
        return self._form.format(f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}")


class RunProgress(Callback):
    """Base class of the ways to show progress."""

    optional = True

    def __init__(self, run: RunConfig, label: str, earlier: EarlierRuns):
        self._limit, self._name, self._earlier = Limit(run), _short(label), earlier
        if sentence := earlier.sentence():
            print(sentence, flush=True)

    def _state(self, metrics: Mapping[str, float], step: int, seconds: float) -> tuple[float, list[str]]:
        """Share of the run that is done, and the time left and the state in words, most important first.

        The time left comes from earlier runs if there are any, else from the limits, which a solved run does not meet.

        Args:
            seconds: seconds of training and evaluations.
        """
        state = show(metrics, step)
        if usual := self._earlier.left(metrics.get("episode/return_mean_100", math.nan)):
            words, left = usual
            return seconds / max(seconds + left, 1e-9), [words, *state]
        left_to_limit = self._limit.left(step, seconds, metrics.get("perf/steps_per_second", 0))
        return min(1.0, self._limit.done(step, seconds)), [left_to_limit, *state]


class RichProgress(RunProgress):
    """A live bar with the current state of the run, cut to the width of the terminal."""

    def __init__(self, run: RunConfig, label: str, earlier: EarlierRuns):
        super().__init__(run, label, earlier)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[state]}", markup=False),
        )
        self._task = self._progress.add_task(self._name, total=1.0, state="starting")
        self._progress.start()

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        room = self._progress.console.width - len(self._name) - BAR_WIDTH - 2
        done, parts = self._state(metrics, training.agent_steps, wall_time(metrics, training.seconds))
        while len(parts) > 1 and len("  ".join(parts)) > room:
            parts.pop()
        self._progress.update(self._task, completed=done, state="  ".join(parts))

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        self._progress.stop()


class NotebookProgress(RunProgress):
    """A bar with the current state of the run below the cell of a notebook, redrawn at each report."""

    def __init__(self, run: RunConfig, label: str, earlier: EarlierRuns):
        from IPython.display import display

        super().__init__(run, label, earlier)
        self._display = display(self._drawn(0.0, "starting"), raw=True, display_id=True)

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        done, state = self._state(metrics, training.agent_steps, wall_time(metrics, training.seconds))
        self._display.update(self._drawn(done, "  ".join(state)), raw=True)

    def _drawn(self, done: float, state: str) -> dict[str, str]:
        """The bar by its media types; the browser draws it, without the widgets that a notebook may lack."""
        line = f"{self._name}: {state}"
        return {"text/plain": line, "text/html": f'<progress value="{done:.3f}"></progress> {html.escape(line)}'}


class PlainProgress(RunProgress):
    """A line every ten seconds, for logs and pipes."""

    _next = 0.0

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_EVERY_S
        seconds = wall_time(metrics, training.seconds)
        _, state = self._state(metrics, training.agent_steps, seconds)
        print("  ".join([f"{self._name}: {seconds:.0f} s", *state]), flush=True)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _short(label: str) -> str:
    return label if len(label) <= NAME_WIDTH else f"{label[: NAME_WIDTH - 3]}..."


def make_progress(run: RunConfig, label: str, earlier: Callable[[], EarlierRuns]) -> Callback:
    """The progress of ``tracking.progress``; ``auto``: a bar in a terminal or a notebook, else ``plain``.

    Args:
        earlier: function that finds earlier runs of this configuration on this machine.
    """
    kind = run.tracking.progress
    if kind == "auto":
        console = Console()
        kind = "notebook" if console.is_jupyter else "rich" if console.is_terminal else "plain"
    kinds = {"rich": RichProgress, "notebook": NotebookProgress, "plain": PlainProgress}
    return kinds[kind](run, label, earlier()) if kind in kinds else Callback()
