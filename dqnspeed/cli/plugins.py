"""What can be chosen: the options that are built in, and those of installed packages."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from importlib.metadata import entry_points

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from dqnspeed import actors, algorithms, envs, execution, exploration, memory, networks, tracking
from dqnspeed.config.registry import FOLDERS

log = logging.getLogger(__name__)

ENTRY_POINTS = "dqnspeed.plugins"
VARIABLE = "DQNSPEED_PLUGINS"
FAILED: dict[str, str] = {}  # plugins that could not be imported, and why


class PluginFolders(SearchPathPlugin):
    """Lets Hydra find the option files of plugins, after ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in FOLDERS:
            search_path.append("dqnspeed-plugin", f"file://{folder}")


def load() -> None:
    """Import every module that registers options: ours, the entry points of packages, and those that
    ``DQNSPEED_PLUGINS=module,...`` names.

    A plugin that cannot be imported is told in one warning; runs that do not use it go on.
    """
    for package in (actors, algorithms, envs, execution, exploration, memory, networks, tracking):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    named = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    for name in dict.fromkeys([*(point.value for point in entry_points(group=ENTRY_POINTS)), *named]):
        try:
            importlib.import_module(name.partition(":")[0])
        except Exception as error:  # whatever somebody else's module raises
            FAILED[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".rstrip(": .")
            log.warning("plugin %s: could not be imported (%s); its options are missing.", name, FAILED[name])
    if PluginFolders not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(PluginFolders)
