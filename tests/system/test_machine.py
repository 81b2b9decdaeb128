"""Cores, memory and precisions of this machine."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from dqnspeed.system import machine


def cgroup(tmp_path: Path, line: str, **files: str) -> float:
    """The quota that a process reads whose /proc/self/cgroup is ``line``, with these files mounted."""
    tmp_path.mkdir()
    own = tmp_path / "own"
    own.write_text(f"7:memory:/elsewhere\n{line}\n")
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return machine.cpu_quota(own, tmp_path)


def test_a_containers_quota_counts_whichever_cgroup_holds_it(tmp_path: Path) -> None:
    assert cgroup(tmp_path / "none", "0::/") == math.inf
    assert cgroup(tmp_path / "max", "0::/", cpu_max="max 100000\n") == math.inf
    assert cgroup(tmp_path / "v2", "0::/", cpu_max="150000 100000\n") == 1.5
    assert cgroup(tmp_path / "slice", "0::/a/b", a__cpu_max="400000 100000", a__b__cpu_max="max 100000") == 4


def test_the_memory_that_is_left_is_that_of_the_tightest_cgroup_without_what_files_keep(tmp_path: Path) -> None:
    own = tmp_path / "own"

    def write(folder: Path, limit: str, usage: str, stat: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(("max", "current", "stat"), (limit, usage, stat), strict=True):
            (folder / f"memory.{name}").write_text(f"{text}\n")

    own.write_text("0::/job/step\n")
    write(tmp_path / "job", "1000", "900", "anon 1\ninactive_file 500")
    assert machine.available_memory(own, tmp_path) == 600
    write(tmp_path / "job" / "step", "max", "10", "")
    assert machine.available_memory(own, tmp_path) == 600
    write(tmp_path / "job" / "step", "50", "10", "")
    assert machine.available_memory(own, tmp_path) == 40
    own.write_text("0::/other\n")
    assert machine.available_memory(own, tmp_path) > 1000


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.0, 1), (1.5, 1), (1000.0, None), (math.inf, None)])
def test_cores_are_whole_cores_of_the_quota(monkeypatch: pytest.MonkeyPatch, quota: float, cores: int | None) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert machine.cores() == (cores or bound)
    monkeypatch.setenv(machine.CORES, "1")  # as a launcher says, which binds its jobs to none
    assert machine.cores() == 1


@pytest.mark.parametrize(
    ("line", "precision", "pairs"),
    [
        ("flags\t\t: fpu avx512f avx512bw avx512vl avx512_bf16", "bf16", True),
        ("flags\t\t: fpu avx512f avx512bw avx512vl avx512_bf16 amx_bf16 amx_tile", "bf16", False),
        ("flags\t\t: fpu avx512f avx512bw avx512_vnni", "fp32", False),
        ("Features\t: fp asimd i8mm bf16 dgh", "bf16", False),
        ("Features\t: fp asimd svebf16", "fp32", False),
        ("model name\t: a bf16 wonder", "fp32", False),
    ],
)
def test_a_processor_computes_in_bf16_if_it_says_so(tmp_path: Path, line: str, precision: str, pairs: bool) -> None:
    flags = tmp_path / "cpuinfo"
    flags.write_text(f"processor\t: 0\n{line}\nbugs\t\t:\n")
    assert machine.best_precision("cpu", flags) == precision
    assert machine.best_precision("cpu", tmp_path / "none") == "fp32"
    assert machine.multiplies_bf16_pairs(flags) is pairs and not machine.multiplies_bf16_pairs(tmp_path / "none")
    if not machine.device_available("cuda"):
        assert machine.best_precision("cuda") == "fp32"  # a run there is refused, but only once it is composed
