"""Checks of combinations of values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from dqnspeed.config.options import ConfigError, check_values
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import AlgoConfig, RunConfig


def check(run: RunConfig) -> None:
    """Raise :class:`ConfigError` at the first value or combination that cannot work."""
    check_values(run)
    for group in GROUPS:
        getattr(run, group).check(run)
    _check_acting(run)
    _check_wrappers(run)
    _check_learning_rate(run)
    if run.stop.on == "eval" and run.eval.every_steps is None:
        raise ConfigError("stop.on=eval: needs evaluations; set eval.every_steps.")


def unused(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence for each override, GROUP=OPTION or GROUP.KEY=VALUE, of a group that ``algo`` does not use."""
    users: dict[str, list[str]] = {}
    for name, algorithm in GROUPS["algo"].options.items():
        assert issubclass(algorithm, AlgoConfig)
        for group in algorithm.uses:
            users.setdefault(group, []).append(name)
    for override in overrides:
        group = re.split(r"[.=]", override.lstrip("+~"))[0]
        if group in users and group not in run.algo.uses:
            yield f"{override}: does nothing with algo={run.algo.name}; {group} is for algo={', '.join(users[group])}."


def untuned(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence if a game that is not Atari's gets the numbers for Atari and its preset names better ones."""
    own = any(override.startswith(("env.id=", "algo.", "optimizer.")) for override in overrides)
    if run.env.recipe and not own and run.has_replay and run.experiment.name == "baseline":
        yield (
            f"{run.env.id}: the numbers of algo={run.algo.name} are those for Atari games, far too slow for this one; "
            f"{run.env.recipe} learns it."
        )


def _check_acting(run: RunConfig) -> None:
    parallelism, ratio = run.parallelism, run.parallelism.replay_ratio
    if not run.has_replay and ratio not in (None, "free"):
        raise ConfigError(
            f"parallelism.replay_ratio={ratio}: belongs to algorithms with a replay; algo={run.algo.name} has none."
        )
    if parallelism.processes:
        number = isinstance(ratio, (int, float)) and math.isfinite(ratio) and ratio > 0
        if ratio != "free" and not number:
            raise ConfigError(f"parallelism.replay_ratio={ratio}: must be 'free' or a positive number.")
        if run.device == "mps":
            raise ConfigError(f"device=mps: parallelism={parallelism.name} shares weights on cpu or cuda only.")
    else:
        if ratio is not None:
            raise ConfigError(
                f"parallelism.replay_ratio={ratio}: belongs to parallelism=process; with "
                f"parallelism={parallelism.name} the ratio is algo.batch_size / algo.steps_per_update."
            )
        if parallelism.num_actors != 1:
            raise ConfigError(
                f"parallelism.num_actors={parallelism.num_actors}: belongs to parallelism=process; "
                f"use num_envs for more environments with parallelism={parallelism.name}."
            )
    if run.takes_turns and run.num_envs % 2:
        raise ConfigError(
            f"num_envs={run.num_envs}: must be even, since with parallelism={parallelism.name} one half steps while "
            f"algo={run.algo.name} acts for the other."
        )
    if not run.has_replay and run.model.background and run.algo.learning_starts < run.num_lanes:
        raise ConfigError(
            f"algo.learning_starts={run.algo.learning_starts}: model.background=true is measured over these first "
            f"steps; use 2000, say."
        )


def _check_wrappers(run: RunConfig) -> None:
    wrappers = run.wrappers
    if wrappers.backend == "native" and (wrappers.resize is None or wrappers.resizer != "cv2"):
        raise ConfigError(
            "wrappers=native: ALE resizes by itself, so wrappers.resize must be a number and "
            "wrappers.resizer must be cv2."
        )
    if wrappers.backend == "native" and wrappers.interpolation != "area":
        raise ConfigError(f"wrappers.interpolation={wrappers.interpolation}: wrappers=native resizes with area only.")


def _check_learning_rate(run: RunConfig) -> None:
    steps, updates, per_step = run.optimizer.lr_decay_steps, run.optimizer.lr_decay_updates, run.updates_per_step
    if (steps is None) == (updates is None):
        raise ConfigError(
            f"optimizer.lr_decay_steps={_shown(steps)}, optimizer.lr_decay_updates={_shown(updates)}: one of the two "
            f"says how long the learning rate falls, and the other is null."
        )
    if steps is not None and per_step is None:
        raise ConfigError(
            f"optimizer.lr_decay_steps={steps}: parallelism.replay_ratio=free leaves open how many updates these are; "
            f"give optimizer.lr_decay_updates instead, or a number for parallelism.replay_ratio."
        )
    # After the learning rate has reached 0 the run would go on without learning.
    if run.optimizer.lr_final != 0 or per_step is None:
        return
    limit = run.stop.max_steps
    if limit is None or limit * per_step > run.decay_updates:
        falls = f"lr_decay_updates={updates} updates" if steps is None else f"lr_decay_steps={steps} agent steps"
        number = math.ceil(limit * per_step) if limit is not None and steps is None else "more"
        raise ConfigError(
            f"optimizer.lr_final=0: after optimizer.{falls} nothing would be learnt, and "
            f"stop.max_steps={_shown(limit)} {'may bring' if limit is None else 'brings'} {number}; "
            f"raise the former, lower the latter, or end with a learning rate above 0."
        )


def _shown(value: float | None) -> str:
    return "null" if value is None else f"{value}"
