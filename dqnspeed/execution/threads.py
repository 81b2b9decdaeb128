"""Sharing the cores between threads that step games and torch threads of the learner."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import machine

BUSY_MOMENT_S, LOOK_EVERY_S = 0.3, 4.0  # shortest measurement of other processes, and time between two
BUSY_CORES, BUSY_SHARE = 0.5, 0.05  # use by other processes, in cores and of all cores, that gets a warning


@dataclass(frozen=True)
class Share:
    """Threads that step games in each stepping process, torch threads of the learner, and cores kept busy."""

    stepping_threads: int
    learner_threads: int
    asked: int  # cores kept busy at the same time


def share_of_cores(run: RunConfig, cores: int) -> Share:
    """Share the cores between stepping threads and learner threads, so that no core has two threads at a time.

    With ``serial`` both take turns, and each may use all cores. Otherwise stepping (actor processes, worker processes
    or threads) gets up to half of the cores, and the learner the rest; on a GPU the learner needs one. Numbers set by
    the user are kept. With more processes than cores each process has one thread.
    """
    parallelism, on_threads, threads = run.parallelism, run.backend.uses_threads, _learner_threads(run)
    given = run.backend.given_threads
    if not (parallelism.processes or parallelism.overlaps):
        env = given or min(run.num_envs, cores)
        learner = threads or cores
        return Share(env, learner, max(env if on_threads else 1, learner))
    if not parallelism.uses_this_machine:
        env, learner = given or 1, threads or cores
        return Share(env, learner, learner)
    processes = parallelism.num_actors
    halves = 2 if run.takes_turns else 1
    envs = run.num_envs // halves
    env = given or max(1, min(envs, _stepping_cores(run, cores) // processes))
    # Without threads, environments step in turn in an actor process, and in one process each with overlap.
    stepping = processes * (env if on_threads else 1 if parallelism.processes else envs)
    learner = threads or max(1, cores - stepping)
    return Share(env, learner, max(stepping + learner, halves * stepping))


def by_rule(run: RunConfig, cores: int) -> RunConfig:
    """``run`` with numbers for ``num_envs`` and ``parallelism.num_actors`` in place of 0.

    Each core but the learner's gets an actor process. Each core that steps gets four games if the backend uses threads,
    so that one game can step while actions are chosen for others; otherwise one game. At least a batch of a rollout is
    filled.
    """
    parallelism, on_threads = run.parallelism, run.backend.uses_threads
    if not parallelism.uses_this_machine:
        key = "num_envs" if parallelism.num_actors else "parallelism.num_actors"
        raise ConfigError(
            f"{key}=0: counts the cores of this machine; give a number with parallelism={parallelism.name}."
        )
    actors, envs = parallelism.num_actors, run.num_envs
    stepping = _stepping_cores(run, cores) if parallelism.processes or parallelism.overlaps else cores
    if not actors:
        actors = stepping if parallelism.processes else 1
        run = replace(run, parallelism=replace(parallelism, num_actors=min(256, actors)))
    if not envs:
        each = max(1, stepping // actors) if parallelism.processes else stepping
        envs = 4 * each if on_threads else 1 if parallelism.processes else each
        envs = _learnable(run, envs)
        run = replace(run, num_envs=envs + (envs % 2 if run.takes_turns else 0))
    return run


def _learnable(run: RunConfig, envs: int) -> int:
    """``envs``, or the number of environments that fills a batch of a rollout if that is more."""
    algo: Any = run.algo
    each = getattr(algo, "num_steps", 0) * replace(run, num_envs=1).total_envs
    return max(envs, -(-algo.batch_size // each)) if each else envs


def _learner_threads(run: RunConfig) -> int:
    """Cores that the learner needs; 0: all that are left."""
    on_cpu = machine.pick_device(run.device).type == "cpu"  # elsewhere it only launches
    return run.execution.threads or (0 if on_cpu else 1)


def _stepping_cores(run: RunConfig, cores: int) -> int:
    """Number of cores for environments that step while the learner works."""
    learner = _learner_threads(run)
    return max(1, cores - learner if learner else cores // 2)


class LearnerThreads:
    """Measures the load of other processes and adapts the number of learner threads to it.

    Another number of threads changes the rounding of sums. Where the seed fixes the numbers of a run (``serial`` and
    ``overlap``), the number therefore stays, and a sentence names ``execution.threads`` once.

    OpenMP threads of torch wait for one another at the end of every parallel loop. A thread without a core of its own
    delays all, so two threads beside a busy process are slower than one. Fewer threads help; another way to wait does
    not.
    """

    def __init__(self, run: RunConfig, device: torch.device):
        self._share = share_of_cores(run, machine.cores())
        # A number set by the user is kept; compiled loops are compiled for a number of threads.
        self._looks = device.type == "cpu" and run.execution.threads == 0 and not run.execution.compile
        self._adapts = run.parallelism.processes
        self._total = len(machine.allowed_cores())
        self._begin()

    def warning(self) -> str | None:
        """The sentence of :func:`busy` since the last measurement."""
        return busy(self._share.asked, machine.cores(), self._busy_cores(), self._total)

    def adapt(self) -> str | None:
        """Set the number of torch threads by the load since the last measurement, if that was a while ago.

        Returns:
            A sentence if the number changed, or if fewer threads would be faster in a run that keeps its number.
        """
        if not self._looks or time.monotonic() - self._since < LOOK_EVERY_S:
            return None
        others, before = self._busy_cores(), torch.get_num_threads()
        threads = threads_beside(others, self._total, self._share, before)
        if threads == before:
            return None
        found = f"other processes keep {others:.1f} of {_cores(self._total)} busy"
        if not self._adapts:
            self._looks = False
            return (
                f"{found}: the learner keeps its {before} threads, so that the seed gives the same numbers; "
                f"execution.threads={threads} is faster beside them."
            )
        torch.set_num_threads(threads)
        return f"{found}: the learner continues with {threads} of its {self._share.learner_threads} threads."

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Context in which this process waits, and the load of other processes is not measured."""
        before = time.monotonic(), machine.cpu_seconds(), machine.own_cpu_seconds()
        try:
            yield
        finally:
            self._since += time.monotonic() - before[0]
            self._all += machine.cpu_seconds() - before[1]
            self._own += machine.own_cpu_seconds() - before[2]

    def _begin(self) -> None:
        self._since, self._all, self._own = time.monotonic(), machine.cpu_seconds(), machine.own_cpu_seconds()

    def _busy_cores(self) -> float:
        """Mean number of cores that other processes kept busy since the last measurement."""
        time.sleep(max(0.0, BUSY_MOMENT_S - (time.monotonic() - self._since)))
        before, since = self._all - self._own, self._since
        self._begin()
        return max(0.0, (self._all - self._own - before) / (self._since - since))


