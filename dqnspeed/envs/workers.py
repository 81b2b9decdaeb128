"""Worker processes of ``backend=gymnasium`` with ``overlap``, one for each environment."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from dqnspeed.envs.backends.base import ActorError
from dqnspeed.envs.probe import Watchdog
from dqnspeed.system import child_processes, seeding
from dqnspeed.system.child_processes import (
    children_ignore_signals,
    end_with_parent,
    may_have_children,
    terminate_by_kill,
)
from dqnspeed.system.messages import FOREIGN
from dqnspeed.system.streams import tolerate_output_errors

START_TIMEOUT_S = 120.0  # importing torch and making environments on a busy machine
AUTORESET = gymnasium.vector.AutoresetMode.NEXT_STEP


class Workers(gymnasium.vector.AsyncVectorEnv):
    """Worker processes that end when they are closed, or with this process."""

    def __del__(self) -> None:
        """Do nothing: Gymnasium would close workers here, perhaps after their pipes were collected."""


def make_workers(makers: Sequence[Callable[[], gymnasium.Env]], timeout: float) -> Workers:
    """Start a process for each of ``makers``; raises :class:`ActorError` if one ends or hangs before all are made."""
    others = set(multiprocessing.active_children())
    limit = 2 * max(timeout, START_TIMEOUT_S)  # for an environment that is made here first, and then for the workers

    def end(_: str = "") -> None:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
            worker.join()

    try:
        with Watchdog(limit, end), children_ignore_signals():
            return Workers(makers, copy=False, context=child_processes.START_METHOD, autoreset_mode=AUTORESET)
    except (RuntimeError, EOFError, ConnectionError) as error:
        end()
        if isinstance(error, RuntimeError):
            raise
        raise ActorError(
            f"an environment's process ended, or took more than {limit:.0f} s, while environments were made."
        ) from error


def make_in_worker(make: Callable[[], gymnasium.Env], seed: int, learner: int) -> gymnasium.Env:
    """Make an environment in its worker process, which is seeded and ends with its parent.

    Args:
        seed: of the global random generators.
        learner: id of the process that starts the workers, in which Gymnasium makes one environment, too.
    """
    end_with_parent()
    may_have_children()
    if os.getpid() != learner:
        terminate_by_kill()
        tolerate_output_errors()
    seeding.seed_everything(seed)
    return TracebackToParent(make())


class WorkerTraceback(Exception):
    """Error of an environment in a worker process; the message is its traceback."""


class TracebackToParent(gymnasium.Wrapper):
    """Adds the traceback to an error of an environment in a worker process."""

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except FOREIGN as error:
            raise WorkerTraceback(traceback.format_exc()) from error

    def reset(self, **kwargs: Any) -> Any:
        try:
            return self.env.reset(**kwargs)
        except FOREIGN as error:
            raise WorkerTraceback(traceback.format_exc()) from error
