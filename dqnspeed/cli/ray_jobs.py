"""Jobs of a sweep on a Ray cluster: ``hydra/launcher=ray``.

Hydra's own launcher for Ray (hydra-ray-launcher 1.2.1) needs Amazon's SDK and an old cloudpickle. It ends the whole
sweep if one machine is lost, and at Ctrl-C it gives jobs no time to save.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from dqnspeed.actors.ray.cluster import check_address, check_room, connected
from dqnspeed.cli.key_value import typed
from dqnspeed.cli.sweep import sweep
from dqnspeed.config.options import ConfigError, check_installed, option
from dqnspeed.system import machine

log = logging.getLogger(__name__)

ADDRESS = "hydra.launcher.address"
LOOK_S = 0.5  # seconds between two checks for a signal


@dataclass(frozen=True)
class RayOptions:
    """The options of the launcher; see ``conf/hydra/launcher/ray.yaml``."""

    address: str | None = option("Ray cluster: HOST:PORT, auto, or null: a new one on this machine")
    cpus_per_job: float = option("cores of a job", gt=0)
    gpus_per_job: float = option("GPUs of a job", ge=0)
    retries: int = option("number of times that a job may continue elsewhere after its machine is lost", ge=0)


def check_launcher(launcher: DictConfig) -> None:
    """Raise :class:`ConfigError` if ``launcher`` is Ray's, and its options cannot be used."""
    if not is_ray(launcher):
        return
    check_installed("hydra/launcher=ray", "ray", "ray")
    try:
        options = typed(RayOptions, {str(key): value for key, value in launcher.items() if key != "_target_"})
    except ConfigError as error:
        raise ConfigError(f"hydra.launcher.{error}") from error
    gpus = options.gpus_per_job
    if options.address is None and gpus > torch.cuda.device_count():
        raise ConfigError(f"hydra.launcher.gpus_per_job={gpus:g}: this machine has {torch.cuda.device_count()} GPUs.")
    check_address(ADDRESS, options.address)


def is_ray(launcher: DictConfig) -> bool:
    """Whether ``launcher`` is Ray's."""
    return str(launcher.get("_target_")).endswith(".RayLauncher")


def launch(
    options: RayOptions,
    context: HydraContext,
    task: TaskFunction,
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    first: int,
) -> list[JobReturn]:
    """Run all jobs, as many at a time as the cluster has room for; a signal makes each job save and end."""
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    cpus, cores = options.cpus_per_job, machine.cores()
    ray = connected(ADDRESS, options.address, max(cores, cpus))
    try:
        check_room(ray, ADDRESS, options.address, cpus, options.gpus_per_job)
        with open_dict(config):
            config.hydra.sweep.dir = str(Path(config.hydra.sweep.dir).absolute())  # nodes work in other folders
        run = ray.remote(
            num_cpus=cpus, num_gpus=options.gpus_per_job, max_calls=1, max_retries=options.retries,
            scheduling_strategy="SPREAD",
        )(_run)  # fmt: skip
        state = Singleton.get_state()
        started = [
            run.remote(number, list(overrides), context, config, task, state)
            for number, overrides in enumerate(job_overrides, start=first)
        ]
        return _results(ray, started, first)
    finally:
        ray.shutdown()


def _results(ray: Any, started: Sequence[Any], first: int) -> list[JobReturn]:
    found, pending, cancelled = dict[Any, JobReturn](), list(started), False
    while pending:
        if sweep.heard.received is not None and not cancelled:
            cancelled = True
            for one in pending:
                ray.cancel(one, force=False, recursive=False)  # like Ctrl-C, which saves the job
        done, pending = ray.wait(pending, num_returns=1, timeout=LOOK_S)
        for one in done:
            result = JobReturn()
            try:
                result = ray.get(one)
            except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
                result.status, result.return_value = JobStatus.COMPLETED, None  # ended by a signal
            except ray.exceptions.RayError as error:
                result.status, result.return_value = JobStatus.FAILED, error
            found[one] = result
            log.info("job %s ended (%s of %s)", first + started.index(one), len(found), len(started))
    return [found[one] for one in started]


def _run(
    number: int, overrides: list[str], context: HydraContext, config: DictConfig, task: TaskFunction, state: Any
) -> JobReturn:
    """Run a job in a process of Ray."""
    setup_globals()
    Singleton.set_state(state)
    os.environ[machine.CORES] = str(max(1, int(config.hydra.launcher.cpus_per_job)))  # Ray binds no task to cores
    job = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job):
        job.hydra.job.id, job.hydra.job.num = f"{job.hydra.job.name}_{number}", number
        job.hydra.sweep.dir = config.hydra.sweep.dir  # absolute, unlike the composed one
    HydraConfig.instance().set_config(job)
    return run_job(
        task_function=task, config=job, job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
    )  # fmt: skip
