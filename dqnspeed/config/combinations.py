"""How the values of a configuration must go together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields

from dqnspeed.config.options import ConfigError, check_values, given
from dqnspeed.config.schema import ACTOR_CRITIC, ALGORITHMS, CONCURRENT_MARGIN, ROLLOUT, RunConfig


def check(run: RunConfig) -> None:
    """Raise :class:`ConfigError` at the first value or combination that cannot work."""
    check_values(run)
    _check_algorithm(run)
    _check_combinations(run)


def unused(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence for each override, GROUP=OPTION or GROUP.KEY=VALUE, of a group that ``algo`` does not look at."""
    gradient = tuple(name for name in ALGORITHMS if name != "q_learning")
    users = {
        "replay": ("dqn",),
        "exploration": tuple(name for name in ALGORITHMS if name not in ACTOR_CRITIC),
        "model": gradient,
        "optimizer": gradient,
    }
    for override in overrides:
        group = re.split(r"[.=]", override.lstrip("+~"))[0]
        if run.algo.name not in users.get(group, ALGORITHMS):
            yield f"{override}: does nothing with algo={run.algo.name}; {group} is for algo={', '.join(users[group])}."


def untuned(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence where a game that is not Atari's gets the numbers for Atari, and its preset knows of better ones."""
    own = any(override.startswith(("env.id=", "algo.", "optimizer.")) for override in overrides)
    if run.env.recipe and not own and (run.algo.name, run.experiment.name) == ("dqn", "baseline"):
        yield (
            f"{run.env.id}: the numbers of algo=dqn are those for Atari games, far too slow for this one; "
            f"{run.env.recipe} learns it."
        )


def _check_algorithm(run: RunConfig) -> None:
    algo, parallelism = run.algo, run.parallelism
    for f in fields(algo):
        value, of = getattr(algo, f.name), f.metadata["of"]
        if of and algo.name in of and value is None:
            raise ConfigError(f"algo.{f.name}=null: algo={algo.name} needs a value; it is the {f.metadata['about']}.")
        if of and algo.name not in of and value is not None:
            brought = f" (experiment={run.experiment.name} may bring it)" if run.experiment.name != "baseline" else ""
            raise ConfigError(
                f"algo.{f.name}={value}{brought}: belongs to algo={', '.join(of)} and not to algo={algo.name}."
            )
    if algo.name == "a3c" and parallelism.name != "process":
        raise ConfigError(
            f"parallelism={parallelism.name}: algo=a3c needs parallelism=process; algo=a2c is the same in one process."
        )
    if algo.name in ("a2c", "q_learning") and parallelism.name == "process":
        advice = "algo=a3c is the same with actor processes" if algo.name == "a2c" else "use parallelism=serial"
        raise ConfigError(f"parallelism=process: algo={algo.name} learns in one process; {advice}.")
    if algo.name in ROLLOUT and parallelism.name == "process" and parallelism.transport == "queue":
        raise ConfigError(
            f"parallelism.transport=queue: carries single transitions, and algo={algo.name} learns from whole "
            f"rollouts; use parallelism.transport=shared_memory."
        )
    if algo.name in ROLLOUT and parallelism.num_actors > 1:
        raise ConfigError(
            f"parallelism.num_actors={parallelism.num_actors}: algo={algo.name} takes its rollouts from one actor "
            f"process; use num_envs for more environments."
        )
    if not run.has_replay and run.model.background and algo.learning_starts < run.num_lanes:
        raise ConfigError(
            f"algo.learning_starts={algo.learning_starts}: model.background=true is measured over these first steps; "
            f"use 2000, say."
        )
    if algo.normalize_advantage and algo.batch_size == 1:
        raise ConfigError("algo.batch_size=1: algo.normalize_advantage=true needs at least 2.")
    if algo.name == "q_learning" and run.device != "cpu":
        raise ConfigError(f"device={run.device}: algo=q_learning learns on the CPU; use device=cpu.")
    if algo.name == "q_learning" and (parallelism.name != "serial" or run.num_envs != 1):
        raise ConfigError(
            f"parallelism={parallelism.name}, num_envs={run.num_envs}: algo=q_learning takes one transition at a time; "
            f"use parallelism=serial num_envs=1."
        )
    if not run.has_replay and parallelism.name == "overlap" and run.num_envs % 2:
        raise ConfigError(
            f"num_envs={run.num_envs}: must be even, since with parallelism=overlap one half steps while "
            f"algo={algo.name} acts for the other."
        )
    if algo.name in ROLLOUT and algo.batch_size > (rollout := run.num_lanes * given(algo.rollout_steps)):
        raise ConfigError(
            f"algo.batch_size={algo.batch_size}: must be at most {rollout}, algo.rollout_steps of all environments."
        )
    if algo.name in ACTOR_CRITIC and run.model.dueling:
        raise ConfigError(f"model.dueling=true: belongs to action values; algo={algo.name} has a policy and a value.")


def _check_combinations(run: RunConfig) -> None:
    parallelism, wrappers = run.parallelism, run.wrappers
    ratio = parallelism.replay_ratio
    if not run.has_replay and ratio not in (None, "free"):
        raise ConfigError(f"parallelism.replay_ratio={ratio}: belongs to algo=dqn; algo={run.algo.name} has no replay.")
    if parallelism.name == "process":
        number = isinstance(ratio, (int, float)) and math.isfinite(ratio) and ratio > 0
        if ratio != "free" and not number:
            raise ConfigError(f"parallelism.replay_ratio={ratio}: must be 'free' or a positive number.")
        if run.device == "mps":
            raise ConfigError("device=mps: parallelism=process shares weights on cpu or cuda only.")
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
    if wrappers.backend == "native" and (wrappers.resize is None or wrappers.resizer != "cv2"):
        raise ConfigError(
            "wrappers=native: ALE resizes by itself, so wrappers.resize must be a number and "
            "wrappers.resizer must be cv2."
        )
    if wrappers.backend == "native" and wrappers.interpolation != "area":
        raise ConfigError(f"wrappers.interpolation={wrappers.interpolation}: wrappers=native resizes with area only.")
    _check_learning_rate(run)
    if run.stop.on == "eval" and run.eval.every_steps is None:
        raise ConfigError("stop.on=eval: needs evaluations; set eval.every_steps.")
    _check_sizes(run)
    for layer in run.model.conv:
        if len(layer) != 3 or min(layer) < 1:
            raise ConfigError(f"model.conv={run.model.conv}: each layer is [filters, kernel, stride], all at least 1.")
    if any(not isinstance(units, int) or units < 1 for units in run.model.hidden):
        raise ConfigError(f"model.hidden={run.model.hidden}: every layer needs at least 1 unit.")


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
    # What is left of a run once its learning rate is nothing would learn nothing, without a word.
    if run.optimizer.lr_final != 0 or per_step is None:
        return
    most = run.stop.max_steps
    if most is None or most * per_step > run.decay_updates:
        falls = f"lr_decay_updates={updates} updates" if steps is None else f"lr_decay_steps={steps} agent steps"
        number = math.ceil(most * per_step) if most is not None and steps is None else "more"
        raise ConfigError(
            f"optimizer.lr_final=0: after optimizer.{falls} nothing would be learnt, and stop.max_steps={_shown(most)} "
            f"{'may bring' if most is None else 'brings'} {number}; raise the former, lower the latter, or end with a "
            f"learning rate above 0."
        )


def _shown(value: float | None) -> str:
    return "null" if value is None else f"{value}"


def _check_sizes(run: RunConfig) -> None:
    algo, capacity = run.algo, run.replay.capacity
    if not run.has_replay:
        return
    if algo.batch_size > capacity:
        raise ConfigError(f"algo.batch_size={algo.batch_size}: must be at most replay.capacity={capacity}.")
    if algo.learning_starts > capacity:
        raise ConfigError(f"algo.learning_starts={algo.learning_starts}: must be at most replay.capacity={capacity}.")
    # A lane needs room for a stack and an n-step window, and must hold them before the first update.
    needed = run.num_lanes * (run.wrappers.stack + given(algo.n_step) + 2)
    least = 2 * needed + (run.num_lanes * CONCURRENT_MARGIN if run.shares_replay else 0)
    if capacity < least:
        raise ConfigError(
            f"replay.capacity={capacity}: must be at least {least} for {run.num_lanes} environments, "
            f"{run.wrappers.stack} frames and {algo.n_step} steps."
        )
    if algo.learning_starts < needed:
        raise ConfigError(
            f"algo.learning_starts={algo.learning_starts}: must be at least {needed} for {run.num_lanes} "
            f"environments, {run.wrappers.stack} frames and {algo.n_step} steps."
        )
