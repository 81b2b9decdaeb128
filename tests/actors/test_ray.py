"""Actors on a Ray cluster that nodes leave and join."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import TOY, command, environment, make_toy, once_reported, train_in
from forked import Forked
from started import CONTRACT, GREEDY, Started, assert_contract, assert_newest_weights, assert_pauses

from dqnspeed.config.options import ConfigError

if importlib.util.find_spec("ray") is None:  # which takes moments to import
    pytest.skip("needs Ray", allow_module_level=True)

RAY = [
    "parallelism=ray", "parallelism.address=auto", "parallelism.num_actors=2", "num_envs=2",
    "parallelism.batch_steps=4",
]  # fmt: skip
ROOM = ["replay.buffer_size=9000", "algo.learning_starts=200"]
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine, which ``parallelism.address=auto`` joins."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "env_vars": environment()})
    cluster.add_node(num_cpus=2, env_vars=environment())
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster
    del os.environ["RAY_ADDRESS"]
    cluster.shutdown()


@pytest.mark.usefixtures("ray_cluster")
def test_an_actor_never_runs_ahead_of_what_the_learner_will_take() -> None:
    with Started(make_toy(*RAY, "parallelism.samples_per_step=8")) as started:
        for limit in (110, 150):
            started.limit = limit
            started.collect(limit - 8)
            time.sleep(0.5)
            for _ in range(20):
                started.agent_steps += started.actors.collect(limit, wait=True).agent_steps
            assert limit - 8 <= started.agent_steps <= limit + 4  # two environments step together


def one_actor() -> psutil.Process:
    """Process of one actor on a cluster that this process has started."""
    children = psutil.Process().children(recursive=True)
    return next(child for child in children if "ray::RayActor" in " ".join(child.cmdline()))


class TestOneSetOfActors:
    """The contract of every parallelism, and more: of actors that are started once."""

    @pytest.fixture(scope="class")
    @classmethod
    def started(cls, ray_cluster: Any) -> Iterator[Started]:
        with Started(make_toy(*RAY, *CONTRACT, "exploration.final=0", "replay.buffer_size=20000")) as started:
            yield started

    def test_contract(self, started: Started) -> None:
        assert_contract(started)

    def test_actors_act_with_the_learners_newest_weights(self, started: Started) -> None:
        started.collect(200)  # from which on they act greedily
        assert_newest_weights(started)

    def test_paused_actors_rest_and_tell_all_they_need_to_go_on(self, started: Started) -> None:
        assert_pauses(started)

    def test_a_lost_one_is_replaced_and_no_transition_crosses_the_gap(self, started: Started) -> None:
        started.collect(200)
        one_actor().kill()
        reasons = list[str]()
        while not reasons or started.actors.metrics()["perf/actors"] < 2:
            reasons += started.actors.collect(math.inf, wait=True).lost
        found = re.match("actor ([01]) was lost [(]", reasons[0])
        assert found and "\n" not in reasons[0]
        env_index = 2 * int(found[1])
        before = started.buffer.storage.rows_written(env_index)
        while started.buffer.storage.rows_written(env_index) < before + 20:
            started.actors.collect(math.inf, wait=True)
        batch = started.buffer.sample(2000)
        np.testing.assert_array_equal(batch.observations[:, :2], batch.next_observations[:, :2])


@pytest.mark.cuda
@pytest.mark.usefixtures("ray_cluster")
def test_actors_act_with_the_newest_weights_of_a_gpu() -> None:
    with Started(make_toy(*RAY, *GREEDY, "device=cuda")) as started:
        assert_newest_weights(started)


def with_node(cluster: Any, num_cpus: int = 1, **env_vars: str) -> Any:
    """A node of some cores more, whose environment says so."""
    return cluster.add_node(num_cpus=num_cpus, env_vars={**environment(), **env_vars})


def test_a_slow_machine_holds_no_other_back_and_one_whose_python_raises_is_left(ray_cluster: Any) -> None:
    nodes = [with_node(ray_cluster, 2, TOY_SLEEP_S="0.05"), with_node(ray_cluster, 2, TOY_BREAKS="1")]
    one_each = ["parallelism.num_actors=4", "parallelism.cpus_per_actor=2"]
    try:
        run = make_toy(*RAY, "env.id=toy_envs:Elsewhere-v0", *one_each, *ROOM)
        with Started(run) as started:
            said, rows = list[str](), np.zeros(1)
            while not said or not 0 < min(rows) < 0.2 * max(rows):  # actors held back would be alike
                said += started.actors.collect(math.inf, wait=True).lost
                rows = started.rows()
        assert "this machine broke" in said[0]
    finally:
        for node in nodes:
            ray_cluster.remove_node(node)


def test_the_pole_is_balanced_though_a_node_is_killed(ray_cluster: Any, tmp_path: Path) -> None:
    node, folder = with_node(ray_cluster), tmp_path / "run"
    arguments = [
        "env=cartpole", "algo=ppo", "optimizer.lr=1e-3", "parallelism=ray", "parallelism.num_actors=3", "num_envs=2",
        f"parallelism.address={ray_cluster.address}", "parallelism.batch_steps=8", "tracking=local",
        "tracking.progress=off", "tracking.report_every_s=0.3", "execution.threads=1", "stop.reward_bound=60",
        "stop.window=20", "stop.max_minutes=2", f"hydra.run.dir={folder}",
    ]  # fmt: skip

    def kill() -> None:
        ray_cluster.remove_node(node, allow_graceful=False)

    with (
        Forked("dqnspeed.train", *arguments, cwd=tmp_path, env=environment(), spawns=False) as process,
        once_reported(folder, kill),
    ):
        said = "".join(process.communicate(timeout=180))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["solved"] and summary["acting"] == "eager" and summary["lost_actors"] >= 1, said
    assert "was lost (" in said and "It is replaced, and the run goes on." in said
    actors = [json.loads(line)["perf/actors"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert min(actors) < 3


def test_no_raylet_and_no_actor_of_a_local_cluster_outlives_a_killed_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = [
        *TOY, "parallelism=ray", "parallelism.num_actors=2", f"hydra.run.dir={folder}", "tracking.report_every_s=0.3",
    ]  # fmt: skip
    process = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    family, open_to_all = list[psutil.Process](), list[Any]()

    def end() -> None:
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may end meanwhile
                found = child.net_connections(kind="tcp")
                open_to_all.extend(c for c in found if c.status == "LISTEN" and c.laddr.ip not in LOOPBACK)
                # Ray's agents look for their machine for up to a minute before they end.
                if "Agent" not in child.name():
                    family.append(child)
        process.kill()

    try:
        with once_reported(folder, end):
            process.wait(180)
    finally:
        process.kill()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert len(family) >= 4 and alive == [] and open_to_all == []


def test_what_cannot_work_is_said_in_one_sentence(ray_cluster: Any) -> None:
    run = make_toy(*RAY, "parallelism.cpus_per_actor=32")
    with pytest.raises(ConfigError, match=r"address=auto: no machine there has 32 CPUs, but \d+ at most"):
        Started(run)
    with closing(socket.socket()) as unanswered:
        unanswered.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unanswered.getsockname()[1]}"
        run = make_toy("parallelism=ray", f"parallelism.address='{address}'")
        with pytest.raises(ConfigError, match=f"parallelism.address={address}: nobody answers there"):
            run.parallelism.check_here()  # type: ignore[attr-defined]
    run = make_toy("parallelism=ray", "parallelism.address=nonsense")
    with pytest.raises(ConfigError, match="takes HOST:PORT"):
        run.parallelism.check_here()  # type: ignore[attr-defined]


def test_without_the_extra_one_sentence_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"parallelism=ray: needs ray\. pip install 'dqnspeed\[ray\]' installs it\.$"):
        make_toy("parallelism=ray").parallelism.check_here()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    "line",
    [
        "algo=dqn checkpoint.replay=true parallelism.compress=false",
        "algo=pqn algo.num_steps=8 algo.batch_size=16 algo.learning_starts=0 parallelism.batch_steps=16",
        "algo=a3c algo.batch_size=16 algo.learning_starts=0",
    ],
)
def test_a_run_on_ray_learns_and_goes_on_from_its_checkpoint(line: str, tmp_path: Path) -> None:
    before, after = (
        train_in(
            tmp_path,
            make_toy(*RAY, "parallelism.num_actors=1", *line.split(), f"stop.max_steps={steps}"),
            resume=steps > 300,
        )
        for steps in (300, 600)
    )
    assert after["resumed_at"] == [before["agent_steps"]] and after["agent_steps"] >= 600
    assert after["stopped_by"] == "max_steps"
    numbers = [int(line.partition(",")[0]) for line in (tmp_path / "episodes.csv").read_text().splitlines()[1:]]
    assert numbers == list(range(1, len(numbers) + 1))
    reports = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lags = [report["train/policy_lag"] for report in reports if "train/policy_lag" in report]  # of those with an update
    assert reports[-1]["train/updates"] >= 15 and min(lags, default=0) >= 0
