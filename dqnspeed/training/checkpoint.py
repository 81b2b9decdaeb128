"""Checkpoints: when they are written, and which one a run resumes from."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from pathlib import Path

from safetensors import SafetensorError

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import CheckpointConfig
from dqnspeed.system import atomic
from dqnspeed.tracking.files import time_logged
from dqnspeed.tracking.run_folder import CHECKPOINTS, EVALUATING, DamagedError
from dqnspeed.training.state_file import UNREADABLE, State, facts_of, load, save

log = logging.getLogger(__name__)

SUFFIX = ".safetensors"


class Checkpoints:
    """The ``checkpoints/`` folder of a run: ``best``, the last few periodic ones, and ``final`` once it has ended.

    ``best`` holds only the weights, to be played; the others hold all that a run needs to resume. If one cannot be
    written, a warning is logged once and older checkpoints stay whole. Periodic ones are due by wall clock, also while
    the training clock stands still for evaluations.

    Args:
        measure: what ``best`` is the best of, in words; a ``best`` by another is replaced by the first.
    """

    def __init__(self, folder: Path, config: CheckpointConfig, measure: str = ""):
        self._folder, self._config, self._measure = folder, config, measure
        self._best, self._provisional = float("-inf"), True
        self._refused: dict[str, str] = {}  # why the newest of each kind could not be written
        self._take_best()
        self._schedule_next()

    def is_best(self, mean: float, provisional: bool = False) -> bool:
        """Whether ``mean`` return is the best so far, so that ``best`` should be saved.

        Args:
            provisional: whether ``mean`` is of fewer games than ``stop.window``. A provisional mean never replaces a
                ``best`` of a full window; the first mean of a full window always replaces a provisional one.
        """
        better = mean > self._best if provisional == self._provisional else self._provisional
        return self._config.best and better and math.isfinite(mean)

    def save_best(self, state: State, mean: float, provisional: bool = False) -> Path | None:
        """Save ``best``; returns its file, ``None`` if it could not be written."""
        facts = {"mean": mean, "provisional": provisional, "measure": self._measure}
        path = self._save("best", {**state, "best": facts})
        if path:
            self._best, self._provisional = mean, provisional
        return path

    def is_due(self) -> bool:
        """Whether it is time for a periodic checkpoint."""
        return self._config.every_minutes > 0 and time.monotonic() >= self._due

    def save_periodic(self, state: State, step: int) -> Path | None:
        """Save ``step_<step>`` and drop the oldest; delete a ``final`` from before the run was resumed.

        Returns:
            The file, ``None`` if it could not be written.
        """
        path = self._save(f"step_{step:010d}", state)
        if path:
            (self._folder / f"final{SUFFIX}").unlink(missing_ok=True)
            for old in sorted(self._folder.glob(f"step_*{SUFFIX}"))[: -self._config.keep]:
                old.unlink(missing_ok=True)
        self._schedule_next()
        return path

    def save_final(self, state: State) -> Path | None:
        """Save ``final``; returns its file, ``None`` if it could not be written."""
        return self._save("final", state)

    def not_written(self) -> list[str]:
        """Names of checkpoints that are missing at the end, with the reasons."""
        return [f"{CHECKPOINTS}/{name}{SUFFIX} ({why})" for name, why in self._refused.items() if name != "step"]

    def state_dict(self) -> State:
        best = None if self._best == float("-inf") else self._best
        return {"best": best, "provisional": self._provisional, "measure": self._measure}

    def load_state_dict(self, state: State) -> None:
        self._best = float("-inf") if state["best"] is None else state["best"]
        self._provisional = state["provisional"] or state["measure"] != self._measure
        self._take_best()

    def _take_best(self) -> None:
        """Keep the mean of a ``best`` file that was saved after the checkpoint and is better."""
        with contextlib.suppress(*UNREADABLE):
            found = facts_of(self._folder / f"best{SUFFIX}")["best"]
            mean, provisional = float(found["mean"]), bool(found["provisional"])
            if found["measure"] == self._measure and self.is_best(mean, provisional):
                self._best, self._provisional = mean, provisional

    def _schedule_next(self) -> None:
        self._due = time.monotonic() + self._config.every_minutes * 60

    def _save(self, name: str, state: State) -> Path | None:
        kind, path = name.partition("_")[0], self._folder / f"{name}{SUFFIX}"
        try:
            save(path, state)
        except (OSError, SafetensorError) as error:
            if kind not in self._refused and kind != "final":  # named at the end of the run
                log.warning("checkpoint %s could not be saved, training continues: %s", name, error)
            self._refused[kind] = getattr(error, "strerror", None) or str(error)
            return None
        self._refused.pop(kind, None)
        return path


def state_to_resume(folder: Path, config: CheckpointConfig, restart_if_no_checkpoint: bool = False) -> State:
    """The state from which the run in ``folder`` resumes; empty if it was killed before its first checkpoint was due.

    Args:
        restart_if_no_checkpoint: it is empty too if a checkpoint was due, and none was saved.

    Raises:
        ConfigError: there is none, or none that can be read.
    """
    try:
        found = newest(folder / CHECKPOINTS)
    except DamagedError as error:
        raise ConfigError(f"resume={folder}: no checkpoint can be read. {error}") from error
    if found is None:
        lasted_s = sum(time_logged(folder, 0, clock) or 0.0 for clock in ("time", EVALUATING))
        if not restart_if_no_checkpoint and (not config.every_minutes or lasted_s > 60 * (config.every_minutes + 1)):
            raise ConfigError(f"resume={folder}: no checkpoint was saved, so there is nothing to resume from.")
        log.warning("%s was ended before its first checkpoint, so it starts again from its first step.", folder)
        atomic.clear(folder / CHECKPOINTS)  # the first may have been half written
        return {}
    path, state = found
    discard_newer(folder / CHECKPOINTS, path)
    log.info("resuming from %s", path)
    return state


def newest(folder: Path) -> tuple[Path, State] | None:
    """The newest checkpoint of ``checkpoints/`` that can be read; damaged ones are named in warnings.

    Returns:
        Its path and state, or ``None`` if there is none.

    Raises:
        DamagedError: there are some and none can be read.
    """
    damage: list[DamagedError] = []
    for path in candidates(folder):
        try:
            state = load(path)
        except DamagedError as error:
            damage.append(error)
            continue
        for found in damage:
            log.warning("%s The one before it is used.", found)
        return path, state
    if damage:
        raise DamagedError(" ".join(map(str, damage)))
    return None


def newest_config(folder: Path) -> tuple[Path, State] | None:
    """The newest checkpoint of ``checkpoints/`` whose configuration can be read, and that; the rest is not loaded."""
    for path in [*candidates(folder), folder / f"best{SUFFIX}"]:
        with contextlib.suppress(*UNREADABLE):
            return path, facts_of(path)["config"]
    return None


def best_or_newest(folder: Path) -> Path | None:
    """The checkpoint of ``checkpoints/`` that is played by default; ``None`` if there is none."""
    best = folder / f"best{SUFFIX}"
    return best if best.is_file() else next(iter(candidates(folder)), None)


def discard_newer(folder: Path, used: Path) -> None:
    """Rename what is newer than ``used`` to ``*.damaged``, and delete partly written files.

    A run resumed from ``used`` must not find checkpoints of its own future.
    """
    paths = candidates(folder)
    for path in paths[: paths.index(used)]:
        os.replace(path, path.with_suffix(".damaged"))
    atomic.clear(folder)


def candidates(folder: Path) -> list[Path]:
    """Files a run can be resumed from, newest first: a ``final`` is kept until there is a newer one."""
    paths = [*folder.glob(f"step_*{SUFFIX}"), *folder.glob(f"final{SUFFIX}")]
    return sorted(paths, key=_agent_steps, reverse=True)  # a final one before a periodic one of the same step


def _agent_steps(path: Path) -> tuple[float, bool]:
    """Agent steps of a checkpoint, and whether it is ``final``; a file that cannot be read counts as the newest."""
    final = path.stem == "final"
    with contextlib.suppress(*UNREADABLE):
        if not final:
            return float(path.stem.removeprefix("step_")), False
        return float(facts_of(path)["progress"]["agent_steps"]), True
    return math.inf, final


def playable(folder: Path) -> bool:
    """Whether the run in ``folder`` has saved a network, which can be played."""
    return best_or_newest(folder / CHECKPOINTS) is not None
