"""This machine: cores, memory, GPU, versions, and what is free."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

CORES = "DQNSPEED_CORES"  # of a job, whose launcher binds it to none
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


OMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # set how torch's threads wait
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cores() -> int:
    """Cores this process is to use: those it may, or fewer where :data:`CORES` says so."""
    told = os.environ.get(CORES, "")
    return min(there(), max(1, int(told))) if told.isdigit() else there()


def there() -> int:
    """Cores this process may use: those it is bound to, or fewer if a container's CPU quota is lower."""
    return max(1, math.floor(min(len(allowed_cores()), cpu_quota())))


def cpu_quota(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> float:
    """CPU quota of this process' cgroups, in cores (v2: cpu.max, v1: cpu.cfs_quota_us); infinite without one."""
    return min(_quotas(own, mounted), default=math.inf)


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    for folder, is_v1 in _groups("cpu", own, mounted):
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_v1 else ("cpu.max",)
        with contextlib.suppress(OSError, ValueError):  # "max", or -1 with v1: no limit
            quota, period = map(float, " ".join((folder / file).read_text() for file in files).split())
            if quota > 0 and period > 0:
                yield quota / period


def _groups(controller: str, own: Path, mounted: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of this process' cgroups that may limit what ``controller`` gives, and whether they are v1's."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = mounted / controller if controllers else mounted
            # In a container its own group may be mounted at the top, while the path is the host's.
            inner = top / path.lstrip("/")
            for folder in {top, inner, *(above for above in inner.parents if above.is_relative_to(top))}:
                yield folder, bool(controllers)


def allowed_cores() -> set[int]:
    """Numbers of the cores that this process is bound to, by default all."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def cpu_seconds() -> float:
    """Busy seconds of these cores together, by all processes."""
    worked, listed = ("user", "nice", "system", "irq", "softirq", "steal"), psutil.cpu_times(percpu=True)
    ours = listed_cores(range(len(listed)))
    return sum(getattr(times, name, 0.0) for times, own in zip(listed, ours, strict=False) for name in worked if own)


def listed_cores(positions: Sequence[int], stat: Path = Path("/proc/stat")) -> list[bool]:
    """Of the cores that psutil lists, which this process may use.

    Of their numbers, which are not their ``positions`` where some are offline, it tells none. A container may list its
    cores alone, numbered anew.
    """
    numbers, allowed = list(positions), allowed_cores()
    with contextlib.suppress(OSError):
        numbers = [int(number) for number in re.findall(r"^cpu(\d+) ", stat.read_text(), re.MULTILINE)]
    return [number in allowed or not allowed.issubset(numbers) for number in numbers]


def own_cpu_seconds() -> float:
    """CPU seconds of this process and its children, ended ones included."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total


def available_memory(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> int:
    """Bytes that can be allocated without swapping, within the limits of this process' cgroups if they have some."""
    return max(0, min([psutil.virtual_memory().available, *_left_of_limits(own, mounted)]))


def _left_of_limits(own: Path, mounted: Path) -> Iterator[int]:
    for folder, is_v1 in _groups("memory", own, mounted):
        limit, usage = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_v1 else ("memory.max", "memory.current")
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            most, used = (int((folder / name).read_text()) for name in (limit, usage))
            yield (
                most - used + _cached_files(folder / "memory.stat", "total_inactive_file" if is_v1 else "inactive_file")
            )


def _cached_files(stat: Path, name: str) -> int:
    """Bytes that are counted as used, and that the system takes back when they are needed."""
    with contextlib.suppress(OSError, ValueError):
        for line in stat.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def in_words(count: float) -> str:
    """``count`` bytes in words, such as ``3.5 MB``."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def reset_peak_rss() -> None:
    """Reset the peak of resident memory; where the system cannot, it stays that of all jobs so far."""
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
    """Reset the peak of GPU memory."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def peak_gpu_mib(device: torch.device) -> float | None:
    """Peak memory of this process' tensors on a GPU since :func:`reset_peak_gpu`, MiB, without that of actors."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def free_gpu_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process can still take; what torch keeps of tensors that are gone is among them."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


def gpu_metrics(device: torch.device) -> dict[str, float]:
    """``perf/gpu_mib``, what this process' tensors take of a GPU now."""
    return {"perf/gpu_mib": torch.cuda.memory_allocated(device) / 2**20} if device.type == "cuda" else {}


def pick_device(name: str) -> torch.device:
    """The device of ``name``; ``auto`` is CUDA if available, else the CPU. MPS must be named."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def precision(name: str, flags: Path = Path("/proc/cpuinfo")) -> str:
    """``bf16`` where the device of this name computes in it, else ``fp32``.

    A processor without such instructions needs several times as long for bf16 as for float32, and says so in Linux
    alone, so others are taken for such.
    """
    device = pick_device(name)
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0) else "fp32"
    with contextlib.suppress(OSError):
        known = flags.read_text() if device.type == "cpu" else ""
        if re.search(r"^(flags|Features)\s*:.*\b(avx512_bf16|amx_bf16|bf16)\b", known, re.MULTILINE):
            return "bf16"
    return "fp32"


def multiplies_bf16_pairs(flags: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor sums products of pairs of bfloat16 (AVX512_BF16), and has nothing better (AMX)."""
    with contextlib.suppress(OSError):
        known = re.search(r"^flags\s*:.*$", flags.read_text(), re.MULTILINE)
        has = set(known[0].split()) if known else set()
        return {"avx512_bf16", "avx512bw", "avx512vl"} <= has and "amx_bf16" not in has
    return False


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
    """Versions of Python and of the packages that matter for speed; Pillow-SIMD ends in ``.postN``."""
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
    """Commit of the source tree this package runs from, with ``+changes`` if it is modified; None for a wheel."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:  # describe --dirty would lock the index, and a killed run would leave it locked
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
