"""How the cores are shared out: threads that step games, and torch threads of the learner."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import machine

BUSY_MOMENT_S, LOOK_EVERY_S = 0.3, 4.0  # other processes are looked at for so long at least, and so often at most
BUSY_CORES, BUSY_SHARE = 0.5, 0.05  # what others may take, in cores and of all cores, before anything is said


@dataclass(frozen=True)
class Share:
    """How the cores are shared out: threads of ALE in each place that steps, torch threads, and cores kept busy."""

    env_threads: int
    learner_threads: int
    asked: int  # cores that are kept busy at the same time


def share_of_cores(run: RunConfig, cores: int) -> Share:
    """The threads of ``wrappers=native`` and of the learner, such that no core is asked twice at a time.

    With ``serial`` the two take turns, and each may have all cores. Else what steps (actor processes, worker processes
    or ALE's threads) gets up to half of the cores, and the learner what that leaves. A number that is given
    stays; where there are more processes than cores, each keeps one thread.
    """
    parallelism, native = run.parallelism, run.wrappers.backend == "native"
    if not (parallelism.processes or parallelism.overlaps):
        env = parallelism.env_threads or min(run.num_envs, cores)
        learner = run.execution.threads or cores
        return Share(env, learner, max(env if native else 1, learner))
    processes = parallelism.num_actors
    halves = 2 if run.takes_turns else 1
    envs = run.num_envs // halves
    theirs = max(1, cores - run.execution.threads) if run.execution.threads else cores // 2
    env = parallelism.env_threads or max(1, min(envs, theirs // processes))
    # Those that are not ALE's threads step in turn in an actor process, and in a process each with overlap.
    stepping = processes * (env if native else 1 if parallelism.processes else envs)
    learner = run.execution.threads or max(1, cores - stepping)
    return Share(env, learner, max(stepping + learner, halves * stepping))


class LearnerThreads:
    """What other processes do with the cores that this one may use, and how many threads the learner has beside them.

    torch's OpenMP threads wait for one another at the end of every parallel loop, so that a thread whose core somebody
    else has taken holds up all of them: two threads beside a busy process are slower than one. However they wait,
    spinning or asleep, does not mend that; fewer threads do.
    """

    def __init__(self, run: RunConfig, device: torch.device):
        on_cpu = device.type == "cpu"  # elsewhere the learner only launches
        self._share = (
            share_of_cores(run, machine.cores()) if on_cpu else share_of_cores(_with_threads(run, 1), machine.cores())
        )
        # Threads that were asked for stay, and compiled loops are compiled for a number of them.
        self._adapts = on_cpu and run.execution.threads == 0 and not run.execution.compile
        self._total = len(machine.allowed_cores())
        self._begin()

    def warning(self) -> str | None:
        """What :func:`busy` has to say of the run, since the last look."""
        return busy(self._share.asked, machine.cores(), self._busy_cores(), self._total)

    def adapt(self) -> str | None:
        """Set the number of torch threads by what others have done since the last look, if that was a while ago.

        Returns:
            A sentence where that is another number than before.
        """
        if not self._adapts or time.monotonic() - self._since < LOOK_EVERY_S:
            return None
        others, before = self._busy_cores(), torch.get_num_threads()
        threads = threads_beside(others, self._total, self._share, before)
        if threads == before:
            return None
        torch.set_num_threads(threads)
        return (
            f"other processes keep {others:.1f} of {_cores(self._total)} busy: the learner goes on with {threads} of "
            f"its {self._share.learner_threads} threads."
        )

    def _begin(self) -> None:
        self._since, self._all, self._own = time.monotonic(), machine.cpu_seconds(), machine.own_cpu_seconds()

    def _busy_cores(self) -> float:
        """Cores that they kept busy since the last look, on average over at least a moment."""
        time.sleep(max(0.0, BUSY_MOMENT_S - (time.monotonic() - self._since)))
        before, since = self._all - self._own, self._since
        self._begin()
        return max(0.0, (self._all - self._own - before) / (self._since - since))


def threads_beside(others: float, total: int, share: Share, now: int) -> int:
    """Torch threads for a learner beside processes that keep ``others`` of ``total`` cores busy; ``now`` there are so
    many. Half a core that is taken costs a thread; to have it again, three quarters of it must be free.
    """
    left = total - others - (share.asked - share.learner_threads)
    threads = math.floor(left + 0.5)
    if threads > now:
        threads = max(now, math.floor(left + 0.25))
    return max(1, min(share.learner_threads, threads))


def _with_threads(run: RunConfig, threads: int) -> RunConfig:
    return replace(run, execution=replace(run.execution, threads=threads))


def busy(asked: int, cores: int, others: float, total: int) -> str | None:
    """One sentence where a run will be slower than it could be, or ``None``.

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
    """Raise :class:`ConfigError` where more threads are asked for than there are cores to run them."""
    cores = machine.cores()
    for key, asked in (
        ("execution.threads", run.execution.threads),
        ("parallelism.env_threads", run.parallelism.env_threads),
    ):
        if asked > cores:
            raise ConfigError(f"{key}={asked}: must be at most {cores}, the cores this process may use; 0 chooses.")


def set_threads(run: RunConfig) -> None:
    """Give torch the cores that the actors leave."""
    torch.set_num_threads(share_of_cores(run, machine.cores()).learner_threads)
