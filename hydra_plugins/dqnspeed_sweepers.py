"""The sweepers of dqnspeed, where Hydra looks for plugins; must import fast, because Hydra imports it at each start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class _Sweeper(Sweeper):
    config: DictConfig
    launcher: Launcher

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.loader = config, hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        OmegaConf.save(self.config, Path(self.config.hydra.sweep.dir, "multirun.yaml"))
        self.run()

    def run(self) -> None:
        raise NotImplementedError


class JobSweeper(_Sweeper):
    """``hydra/sweeper=jobs``: every combination of the listed values, without finished jobs.

    Args:
        params: values to sweep over by key, in addition to the command line.
    """

    def __init__(self, params: dict[str, str] | None) -> None:
        pass

    def run(self) -> None:
        from dqnspeed.cli.sweep import sweep

        sweep.launch(self.launcher, sweep.jobs)


class OptunaSweeper(_Sweeper):
    """``hydra/sweeper=optuna``: a search by Optuna; the options are in ``dqnspeed.cli.optuna_search.StudyOptions``."""

    def __init__(self, params: dict[str, str] | None, **options: Any) -> None:
        self.options = options

    def run(self) -> None:
        from dqnspeed.cli import optuna_search

        optuna_search.search(optuna_search.options_of(self.options), self.config, self.loader, self.launcher)
