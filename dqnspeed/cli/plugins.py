"""What can be chosen: the options that are built in, and those of installed packages."""

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
    """Lets Hydra find the option files of plugins, after ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in FOLDERS:
            search_path.append("dqnspeed-plugin", f"file://{folder}")


def load() -> None:
    """Import every module that registers options: ours, the entry points of packages, and those that
    ``DQNSPEED_PLUGINS=module,...`` names, which are found in the working folder too.

    A plugin that cannot be imported is named in one sentence; runs that do not use it go on.
    """
    for package in (actors, algorithms, backends, buffers, envs, execution, exploration, networks, tracking):
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):  # needs an extra, and registers nothing
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
            print_note(f"plugin {name}: could not be imported ({kind_and_line(error)}); its options are missing.")
    Plugins.instance().register(PluginFolders)


def installed() -> EntryPoints:
    """The entry points by which installed packages bring options."""
    return entry_points(group=ENTRY_POINTS)


def find_modules_here() -> None:
    """Let modules in the working folder be imported, as with ``python -m``, in child processes too.

    The folder comes last, so that they cannot find another dqnspeed than this process.
    """
    if not getattr(sys.flags, "safe_path", False) and not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))


def print_note(sentence: str) -> None:
    """Say on stderr what is wrong with a plugin; once, and not again in each process that a run starts."""
    if (
        multiprocessing.current_process().name == "MainProcess"
    ):  # a child imports its main module before it has a parent
        print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)
