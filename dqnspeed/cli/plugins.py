"""Import all options: built-in ones, and options of plugins."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
import sys
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from dqnspeed import actors, algorithms, buffers, envs, execution, exploration, networks, tracking
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import FOLDERS
from dqnspeed.envs import backends
from dqnspeed.system.messages import kind_and_line

ENTRY_POINTS = "dqnspeed.plugins"
VARIABLE = "DQNSPEED_PLUGINS"


class PluginFolders(SearchPathPlugin):
    """Let Hydra find the option files of plugins, after those in ``conf/``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in FOLDERS:
            search_path.append("dqnspeed-plugin", f"file://{folder}")


def load() -> None:
    """Import every module that registers options.

    These are the modules of dqnspeed, entry points of packages, and the modules in ``DQNSPEED_PLUGINS=module,...``,
    which may be in the working folder. A sentence names a plugin that cannot be imported; the command continues.
    """
    for package in (actors, algorithms, backends, buffers, envs, execution, exploration, networks, tracking):
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):  # such a module needs an extra, and registers nothing
                importlib.import_module(f"{package.__name__}.{module.name}")
    named = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if named:
        find_modules_here()
    for name in dict.fromkeys([*(point.module for point in installed()), *named]):
        try:
            importlib.import_module(name)
        except ConfigError as error:
            print_note(f"plugin {name}: {error}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever somebody else's module raises
            print_note(f"plugin {name}: could not be imported ({kind_and_line(error)}).")
    Plugins.instance().register(PluginFolders)


def installed() -> EntryPoints:
    """Entry points of installed packages that register options."""
    return entry_points(group=ENTRY_POINTS)


def find_modules_here() -> None:
    """Make modules in the working folder importable, as ``python -m`` does, in child processes too.

    The folder comes last in the search path, so that child processes import the same dqnspeed.

    Raises:
        ConfigError: the folder was deleted.
    """
    try:
        here = str(Path.cwd())
    except OSError as error:
        raise ConfigError("the working folder: does not exist any more. Change to another.") from error
    if not getattr(sys.flags, "safe_path", False) and not {"", here} & set(sys.path):
        sys.path.append(here)


def print_note(sentence: str) -> None:
    """Print a sentence about a plugin on stderr, but not in the child processes of a run."""
    if (
        multiprocessing.current_process().name == "MainProcess"
    ):  # a child imports its main module before it has a parent
        print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)
