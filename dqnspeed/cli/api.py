"""Composing and training within a process of somebody else's, such as a notebook's, which stays as it was."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import cv2
import hydra
import torch
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from dqnspeed.cli import resume as resuming
from dqnspeed.cli.compose import as_meant, own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.preflight import OF_SWEEPS, check_folder_is_new, check_jobs, check_line, is_set, made_folder
from dqnspeed.cli.train import resumed_request, train_and_print, with_label
from dqnspeed.config.options import ConfigError, path_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import seeding
from dqnspeed.system.startup import startup
from dqnspeed.tracking import Callback
from dqnspeed.tracking.results import Results, read
from dqnspeed.tracking.wandb import ask_again
from dqnspeed.training.request import RunRequest


def compose(overrides: Sequence[str]) -> RunConfig:
    """As :func:`dqnspeed.compose`."""
    with undisturbed(), own_hydra(), as_config_error(overrides):
        [(run, _)] = check_jobs([(_composed(overrides), overrides)])
    return run


def train(
    overrides: Sequence[str] = (), folder: str | Path | None = None, callbacks: Sequence[Callback] = ()
) -> Results:
    """As :func:`dqnspeed.train`."""
    startup.begin()
    # Of multiprocessing, while it imports the main module anew in a process that it has spawned.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError("dqnspeed.train: call it under if __name__ == '__main__', since its processes import this.")
    _check_texts(overrides)
    _check_callbacks(callbacks)
    folder = None if folder is None else path_of(folder)
    ask_again()  # the user may have logged in since
    with undisturbed(), contextlib.ExitStack() as resources:
        with own_hydra(), as_config_error(overrides):
            resumes = resuming.asked_for(overrides)
            request = _resumed(overrides, folder) if resumes else _new(overrides, folder, resources)
        summary = train_and_print(dataclasses.replace(request, callbacks=callbacks))
    if summary.get("signal") not in (None, signal.SIGINT.name):  # also if the run had ended by itself
        signal.raise_signal(signal.Signals[summary["signal"]])  # it was this process' own; now the run is saved
    return read(request.folder)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the threads of torch and OpenCV, and the global random generators."""
    threads, cv2_threads = torch.get_num_threads(), cv2.getNumThreads()
    try:
        with seeding.preserve():
            yield
    finally:
        torch.set_num_threads(threads)
        cv2.setNumThreads(cv2_threads)


def _check_texts(overrides: Any) -> None:
    if isinstance(overrides, str) or not isinstance(overrides, Sequence):  # an iterator would be used up
        raise ConfigError(f"overrides={overrides}: takes a list of them, as in ['env=pong', 'seed=1'].")
    for one in overrides:
        if not isinstance(one, str) or not one.strip():
            raise ConfigError(f"overrides: {one!r} is none; each is a text, as in ['env=pong', 'seed=1'].")


def _check_callbacks(callbacks: Any) -> None:
    """Raise :class:`ConfigError` if ``callbacks`` is no list of callbacks."""
    if not isinstance(callbacks, Sequence):
        raise ConfigError(f"callbacks={callbacks}: takes a list of dqnspeed.Callback.")
    for one in callbacks:
        if not isinstance(one, Callback):
            raise ConfigError(
                f"callbacks: {one!r} is no dqnspeed.Callback. Derive a class from it, and give an object."
            )


def _composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration of ``overrides``, with Hydra's own, which names of folders may refer to."""
    _check_texts(overrides)
    for one in overrides:
        if one.startswith("-"):
            raise ConfigError(f"overrides: {one} is a flag of the command line alone; a sweep is a call a run.")
        if one.startswith(resuming.PREFIX):
            raise ConfigError(f"overrides: {one} is for train(), which goes on with a run.")
    config = hydra.compose("config", overrides=as_meant(overrides), return_hydra_config=True)
    HydraConfig.instance().cfg = cast("HydraConf", config)
    if config.hydra.mode == RunMode.MULTIRUN:
        raise ConfigError(f"sweep={config.hydra.runtime.choices.sweep}: a sweep needs the command line.")
    for line in config.hydra.overrides.hydra:
        if line.lstrip("+~").startswith(OF_SWEEPS):
            raise ConfigError(f"{line}: is for sweeps, which need the command line.")
    check_line(config, sweeps=False)
    return config


def _new(overrides: Sequence[str], folder: str | Path | None, resources: contextlib.ExitStack) -> RunRequest:
    """A new run, checked; its folder is made, as the command line does it, and locked until ``resources`` close."""
    config = _composed(overrides)
    option, named = ("hydra.run.dir", config.hydra.run.dir) if folder is None else ("folder", str(folder))
    if folder is not None and is_set(config, "hydra.run.dir"):
        raise ConfigError(
            f"folder={folder}: does not go with hydra.run.dir={config.hydra.run.dir}; name one of the two."
        )
    is_named = folder is not None or is_set(config, option)
    if is_named:
        check_folder_is_new(option, Path(named))
    task = list(config.hydra.overrides.task)
    [(run, spec)] = check_jobs([(config, task)])
    config = copy.copy(config)  # to Hydra's own part of it values may still refer
    with open_dict(config):
        del config["hydra"]
    made = resources.enter_context(made_folder(option, named, is_named))
    return with_label(RunRequest(run, spec, made, resuming.plain_of(config), overrides=task))


def _resumed(overrides: Sequence[str], folder: str | Path | None) -> RunRequest:
    if folder is not None:
        raise ConfigError(f"folder={folder}: does not go with resume=, which names the folder of its run.")
    return resumed_request(overrides)
