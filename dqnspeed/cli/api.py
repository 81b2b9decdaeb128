"""Compose and train inside another program, such as a notebook, whose state is restored at the end."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import torch
from omegaconf import open_dict

from dqnspeed.cli import resume as resuming
from dqnspeed.cli.compose import own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.preflight import check_folder_is_new, check_jobs, compose_line, is_set, output_folder
from dqnspeed.cli.sweep_record import Job, quoted
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
    """Implementation of :func:`dqnspeed.compose`."""
    _check_texts(overrides)
    with undisturbed(), own_hydra(), as_config_error(overrides):
        config = compose_line(overrides)
        [(_, run, _)] = check_jobs([(Job("", list(config.hydra.overrides.task)), config)])
    return run


def train(
    overrides: Sequence[str] = (),
    folder: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    live: bool = False,
) -> Results:
    """Implementation of :func:`dqnspeed.train`."""
    startup.begin()
    # multiprocessing sets this attribute while a spawned process imports the main module.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError("dqnspeed.train: call it under if __name__ == '__main__', since its processes import this.")
    _check_texts(overrides)
    _check_callbacks(callbacks)
    overrides = [*overrides, *(["live=true"] if live else [])]
    folder = None if folder is None else path_of(folder)
    ask_again()  # the user may have logged in since
    with undisturbed(), contextlib.ExitStack() as resources:
        with own_hydra(), as_config_error(overrides):
            resumes = resuming.asked_for(overrides)
            if resumes and folder is not None:
                raise ConfigError(f"folder={folder}: does not go with resume=, which names the folder of its run.")
            request = resumed_request(overrides) if resumes else _new(overrides, folder, resources)
        summary = train_and_print(dataclasses.replace(request, callbacks=callbacks))
    if summary.get("signal") not in (None, signal.SIGINT.name):
        signal.raise_signal(signal.Signals[summary["signal"]])  # the program has its own handler
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
    """Raise :class:`ConfigError` if ``overrides`` is no list of texts."""
    is_list = isinstance(overrides, Sequence) and not isinstance(overrides, str)  # an iterator would be used up
    if not is_list or not all(isinstance(one, str) and one.strip() for one in overrides):
        raise ConfigError(f"overrides={overrides}: takes a list of texts, as in ['env=pong', 'seed=1'].")


def _check_callbacks(callbacks: Any) -> None:
    """Raise :class:`ConfigError` if ``callbacks`` is no list of callbacks."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(one, Callback) for one in callbacks):
        raise ConfigError(f"callbacks={callbacks}: takes a list of objects of dqnspeed.Callback.")


def _new(overrides: Sequence[str], folder: str | Path | None, resources: contextlib.ExitStack) -> RunRequest:
    """A new, checked run; its folder is made, as the command line does it, and locked until ``resources`` close."""
    config = compose_line([*overrides, *([] if folder is None else [f"hydra.run.dir={quoted(str(folder))}"])])
    if is_set(config, "hydra.run.dir"):
        check_folder_is_new("hydra.run.dir", Path(config.hydra.run.dir))
    task = list(config.hydra.overrides.task)
    [(_, run, spec)] = check_jobs([(Job("", task), config)])
    made = resources.enter_context(output_folder(config, "run"))
    config = copy.copy(config)  # to Hydra's own part of it values may still refer
    with open_dict(config):
        del config["hydra"]
    return with_label(RunRequest(run, spec, made, resuming.plain_of(config), overrides=task))
