"""Configurations of runs that another version has started."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import cast

from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import plugins
from dqnspeed.cli.schemas import has_file, writable
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS, class_of


def upgraded(stored: DictConfig, defaults: DictConfig) -> DictConfig:
    """The configuration of a run that was begun earlier, maybe by another version, as this version would have it.

    Args:
        defaults: values of options that are newer than the run.

    Raises:
        ConfigError: it names an option that is not to be had here.
    """
    stored = copy.deepcopy(stored)
    for group, known in GROUPS.items():
        node = stored.get(group)
        if not isinstance(node, DictConfig):
            continue
        name = node.setdefault("name", known.fallback)
        shared = {f.name for kind in known.options.values() for f in fields(kind)}
        label = known.fallback is not None and (has_file(group, name) or all(key in shared for key in node))
        if name not in known.options and not label:
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
            defaults = copy.deepcopy(defaults)
            defaults[group] = writable(option)
            defaults[group].update(kept)
    return cast("DictConfig", OmegaConf.merge(defaults, stored))


def _names(option: type) -> set[str]:
    return {f.name for f in fields(option)}
