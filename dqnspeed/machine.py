"""What this machine is and how much of it is free."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

if TYPE_CHECKING:
    from dqnspeed.config import RunConfig

PACKAGES = (
    "dqnspeed",
    "torch",
    "numpy",
    "gymnasium",
    "ale-py",
    "opencv-python-headless",
    "hydra-core",
    "wandb",
)


OMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # how torch's threads wait, if told
CGROUPS = Path("/sys/fs/cgroup")
BUSY_MOMENT_S, LOOK_EVERY_S = 0.3, 4.0  # other processes are looked at for so long at least, and so often at most
BUSY_CORES, BUSY_SHARE = 0.5, 0.05  # what others may take, in cores and of all cores, before anything is said


def cores() -> int:
    """Cores this process may use: those it is bound to, or fewer where a container's quota of CPU time is smaller."""
    return max(1, math.floor(min(len(_allowed_cores()), cpu_quota())))


def cpu_quota(own: Path = Path("/proc/self/cgroup"), mounted: Path = CGROUPS) -> float:
    """Cores' worth of time that this process' cgroups allow (v2: cpu.max, v1: cpu.cfs_quota_us); infinite without."""
    return min(_quotas(own, mounted), default=math.inf)


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = mounted / "cpu" if controllers else mounted
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            # A container may see its own group as the top, but reads the path that the host has for it.
            inner = top / path.lstrip("/")
            for folder in {top, inner, *(above for above in inner.parents if above.is_relative_to(top))}:
                with contextlib.suppress(OSError, ValueError):  # "max", or -1 with v1: no limit
                    quota, period = map(float, " ".join((folder / file).read_text() for file in files).split())
                    if quota > 0 and period > 0:
                        yield quota / period


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
    if parallelism.name == "serial":
        env = parallelism.env_threads or min(run.num_envs, cores)
        learner = run.execution.threads or cores
        return Share(env, learner, max(env if native else 1, learner))
    processes = parallelism.num_actors
    # An on-policy learner acts for one half of the environments while the other half steps.
    halves = 2 if parallelism.name == "overlap" and not run.has_replay else 1
    envs = run.num_envs // halves
    theirs = max(1, cores - run.execution.threads) if run.execution.threads else cores // 2
    env = parallelism.env_threads or max(1, min(envs, theirs // processes))
    # Those that are not ALE's threads step in turn in an actor process, and in a process each with overlap.
    stepping = processes * (env if native else 1 if parallelism.name == "process" else envs)
    learner = run.execution.threads or max(1, cores - stepping)
    return Share(env, learner, max(stepping + learner, halves * stepping))


class Neighbours:
    """What other processes do with the cores that this one may use, and how many threads the learner has beside them.

    torch's OpenMP threads wait for one another at the end of every parallel loop, so that a thread whose core somebody
    else has taken holds up all of them: two threads beside a busy process are slower than one. However they wait,
    spinning or asleep, does not mend that; fewer threads do.
    """

    def __init__(self, run: RunConfig, device: torch.device):
        on_cpu = device.type == "cpu"  # elsewhere the learner only launches
        self._share = share_of_cores(run, cores()) if on_cpu else share_of_cores(_with_threads(run, 1), cores())
        # Threads that were asked for stay, and compiled loops are compiled for a number of them.
        self._adapts = on_cpu and run.execution.threads == 0 and not run.execution.compile
        self._total = len(_allowed_cores())
        self._begin()

    def disturb(self) -> str | None:
        """What :func:`busy` has to say of the run, since the last look."""
        return busy(self._share.asked, cores(), self._busy_cores(), self._total)

    def leave_them_cores(self) -> str | None:
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
        self._since, self._all, self._own = time.monotonic(), _cpu_seconds(), _own_cpu_seconds()

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


def _allowed_cores() -> set[int]:
    """Numbers of the cores that this process is bound to; of all where it is not."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cpu_seconds() -> float:
    """Seconds these cores together have worked, for anybody."""
    worked, allowed = ("user", "nice", "system", "irq", "softirq", "steal"), _allowed_cores()
    return sum(
        getattr(times, name, 0.0)
        for number, times in enumerate(psutil.cpu_times(percpu=True))
        for name in worked
        if number in allowed
    )


def _own_cpu_seconds() -> float:
    """Seconds this process and its children have worked, those that have ended included."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total


def available_memory() -> int:
    """Bytes that can be allocated without swapping, within the container's limit where there is one."""
    free = psutil.virtual_memory().available
    limit, used = (_read_int(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit is not None and used is not None:
        free = min(free, limit - used)
    return max(0, free)


def reset_peak_rss() -> None:
    """Forget the peak of the jobs before this one; where the system cannot, the peak is that of all jobs."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_mib() -> float:
    """Peak resident memory of this process since :func:`reset_peak_rss`, MiB."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def reset_peak_gpu() -> None:
    """Forget the GPU memory that the jobs before this one took."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def peak_gpu_mib(device: torch.device) -> float | None:
    """Peak memory of this process' tensors on a GPU since :func:`reset_peak_gpu`, MiB; actors hold little more."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def pick_device(name: str) -> torch.device:
    """The device ``auto`` means here: CUDA, else the CPU. MPS is used when asked for by name."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def device_available(name: str) -> bool:
    if name == "cuda":
        return torch.cuda.is_available()
    return name != "mps" or torch.backends.mps.is_available()


def describe(device: torch.device) -> dict[str, Any]:
    """Processor, cores, memory and accelerator, for ``summary.json``."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "device": str(device),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "omp": {name: os.environ[name] for name in OMP if name in os.environ},
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter to speed; Pillow-SIMD ends in ``.postN``."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    import PIL

    found["pillow"] = PIL.__version__
    return found


def git_commit() -> str | None:
    """Commit of the source tree this package runs from, with ``+changes`` when it is dirty; None for a wheel."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:  # describe --dirty would lock the index, and a run that is killed meanwhile would leave it locked
        changes = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + changes
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read_int(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
