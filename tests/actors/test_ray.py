"""Actors on a Ray cluster that nodes leave and join."""

from __future__ import annotations

import math
import socket
import time
from contextlib import closing
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import make_toy
from test_actors import KINDS, Started

from dqnspeed.actors import ActorError
from dqnspeed.actors.ray_actor import RayChannel, RayJob, RayOrders
from dqnspeed.config.options import ConfigError
from dqnspeed.memory import Rows

ray = pytest.importorskip("ray")


def rows(number: int) -> Rows:
    """A step of two environments."""
    frames = np.full((2, 1, 3), number, np.uint8)
    flags = np.array([False, number % 2 == 0])
    values = np.full(2, number, np.float32)
    return Rows(frames, np.full(2, number), values, flags, ~flags, flags, ~flags, {"values": values})


@pytest.mark.parametrize("compress", [False, True])
def test_steps_arrive_as_they_left(compress: bool) -> None:
    job = RayJob(make_toy(*KINDS["ray"], f"parallelism.compress={compress}"), None, 0, None, 0, 0, 0)  # type: ignore[arg-type]
    channel = RayChannel(job)
    sent = [rows(number) for number in range(5)]
    for one in sent:
        channel.deliver(one, [], {"acting": 1.0, "stepping": 2.0})
    delivery = channel.exchange(RayOrders(), None)
    assert (delivery.frames is not None) is compress and delivery.seconds == (1.0, 2.0)
    assert delivery.steps == sum(int(one.transition.sum()) for one in sent)
    for one, got in zip(sent, delivery.each(), strict=True):
        for name in ("frames", "actions", "rewards", "terminated", "truncated", "first", "transition"):
            np.testing.assert_array_equal(getattr(one, name), getattr(got, name))
            assert getattr(one, name).dtype == getattr(got, name).dtype
        np.testing.assert_array_equal(one.acting["values"], got.acting["values"])
    assert channel.exchange(RayOrders(), None).each() == []


@pytest.mark.usefixtures("ray_cluster")
def test_an_actor_never_runs_ahead_of_what_the_learner_will_take() -> None:
    with Started(make_toy(*KINDS["ray"], "parallelism.replay_ratio=8")) as started:
        for limit in (110, 150):
            started.limit = limit
            started.collect(limit - 8)
            time.sleep(0.5)
            for _ in range(20):
                started.agent_steps += started.actors.collect(limit, wait=True).agent_steps
            assert limit - 8 <= started.agent_steps <= limit + 4  # two environments step together


@pytest.mark.usefixtures("ray_cluster")
def test_a_lost_ray_actor_is_replaced_and_no_transition_crosses_the_gap() -> None:
    with Started(make_toy(*KINDS["ray"])) as started:
        started.collect(200)
        ray.kill(started.actors._links[1].handle)  # type: ignore[attr-defined]
        said, deadline = list[str](), time.monotonic() + 60
        while not said or started.actors.metrics()["perf/actors"] < 2:
            said += started.actors.collect(math.inf, wait=True).lost
            assert time.monotonic() < deadline
        assert said[0].startswith("actor 1 was lost (") and "\n" not in said[0]
        before = started.replay.rows(2)
        while started.replay.rows(2) < before + 20:
            started.actors.collect(math.inf, wait=True)
        batch = started.replay.sample(2000)
        np.testing.assert_array_equal(batch.observations[:, :2], batch.next_observations[:, :2])


def test_actors_of_a_node_that_leaves_go_on_elsewhere(ray_cluster: Any) -> None:
    node = ray_cluster.add_node(num_cpus=2)
    with Started(make_toy(*KINDS["ray"], "parallelism.num_actors=5")) as started:
        started.collect(200)
        ray_cluster.remove_node(node, allow_graceful=False)
        said, deadline = list[str](), time.monotonic() + 90
        while not said:
            said += started.actors.collect(math.inf, wait=True).lost
            assert time.monotonic() < deadline
        steps = started.agent_steps
        started.collect(steps + 200)
        assert started.actors.metrics()["perf/actors"] >= 3


def test_a_local_cluster_ends_with_the_run() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with Started(make_toy("parallelism=ray", "num_envs=2")) as started:
        started.collect(50)
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    _, alive = psutil.wait_procs(left, timeout=10)
    assert [child.name() for child in alive if "ray" in child.name() or "gcs" in child.name()] == []


def test_what_cannot_work_is_said_in_one_sentence(ray_cluster: Any) -> None:
    with pytest.raises(ActorError, match=r"address=auto: the cluster has \d+ CPUs, and 64 are asked for"):
        Started(make_toy(*KINDS["ray"], "parallelism.cpus_per_actor=32"))
    with closing(socket.socket()) as unanswered:
        unanswered.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unanswered.getsockname()[1]}"
        run = make_toy("parallelism=ray", f"parallelism.address='{address}'")
        with pytest.raises(ConfigError, match=f"parallelism.address={address}: nobody answers there"):
            run.parallelism.check_here()  # type: ignore[attr-defined]
    run = make_toy("parallelism=ray", "parallelism.address=nonsense")
    with pytest.raises(ConfigError, match="takes HOST:PORT"):
        run.parallelism.check_here()  # type: ignore[attr-defined]