def threads_beside(others: float, total: int, share: Share, now: int) -> int:
    """Torch threads for a learner beside processes that keep ``others`` of ``total`` cores busy.

    A thread is dropped when half of its core is taken, and added when three quarters of a core are free.

    Args:
        now: the present number of threads.
    """
    left = total - others - (share.asked - share.learner_threads)
    threads = math.floor(left + 0.5)
    if threads > now:
        threads = max(now, math.floor(left + 0.25))
    return max(1, min(share.learner_threads, threads))


def busy(asked: int, cores: int, others: float, total: int) -> str | None:
    """One sentence if the load of this machine slows the run down, or ``None``.

    Args:
        asked: cores that the run keeps busy at a time, of ``cores`` that it may use.
        others: cores that other processes keep busy, of the ``total`` of the machine.
    """
    if asked > cores:
        return (
            f"this run has work for {_cores(asked)} at a time and may use {cores}: its processes wait for one another; "
            f"lower parallelism.num_actors, num_envs or the threads for a steadier speed."
        )
    if others >= max(BUSY_CORES, BUSY_SHARE * total) and asked > total - others:
        return (
            f"other processes keep {others:.1f} of {_cores(total)} busy, and this run would use {asked}: "
            f"its speeds are no measure of this machine."
        )
    return None


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def check_threads(run: RunConfig) -> None:
    """Raise :class:`ConfigError` if more threads are set than there are cores."""
    cores = machine.available_cores()  # also in a job that has some of them: it may go on elsewhere
    for key, asked in (
        ("execution.threads", run.execution.threads),
        ("backend.threads", run.backend.given_threads),
    ):
        if asked > cores:
            raise ConfigError(f"{key}={asked}: must be at most {cores}, the cores this process may use; 0 chooses.")


def set_threads(run: RunConfig) -> None:
    """Set torch's threads to the learner's share of the cores."""
    torch.set_num_threads(share_of_cores(run, machine.cores()).learner_threads)
