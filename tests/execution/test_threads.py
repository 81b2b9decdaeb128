"""Cores, shared out between threads that step games and the learner."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import hydra
import pytest
import torch
from conftest import make_run

from dqnspeed.cli.compose import from_hydra, own_hydra
from dqnspeed.config.options import ConfigError
from dqnspeed.execution import threads
from dqnspeed.execution.threads import LearnerThreads, Share, busy, by_rule, share_of_cores, threads_beside
from dqnspeed.system import machine

CORES = [1, 2, 4, 8, 16, 64]
SHARES = {  # threads that step games and threads of the learner on each of CORES
    "experiment=speedrun backend=atari_warp backend.threads=1": [(1, 1), (1, 1), (1, 3), (1, 7), (1, 15), (1, 63)],
    "experiment=speedrun_dqn": [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (16, 64)],
    "algo=ppo backend=ale parallelism=overlap": [(1, 1), (1, 1), (2, 2), (4, 4), (4, 12), (4, 60)],
    "experiment=a3c": [(1, 1), (1, 1), (1, 1), (1, 4), (2, 12), (8, 60)],
    "experiment=a3c backend=ale": [(1, 1), (1, 1), (1, 1), (1, 4), (2, 8), (8, 32)],
    "parallelism=overlap num_envs=3": [(1, 1), (1, 1), (2, 1), (3, 5), (3, 13), (3, 61)],
}


@pytest.mark.parametrize("overrides", SHARES)
def test_no_core_is_asked_twice(overrides: str) -> None:
    run = make_run(*overrides.split())
    shares = [share_of_cores(run, cores) for cores in CORES]
    assert [(share.stepping_threads, share.learner_threads) for share in shares] == SHARES[overrides]
    needed = {"serial": 1, "overlap": 2, "process": run.parallelism.num_actors + 1}[run.parallelism.name]
    if run.backend.name == "gymnasium" and run.parallelism.name == "overlap":
        needed = run.num_envs + 1  # each environment is a process
    for cores, share in zip(CORES, shares, strict=True):
        assert share.asked <= cores or cores < max(needed, run.execution.threads + 1)


RULES = {  # actors and environments of each, on each of CORES
    "": [(1, cores) for cores in CORES],
    "backend=ale parallelism=overlap": [(1, 4), (1, 4), (1, 8), (1, 16), (1, 32), (1, 128)],
    "algo=ppo parallelism=overlap": [(1, 2), (1, 2), (1, 2), (1, 4), (1, 8), (1, 32)],
    "parallelism=process": [(1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (32, 1)],
    "parallelism=process backend=ale device=cuda": [(1, 4), (1, 4), (3, 4), (7, 4), (15, 4), (63, 4)],
    "parallelism=process backend=ale execution.threads=3": [(1, 4), (1, 4), (1, 4), (5, 4), (13, 4), (61, 4)],
}


@pytest.mark.parametrize("overrides", RULES)
def test_environments_and_actors_by_rule_use_the_cores_there_are(overrides: str) -> None:
    run = make_run(*overrides.split())
    none = replace(run, num_envs=0, parallelism=replace(run.parallelism, num_actors=0))
    ruled = [by_rule(none, cores) for cores in CORES]
    assert [(r.parallelism.num_actors, r.num_envs) for r in ruled] == RULES[overrides]
    for cores, made in zip(CORES, ruled, strict=True):
        assert share_of_cores(made, cores).asked <= max(cores, 1 + max(1, run.execution.threads))
    given = replace(run, num_envs=6, parallelism=replace(run.parallelism, num_actors=3))
    assert by_rule(given, 8) == given


def test_a_run_keeps_the_numbers_of_the_machine_it_was_begun_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    overrides = ["num_envs=0", "backend=ale", "parallelism=process", "parallelism.num_actors=0"]
    with own_hydra():
        cfg = hydra.compose("config", overrides=overrides)
        run = from_hydra(cfg)
    assert (run.num_envs, run.parallelism.num_actors) == (cfg.num_envs, cfg.parallelism.num_actors) == (4, 4)


@pytest.mark.parametrize("key", ["execution.threads", "backend.threads"])
def test_more_threads_than_cores_are_refused(key: str) -> None:
    threads.check_threads(make_run("backend=ale", f"{key}={machine.cores()}"))
    with pytest.raises(ConfigError, match=f"^{key}=100000: must be at most {machine.cores()}, the cores"):
        threads.check_threads(make_run("backend=ale", f"{key}=100000"))


def test_a_busy_machine_is_reported() -> None:
    assert busy(asked=2, cores=2, others=0.3, total=2) is None
    assert busy(asked=2, cores=16, others=10, total=16) is None  # there is room beside them
    assert busy(asked=64, cores=64, others=1, total=64) is None  # any desktop does as much
    assert "other processes keep 1.0 of 2 cores busy" in str(busy(asked=2, cores=2, others=1, total=2))
    assert "work for 5 cores at a time and may use 2" in str(busy(asked=5, cores=2, others=0, total=2))


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Clocks of a machine: the time, and the seconds that all cores worked, and that they worked for this run."""
    clocks = SimpleNamespace(time=0.0, all=0.0, own=0.0)
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: clocks.time, sleep=lambda _: None))
    monkeypatch.setattr(machine, "cpu_seconds", lambda: clocks.all)
    monkeypatch.setattr(machine, "own_cpu_seconds", lambda: clocks.own)
    return clocks


