"""What the machine gives, and how little a run may ask of it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import make_run

from dqnspeed.algorithms import make_network
from dqnspeed.algorithms.footprint import Size, network_bytes, network_size
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.execution import threads
from dqnspeed.execution.optimizers import make_optimizer
from dqnspeed.execution.threads import LearnerThreads, Share, busy, share_of_cores, threads_beside
from dqnspeed.system import machine


def cgroup(tmp_path: Path, line: str, **files: str) -> float:
    """The quota that a process reads whose /proc/self/cgroup is ``line``, with these files mounted."""
    tmp_path.mkdir()
    own = tmp_path / "own"
    own.write_text(f"7:memory:/elsewhere\n{line}\n")
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_max", ".max").replace("cfs", "cpu.cfs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return machine.cpu_quota(own, tmp_path)


def test_a_containers_quota_counts_whichever_cgroup_holds_it(tmp_path: Path) -> None:
    assert cgroup(tmp_path / "none", "0::/") == math.inf
    assert cgroup(tmp_path / "max", "0::/", cpu_max="max 100000\n") == math.inf
    assert cgroup(tmp_path / "v2", "0::/", cpu_max="150000 100000\n") == 1.5
    assert cgroup(tmp_path / "slice", "0::/a/b", a__cpu_max="400000 100000", a__b__cpu_max="max 100000") == 4
    v1 = {"cpu__cfs_quota_us": "300000", "cpu__cfs_period_us": "100000"}
    assert cgroup(tmp_path / "v1", "4:cpu,cpuacct:/docker/of-the-host", **v1) == 3
    assert cgroup(tmp_path / "free", "4:cpu:/", **{**v1, "cpu__cfs_quota_us": "-1"}) == math.inf


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.0, 1), (1.5, 1), (1000.0, None), (math.inf, None)])
def test_cores_are_whole_cores_of_the_quota(monkeypatch: pytest.MonkeyPatch, quota: float, cores: int | None) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert machine.cores() == (cores or bound)


CORES = [1, 2, 4, 8, 16, 64]
SHARES = {  # threads of ALE and of the learner on each of CORES
    "experiment=speedrun": [(1, 1), (1, 1), (1, 3), (1, 7), (1, 15), (1, 63)],
    "experiment=speedrun parallelism.env_threads=0": [(1, 1), (1, 1), (2, 2), (4, 4), (8, 8), (16, 48)],
    "experiment=speedrun_dqn": [(1, 1), (1, 1), (2, 2), (4, 4), (8, 8), (8, 56)],
    "experiment=speedrun_dqn execution.threads=3": [(1, 3), (1, 3), (1, 3), (5, 3), (8, 3), (8, 3)],
    "wrappers=native num_envs=8": [(1, 1), (2, 2), (4, 4), (8, 8), (8, 16), (8, 64)],
    "algo=ppo wrappers=native parallelism=overlap": [(1, 1), (1, 1), (2, 2), (4, 4), (4, 12), (4, 60)],
    "experiment=a3c": [(1, 1), (1, 1), (1, 1), (1, 4), (2, 12), (8, 60)],
    "experiment=a3c wrappers=native": [(1, 1), (1, 1), (1, 1), (1, 4), (2, 8), (8, 32)],
    "parallelism=overlap num_envs=3": [(1, 1), (1, 1), (2, 1), (3, 5), (3, 13), (3, 61)],
}


@pytest.mark.parametrize("overrides", SHARES)
def test_no_core_is_asked_twice(overrides: str) -> None:
    run = make_run(*overrides.split())
    shares = [share_of_cores(run, cores) for cores in CORES]
    assert [(share.env_threads, share.learner_threads) for share in shares] == SHARES[overrides]
    needed = {"serial": 1, "overlap": 2, "process": run.parallelism.num_actors + 1}[run.parallelism.name]
    if run.wrappers.backend == "gymnasium" and run.parallelism.name == "overlap":
        needed = run.num_envs + 1  # each environment is a process
    for cores, share in zip(CORES, shares, strict=True):
        assert share.asked <= cores or cores < max(needed, run.execution.threads + 1)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["dqn", "dqn model.dueling=true", "ppo", "pqn"])
@pytest.mark.parametrize(
    "model",
    ["model=nature", "model=small model.layer_norm=true", "model.hidden=[64,32]", "env=cartpole", "model=board"],
)
def test_the_size_of_a_network_is_known_before_it_is_built(algo: str, model: str) -> None:
    run = make_run(*model.split(), *f"algo={algo}".split())
    spec = describe(run)
    network = make_network(run, spec)
    outputs: list[int] = []
    for module in network.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, inputs, output: outputs.append(output.numel()))
    network(torch.zeros(1, *spec.observation_shape))
    activations = sum(outputs) - math.prod(spec.observation_shape)  # the scaled input is counted elsewhere
    assert network_size(run, spec) == Size(sum(p.numel() for p in network.parameters()), activations)


@pytest.mark.slow
def test_the_optimizer_counts_too() -> None:
    needed = []
    for optimizer in ("adam", "rmsprop", "rmsprop_deepmind"):
        run = make_run(f"optimizer={optimizer}", "model=small", "model.hidden=[16]")
        spec = describe(run)
        network = make_network(run, spec)
        made = make_optimizer(run.optimizer, network, torch.device("cpu"))
        sum(p.sum() for p in network.parameters()).backward()  # type: ignore[union-attr]
        made.step()
        slots = sum(value.numel() for slot in made.state.values() for value in slot.values() if value.ndim)
        needed.append((network_bytes(run, network_size(run, spec)), 4 * (slots + 4 * network_size(run, spec).parameters)))
    assert all(ours == theirs for ours, theirs in needed), needed


@pytest.mark.parametrize("key", ["execution.threads", "parallelism.env_threads"])
def test_more_threads_than_cores_are_refused(key: str) -> None:
    threads.check_threads(make_run(f"{key}={machine.cores()}"))
    with pytest.raises(ConfigError, match=f"^{key}=100000: must be at most {machine.cores()}, the cores"):
        threads.check_threads(make_run(f"{key}=100000"))


def test_a_busy_machine_is_reported() -> None:
    assert busy(asked=2, cores=2, others=0.3, total=2) is None
    assert busy(asked=2, cores=16, others=10, total=16) is None  # there is room beside them
    assert busy(asked=64, cores=64, others=1, total=64) is None  # any desktop does as much
    assert "other processes keep 1.0 of 2 cores busy" in str(busy(asked=2, cores=2, others=1, total=2))
    assert "work for 5 cores at a time and may use 2" in str(busy(asked=5, cores=2, others=0, total=2))


@pytest.mark.parametrize(
    ("overrides", "device", "asked"),
    [
        ("wrappers=native num_envs=8", "cpu", 4),
        ("wrappers=native num_envs=8", "cuda", 4),  # ALE's threads
        ("num_envs=8", "cuda", 1),
        ("wrappers=native num_envs=8 parallelism=overlap", "cuda", 4),  # one launches, three step
    ],
)
def test_a_learner_on_a_gpu_asks_for_one_core(
    overrides: str, device: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setattr(machine, "allowed_cores", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(LearnerThreads, "_busy_cores", lambda _: 4.0)
    warning = LearnerThreads(make_run(*overrides.split()), torch.device(device)).warning()
    assert f"this run would use {asked}:" in str(warning)


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
def test_the_learner_has_the_threads_that_others_leave(
    others: float, total: int, share: tuple[int, int, int], now: int, threads: int
) -> None:
    assert threads_beside(others, total, Share(*share), now) == threads


def test_threads_come_and_go_with_other_processes_unless_their_number_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, others = [], iter([0.0, 1.0, 1.0, 0.0] * 2)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "allowed_cores", lambda: {0, 1})
    monkeypatch.setattr(threads, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(LearnerThreads, "_busy_cores", lambda _: next(others))
    before = torch.get_num_threads()
    try:
        for overrides in ([], ["execution.threads=2"]):
            torch.set_num_threads(2)
            learner_threads = LearnerThreads(make_run(*overrides), torch.device("cpu"))
            for _ in range(4):
                seen.append((learner_threads.adapt() is not None, torch.get_num_threads()))
        assert seen == [(False, 2), (True, 1), (False, 1), (True, 2)] + [(False, 2)] * 4
    finally:
        torch.set_num_threads(before)


def test_what_is_no_child_of_a_run_is_a_neighbour() -> None:
    everybody, own = machine.cpu_seconds(), machine.own_cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.7: pass"
    # It is nobody's child once the shell that began it has ended.
    subprocess.run(f"{sys.executable} -c '{burn}' &", shell=True, check=True)
    deadline = time.monotonic() + 60
    while machine.cpu_seconds() - everybody < 0.7:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert machine.own_cpu_seconds() - own < 0.4


def test_what_a_run_and_its_children_do_is_not_taken_for_other_processes() -> None:
    learner_threads = LearnerThreads(make_run(), torch.device("cpu"))
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    before = learner_threads._own
    assert machine.own_cpu_seconds() - before >= 0.45  # the system counts in ticks
