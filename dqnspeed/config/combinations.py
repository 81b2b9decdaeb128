"""Checks of combinations of values."""

from __future__ import annotations

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
    if run.takes_turns and run.num_envs % 2:
        raise ConfigError(
            f"num_envs={run.num_envs}: must be even, since with parallelism={run.parallelism.name} one half steps "
            f"while algo={run.algo.name} acts for the other."
        )
    if not run.has_replay and run.model.background and run.algo.learning_starts < run.total_envs:
        raise ConfigError(
            f"algo.learning_starts={run.algo.learning_starts}: model.background=true is measured over these first "
            f"steps of {run.total_envs} environments; use {max(2000, run.total_envs)}, say."
        )
    _check_graph(run)
    if run.stop.on == "eval" and run.eval.every_steps is None:
        raise ConfigError("stop.on=eval: needs evaluations; set eval.every_steps.")
    if not run.eval.deterministic and not run.algo.has_policy:
        raise ConfigError(
            f"eval.deterministic=false: algo={run.algo.name} learns action values and no policy to draw from; "
            f"eval.epsilon=0.05 has random actions."
        )
    if not run.eval.deterministic and run.eval.epsilon:
        raise ConfigError(f"eval.epsilon={run.eval.epsilon:g}: does not go with eval.deterministic=false; give one.")


def _check_graph(run: RunConfig) -> None:
    if not run.execution.graph:
        return
    if not run.algo.supports_cuda_graph:
        able = ", ".join(
            sorted(name for name, kind in GROUPS["algo"].options.items() if getattr(kind, "supports_cuda_graph", False))
        )
        raise ConfigError(
            f"execution.graph=true: the batches of algo={run.algo.name} are chosen on the host; those of algo={able} "
            f"are drawn on the GPU."
        )
    if run.replay.device == "cpu":
        raise ConfigError("execution.graph=true: draws batches on the GPU; use replay.device=auto, not cpu.")


def unused(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence for each override of a group that the algorithm does not use."""
    users: dict[str, list[str]] = {}
    for name, algorithm in GROUPS["algo"].options.items():
        assert issubclass(algorithm, AlgoConfig)
        for group in algorithm.uses:
            users.setdefault(group, []).append(name)
    for override in overrides:
        group = re.split(r"[.=]", override.lstrip("+~"))[0]
        if group in users and group not in run.algo.uses and not override.startswith("replay.device="):
            yield f"{override}: does nothing with algo={run.algo.name}; {group} is for algo={', '.join(users[group])}."


def untuned(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence for each of Atari's numbers with which a game that is not Atari's may not be learnt."""
    bounds = getattr(run.algo, "value_min", None), getattr(run.algo, "value_max", None)
    of_another_game = (-10, 10) if run.env.id == "CartPole-v1" else (0, 100)  # numbers=cartpole/c51
    if bounds in ((-10, 10), of_another_game) and not run.wrappers.clip_reward:
        low, high = bounds
        yield (
            f"algo={run.algo.name}: returns below {low:g} and above {high:g} are taken for these, and rewards are not "
            f"clipped here; give algo.value_min and algo.value_max what returns can come to."
        )
    own = any(override.startswith(("env.id=", "algo.", "optimizer.")) for override in overrides)
    if run.env.recipe and not own and run.has_replay and run.experiment.name == "baseline":
        yield (
            f"{run.env.id}: the numbers of algo={run.algo.name} are those for Atari games, far too slow for this one; "
            f"{run.env.recipe} learns it."
        )
