"""The launcher of dqnspeed, where Hydra looks for plugins; must import fast, because Hydra imports it at each start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class RayLauncher(Launcher):
    """``hydra/launcher=ray``: jobs as tasks of Ray; the options are in ``dqnspeed.cli.ray_jobs.RayOptions``."""

    config: DictConfig
    task_function: TaskFunction
    hydra_context: HydraContext

    def __init__(self, **options: Any) -> None:
        self.options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context, self.task_function = config, hydra_context, task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from dqnspeed.cli import key_value, ray_jobs

        options = key_value.typed(ray_jobs.RayOptions, self.options)
        return ray_jobs.launch(
            options, self.hydra_context, self.task_function, self.config, job_overrides, initial_job_idx
        )
