"""This machine: cores, memory, GPU, versions, and how much of them is free."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

CORES = "DQNSPEED_CORES"  # environment variable: cores of a job whose launcher binds it to none
# Packages that matter for speed.
PACKAGES = "dqnspeed torch numpy gymnasium ale-py opencv-python-headless hydra-core wandb".split()
OMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # how torch's threads wait
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")
COMPILERS = {"cpu": ("c++", "g++", "clang++"), "cuda": ("cc", "gcc", "clang")}  # that torch.compile uses, by device


def read_text(path: Path) -> str:
    """The text of a file of the system; empty if the file cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def cores() -> int:
    """Cores for this process: all available ones, or fewer if :data:`CORES` says so."""
    asked = os.environ.get(CORES, "")
    return min(available_cores(), max(1, int(asked))) if asked.isdigit() else available_cores()


def available_cores() -> int:
    """Cores that this process may use: those it is bound to, or fewer if a container's CPU quota is lower."""
    return max(1, math.floor(min(len(allowed_cores()), cpu_quota())))


def cpu_quota(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> float:
    """CPU quota of this process' cgroups (version 2) in cores; infinite without a quota."""
    return min(_quotas(own, mounted), default=math.inf)


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    for folder in _groups(own, mounted):
        with contextlib.suppress(ValueError):  # "max": no limit, or no such file
            quota, period = map(float, read_text(folder / "cpu.max").split())
            yield quota / period


def _groups(own: Path, mounted: Path) -> set[Path]:
    """The folders of this process' cgroups and of all above."""
    found = {mounted}  # in a container its own group may be mounted at the top, while the path is the host's
    for line in read_text(own).splitlines():
        inner = mounted / line.rpartition(":")[2].lstrip("/")
        found |= {inner, *(above for above in inner.parents if above.is_relative_to(mounted))}
    return found


def allowed_cores() -> set[int]:
    """Numbers of the cores that this process is bound to, by default all cores."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def cpu_seconds() -> float:
    """Busy seconds of the allowed cores together, by all processes."""
    worked = "user", "nice", "system", "irq", "softirq", "steal"
    listed, allowed = psutil.cpu_times(percpu=True), allowed_cores()
    if max(allowed) < len(listed):  # else a container lists its own cores with new numbers
        listed = [listed[number] for number in allowed]
    return sum(getattr(times, name, 0.0) for times in listed for name in worked)


def own_cpu_seconds() -> float:
    """CPU seconds of this process and its children, including ended ones."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total


def available_memory(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> int:
    """Bytes that can be allocated without swapping, within the limits of this process' cgroups."""
    return max(0, min([psutil.virtual_memory().available, *_left_of_limits(own, mounted)]))


def _left_of_limits(own: Path, mounted: Path) -> Iterator[int]:
    for folder in _groups(own, mounted):
        with contextlib.suppress(ValueError):  # "max": no limit, or no such file
            limit, used = (int(read_text(folder / name)) for name in ("memory.max", "memory.current"))
            # The system takes back the memory of cached files when it is needed.
            cached = re.search(r"^inactive_file (\d+)", read_text(folder / "memory.stat"), re.MULTILINE)
            yield limit - used + (int(cached[1]) if cached else 0)


def format_bytes(count: float) -> str:
    """``count`` bytes as text, for example ``3.5 MB``."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def reset_peak_rss() -> None:
    """Reset the peak of resident memory; on systems without that, the peak includes earlier runs of this process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_mib() -> float:
    """Peak resident memory of this process since :func:`reset_peak_rss`, MiB."""
    if found := re.search(r"^VmHWM:\s*(\d+)", read_text(Path("/proc/self/status")), re.MULTILINE):
        return int(found[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def reset_peak_gpu() -> None:
    """Reset the peak of GPU memory."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def peak_gpu_mib(device: torch.device) -> float | None:
    """Peak GPU memory of this process' tensors since :func:`reset_peak_gpu`, MiB; without actors."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def free_gpu_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process can still allocate, including memory cached by torch."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + cached)


def pick_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is CUDA if available, else the CPU, but never MPS."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def best_precision(name: str, cpuinfo: Path = CPUINFO) -> str:
    """``bf16`` if the device called ``name`` computes in it, else ``fp32``.

    A processor without bf16 instructions needs several times as long for bf16 as for float32. Only Linux lists them, so
    other systems get ``fp32``.
    """
    device = pick_device(name)
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    else:
        has_bf16 = device.type == "cpu" and bool({"avx512_bf16", "amx_bf16", "bf16"} & _cpu_flags(cpuinfo))
    return "bf16" if has_bf16 else "fp32"


def compilers(kind: str) -> list[str]:
    """Compilers on the PATH that torch.compile can use for a device of this type."""
    return [name for name in COMPILERS.get(kind, COMPILERS["cpu"]) if shutil.which(name)]


def multiplies_bf16_pairs(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor sums products of pairs of bfloat16 (AVX512_BF16), and has no faster instructions (AMX)."""
    flags = _cpu_flags(cpuinfo)
    return {"avx512_bf16", "avx512bw", "avx512vl"} <= flags and "amx_bf16" not in flags


def _cpu_flags(cpuinfo: Path) -> set[str]:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", read_text(cpuinfo), re.MULTILINE)
    return set(found[1].split()) if found else set()


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
    """Versions of Python and of :data:`PACKAGES`; Pillow-SIMD ends in ``.postN``."""
    import PIL

    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return {**found, "pillow": PIL.__version__}


def git_commit() -> str | None:
    """Commit of the source tree of this package, with ``+changes`` if the tree is modified; ``None`` for a wheel."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:  # not "describe --dirty", which locks the index, and a killed run would leave the lock
        changes = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + changes
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu_name() -> str:
    found = re.search(r"^model name\s*:\s*(.*\S)", read_text(CPUINFO), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()