@pytest.mark.parametrize(
    ("overrides", "device", "asked"),
    [
        ("backend=ale num_envs=8", "cuda", 4),  # ALE's threads
        ("num_envs=8", "cuda", 1),
        ("backend=ale num_envs=8 parallelism=overlap", "cuda", 4),  # one launches, three step
    ],
)
def test_a_learner_on_a_gpu_asks_for_one_core(
    overrides: str, device: str, asked: int, cpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setattr(machine, "allowed_cores", lambda: {0, 1, 2, 3})
    run = make_run(*overrides.split(), f"device={device}")
    learner_threads = LearnerThreads(run, torch.device(device))
    cpu.time, cpu.all = 10.0, 40.0
    assert f"this run would use {asked}:" in str(learner_threads.warning())


@pytest.mark.parametrize(
    ("others", "total", "share", "now", "threads"),
    [
        (0.1, 2, (1, 2, 2), 2, 2),
        (0.4, 2, (1, 2, 2), 2, 2),
        (0.6, 2, (1, 2, 2), 2, 1),
        (2.0, 2, (1, 2, 2), 2, 1),  # there is always one
        (0.4, 2, (1, 2, 2), 1, 1),  # it comes back later than it went
        (0.2, 2, (1, 2, 2), 1, 2),
        (3.0, 16, (4, 12, 16), 12, 9),  # four cores are the environments'
        (30.0, 64, (1, 8, 8), 8, 8),  # a container with a quota: there is room elsewhere
    ],
)
def test_threads_beside_others(others: float, total: int, share: tuple[int, int, int], now: int, threads: int) -> None:
    assert threads_beside(others, total, Share(*share), now) == threads


@pytest.mark.parametrize(
    ("overrides", "changes", "counts"),
    [
        ("parallelism=process", [False, True, False, True], [2, 1, 1, 2]),
        ("parallelism=process execution.threads=2", [False] * 4, [2] * 4),
        ("parallelism=serial", [False, True, False, False], [3] * 4),  # named once
        ("parallelism=overlap", [False, True, False, False], [2] * 4),
    ],
)
def test_threads_come_and_go_with_other_processes_where_a_seed_does_not_fix_the_run(
    overrides: str, changes: list[bool], counts: list[int], cpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 3)
    monkeypatch.setattr(machine, "allowed_cores", lambda: {0, 1, 2})
    run, before = make_run(*overrides.split()), torch.get_num_threads()
    try:
        threads.set_threads(run)
        learner_threads, said, seen = LearnerThreads(run, torch.device("cpu")), list[str | None](), list[int]()
        for others in (0.0, 1.0, 1.0, 0.0):
            cpu.time += 10.0
            cpu.all += 10.0 * others
            said.append(learner_threads.adapt())
            seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert [sentence is not None for sentence in said] == changes and seen == counts
    if "process" not in overrides:
        assert f"keeps its {counts[0]} threads" in str(said[1])
        assert f"execution.threads={counts[0] - 1} is faster" in str(said[1])


def test_cores_that_wait_are_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(user=1, nice=2, system=3, irq=4, softirq=5, steal=6, idle=1000, iowait=1000)
    monkeypatch.setattr(machine.psutil, "cpu_times", lambda percpu: [times, times])
    monkeypatch.setattr(machine, "allowed_cores", lambda: {1})
    assert machine.cpu_seconds() == 21


def test_what_is_no_child_of_a_run_is_a_neighbour() -> None:
    everybody, own = machine.cpu_seconds(), machine.own_cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.7: pass"
    # It is nobody's child once the shell that began it has ended; its end closes the pipe that is read.
    subprocess.run(f"{sys.executable} -c '{burn}' &", shell=True, check=True, stdout=subprocess.PIPE)
    assert machine.cpu_seconds() - everybody >= 0.65  # the system counts in ticks
    assert machine.own_cpu_seconds() - own < 0.4


def test_a_stopped_run_measures_no_others(cpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "allowed_cores", lambda: {0, 1})
    learner_threads = LearnerThreads(make_run(), torch.device("cpu"))
    with learner_threads.stopped():
        cpu.time, cpu.all = 100.0, 200.0
    cpu.time, cpu.all, cpu.own = 110.0, 215.0, 5.0
    assert "other processes keep 1.0 of 2 cores busy" in str(learner_threads.warning())
