"""Permission to import code that the files of a run name.

A file may name any module that Python finds, also in the working folder. So code that the files of another user name is
imported only if the command line asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dqnspeed.cli import plugins
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.games import rom_of
from dqnspeed.system import signing
from dqnspeed.tracking.run_folder import CONFIG

OPTION = "trust"
ADVICE = f"Add {OPTION}=true if you trust its author."
_CODE = re.compile(r'"[^\W\d][\w.]*:[^"]*"')  # module:Name as a JSON text; Gymnasium imports before it reads the name


def take(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether ``trust=true`` is among the arguments, and the others.

    Raises:
        ConfigError: ``trust`` has another value.
    """
    given = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{OPTION}=")]
    for value in given:
        if value not in ("true", "false"):
            raise ConfigError(f"{OPTION}={value}: must be true or false.")
    return given[-1:] == ["true"], [one for one in arguments if not one.startswith(f"{OPTION}=")]


def code_in(config: Mapping[str, Any]) -> list[str]:
    """The options of a configuration that name unregistered code, as ``KEY=VALUE``.

    These are an environment's module, a module in an environment's arguments, and the address of a cluster, which sends
    code.
    """
    env, parallelism = config.get("env") or {}, config.get("parallelism") or {}
    named = [f"env.id={env['id']}"] if "id" in env and not _is_registered(str(env["id"])) else []
    if _CODE.search(json.dumps(env.get("kwargs"), ensure_ascii=False)):
        named.append(f"env.kwargs={env['kwargs']}")
    if parallelism.get("address") not in (None, "auto"):
        named.append(f"parallelism.address={parallelism['address']}")
    return named


def check_code(config: Mapping[str, Any], folder: Path, trusted: bool, typed: Collection[str] = ()) -> None:
    """Check the code that the configuration of the run in ``folder`` names, before the code is imported.

    Args:
        trusted: whether the command line trusts the files.
        typed: overrides of this command line, which are trusted.

    Raises:
        ConfigError: the configuration names code, and the run was not made here.
    """
    made_here = code_in(signing.read(folder / CONFIG) or {})
    for option in code_in(config):
        if not trusted and option not in (*made_here, *typed):
            raise ConfigError(f"{option}: runs code that {folder} names, which was not made here. {ADVICE}")


def _is_registered(env_id: str) -> bool:
    """Whether an id names no module, or the module of an installed plugin."""
    module = env_id.rpartition(":")[0]
    return not module or rom_of(env_id) is not None or module in {point.module for point in plugins.installed()}
