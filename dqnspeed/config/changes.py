"""Changes of a run against its rung: its label, and the kinds of the changes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dqnspeed.config import options
from dqnspeed.config.schema import KINDS, RunConfig

EXACT, EQUIVALENT, TASK, ALGORITHM = KINDS
# Kind of each group, and of keys that differ from their group; None if neither learning nor speed changes.
KIND_OF = {
    "env": TASK,
    "env.reward_bound": None,
    "wrappers": TASK,
    "wrappers.name": None,
    "backend": EQUIVALENT,
    "backend.compile_rom": EXACT,
    "backend.threads": EXACT,
    "algo": ALGORITHM,
    "num_envs": ALGORITHM,
    "model": ALGORITHM,
    "model.name": None,
    "optimizer": ALGORITHM,
    "replay": ALGORITHM,
    "replay.device": EQUIVALENT,
    "exploration": ALGORITHM,
    "parallelism": ALGORITHM,
    "parallelism.transport": EQUIVALENT,
    "parallelism.timeout_s": None,
    "execution": EXACT,
    "execution.name": None,
    "execution.threads": EQUIVALENT,
    "execution.precision": EQUIVALENT,
    "execution.channels_last": EQUIVALENT,
    "execution.compile": EQUIVALENT,
    "execution.graph": EQUIVALENT,
    "execution.numpy_acting": EQUIVALENT,
    "device": EQUIVALENT,
    "init": ALGORITHM,
    **dict.fromkeys(("seed", "tracking", "checkpoint", "live", "experiment", "eval", "stop")),
}


def differences(run: RunConfig, rung: RunConfig) -> set[str]:
    """The keys, such as ``num_envs`` and ``wrappers.stack``, whose values differ between ``run`` and ``rung``."""
    usual = {key: value for key, value, _ in options.leaves(rung)}
    return {key for key, value, _ in options.leaves(run) if key not in usual or value != usual[key]}


def keys_of(overrides: Iterable[str]) -> set[str]:
    """The groups and keys that overrides name."""
    return {_key(override) for override in overrides}


def kinds(rung: Iterable[str], changed: Iterable[str]) -> list[str]:
    """The kinds of change of a rung and of the keys ``changed``; *exact* only if there is no other."""
    found = {*rung, *(kind for key in changed if (kind := _kind_of(key)))}
    return [kind for kind in KINDS if kind in found and (kind != EXACT or len(found) == 1)]


def label(rung: str, overrides: Iterable[str], changed: Iterable[str]) -> str:
    """The name of a run: its rung, and the overrides that change the rung. The last override of a key counts.

    Args:
        overrides: overrides of the command line, as Hydra stores them.
        changed: the changed keys, by :func:`differences`.
    """
    relevant = [key for key in changed if _kind_of(key)]
    last = {_key(override): override for override in overrides}
    named = [text for key, text in last.items() if any(_overlap(key, other) for other in relevant)]
    return " ".join([rung, *map(without_escapes, named)])


def without_escapes(override: str) -> str:
    """``override`` as it was typed, without Hydra's escapes."""
    return re.sub(r"\\(.)", r"\1", override)


def _kind_of(key: str) -> str | None:
    group = key.partition(".")[0]
    return KIND_OF.get(key, KIND_OF.get(group))  # a user's own group and ``sweep`` have no kind


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _overlap(key: str, other: str) -> bool:
    """Whether the keys are the same or one contains the other: ``wrappers`` contains ``wrappers.stack``."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")
