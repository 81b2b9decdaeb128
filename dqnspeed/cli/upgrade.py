"""Configurations of runs that another version has started."""

from __future__ import annotations

import copy
from dataclasses import fields
from functools import cache
from typing import cast

import hydra
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import plugins
from dqnspeed.cli.compose import own_hydra
from dqnspeed.cli.schemas import has_file, writable
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS, Group, class_of


def upgraded(stored: DictConfig) -> DictConfig:
    """The configuration of a run that was begun earlier, maybe by another version, as this version would have it;
    numbers that are newer than the run are those of its options' files.

    Raises:
        ConfigError: it names an option that is not to be had here.
    """
    stored, defaults = copy.deepcopy(stored), _defaults(stored)
    for group, known in GROUPS.items():
        node = stored.get(group)
        if not isinstance(node, DictConfig):
            continue
        name = node.setdefault("name", known.fallback)
        shared = {f.name for kind in known.options.values() for f in fields(kind)}
        if name not in known.options and not has_file(group, name) and not _is_label(node, known, shared):
            raise ConfigError(
                f"{group}={name}: the run was begun with this option of a plugin that is not here; install it, or name "
                f"its module in {plugins.VARIABLE}."
            )
        option, usual = class_of(group, name), known.options.get(known.fallback or "")
        if usual and _names(option) - set(node) and _names(usual) <= set(node):
            option, node.name = usual, known.fallback  # the run's own label, which is the name of an option by now
        for key in shared - _names(option):
            node.pop(key, None)  # the number of another option, that of a version where all had all
        default = defaults.get(group)
        if isinstance(default, DictConfig) and OmegaConf.get_type(default) is not option:
            kept = {key: default._get_node(key) for key in map(str, default) if key in _names(option)}
            defaults[group] = writable(option)
            defaults[group].update(kept)
    return cast("DictConfig", OmegaConf.merge(defaults, stored))


def _defaults(stored: DictConfig) -> DictConfig:
    names = {group: OmegaConf.select(stored, f"{group}.name") for group in GROUPS}
    return copy.deepcopy(_composed(tuple(f"{group}={name}" for group, name in names.items() if has_file(group, name))))


@cache
def _composed(options: tuple[str, ...]) -> DictConfig:
    with own_hydra():  # a quarter of a second, and each run is looked at more than once
        return hydra.compose("config", overrides=list(options))


def _is_label(node: DictConfig, known: Group, shared: set[str]) -> bool:
    """Whether an option that is not to be had here may be a file of the user's, which needs none of a plugin's code."""
    if known.fallback is None or not all(key in shared for key in node):
        return False
    own = _names(known.options[known.fallback]) - _names(known.base)
    return not own or bool(own & set(node))


def _names(option: type) -> set[str]:
    return {f.name for f in fields(option)}
