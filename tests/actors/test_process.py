"""Actor processes: broken ones, their replacement, and copies of the learner's weights."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import torch
from conftest import TOY, environment, make_toy
from started import GREEDY, Started, actor_process, assert_newest_weights

from dqnspeed.actors import ActorArguments, ActorError, NewGames, make_actors
from dqnspeed.actors.process import ProcessActors, WeightPublisher
from dqnspeed.actors.worker import WeightSnapshot
from dqnspeed.algorithms import make_buffer, make_learner
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.networks.base import Network
from dqnspeed.training.state_file import load, save


def kill(index: int, number: signal.Signals = signal.SIGKILL) -> None:
    pid = actor_process(index).pid
    assert pid is not None
    os.kill(pid, number)


def test_an_actor_that_was_not_paused_is_not_saved_as_it_was_at_an_earlier_pause() -> None:
    """A run may end without a pause, if no actor is left: the buffer then has later rows than the state."""
    with Started(make_toy("parallelism=process")) as started:
        started.collect(40)
        assert "env" in started.pause()["actors"]["0"]
        started.actors.resume()
        started.collect(started.agent_steps + 40)
        assert "env" not in started.actors.state_dict()["0"]


def test_an_actor_that_hangs_is_told_from_one_that_waits_for_a_learner_that_looks_seldom() -> None:
    run = make_toy("parallelism=process", "parallelism.transport=queue", "parallelism.timeout_s=1")
    with Started(run) as started:
        for _ in range(2):
            time.sleep(1.5)  # an update
            started.actors.collect(math.inf, wait=False)
    run = make_toy(
        "env.id=toy_envs:Broken-v0", "env.kwargs={how: hang}", "parallelism=process", "parallelism.timeout_s=1"
    )
    with Started(run) as started, pytest.raises(ActorError, match="its stack is printed above"):
        for _ in range(8):
            time.sleep(0.6)
            started.actors.collect(math.inf, wait=False)


def test_an_actor_that_cannot_start_says_why() -> None:
    run = make_toy("parallelism=process")
    spec = describe(run)
    broken = make_toy("parallelism=process", "env.id=toy_envs:Broken-v0", "env.kwargs={how: raise, nonsense: 1}")
    buffer = make_buffer(run, spec)
    learner = make_learner(run, spec, torch.device("cpu"))
    with pytest.raises(ActorError, match="nonsense"):
        make_actors(ActorArguments(broken, spec, learner.network, buffer, torch.device("cpu")))
    buffer.close()


@pytest.mark.cuda
def test_an_actor_that_is_killed_gives_its_memory_of_the_gpu_back() -> None:
    with Started(make_toy("device=cuda", "parallelism=process")) as started:
        started.collect(50)
        free = torch.cuda.mem_get_info()[0]
        kill(0)
        with pytest.raises(ActorError, match="SIGKILL"):
            started.collect(10**9)
        while torch.cuda.mem_get_info()[0] < free + 10**8:  # its context alone takes more
            time.sleep(0.1)
        assert all(torch.isfinite(parameter).all() for parameter in started.network.parameters())


def test_a_lost_actor_is_replaced_and_no_transition_crosses_the_gap() -> None:
    run = make_toy("parallelism=process", "parallelism.num_actors=2", "num_envs=2", "parallelism.restart_actors=true")
    with Started(run) as started:
        started.collect(200)
        assert started.actors.metrics() == {"perf/actors": 2, "perf/policy_lag": 0}
        lost, env_index = actor_process(1), 2
        for index in (0, 1):
            kill(index, signal.SIGUSR2)  # as a cluster sends it to all processes of a job
        seconds = {**started.actors.seconds}
        kill(1)
        reasons, events = list[str](), list[Any]()
        while not reasons or started.actors.metrics()["perf/actors"] < 2:
            collected = started.actors.collect(math.inf, wait=True)
            reasons += collected.lost
            events += [event for event in collected.episodes if isinstance(event, NewGames)]
        assert events == [NewGames(range(2, 4), begun=False), NewGames(range(2, 4))]
        assert reasons == ["actor 1 was killed by SIGKILL."] and actor_process(1) is not lost
        before = started.buffer.storage.rows_written(env_index)
        while started.buffer.storage.rows_written(env_index) < before + 20:
            started.actors.collect(math.inf, wait=True)
        frames = started.buffer.storage.frames_of(env_index, 0, started.buffer.storage.rows_written(env_index))
        assert len({tuple(seed) for seed in frames[:, :1]}) == 2  # games of both, with seeds of their own
        batch = started.buffer.sample(2000)
        np.testing.assert_array_equal(batch.observations[:, :2], batch.next_observations[:, :2])
        assert all(started.actors.seconds[name] >= before for name, before in seconds.items())
        assert set(started.pause()["actors"]) == {"0", "1"}


def test_actors_that_break_before_their_first_step_end_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    run = make_toy(
        "env.id=toy_envs:Broken-v0", f"env.kwargs={{how: raise at once, folder: {folder}}}", "parallelism=process",
        "parallelism.restart_actors=true",
    )  # fmt: skip
    with Started(run) as started:
        started.collect(20)
        folder.mkdir()
        reasons = list[str]()
        with pytest.raises(ActorError, match="the toy broke"):
            while True:
                reasons += started.actors.collect(math.inf, wait=True).lost
        assert len(reasons) > 1  # it was tried again


def test_weights_that_find_no_room_in_shared_memory_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(network: Network) -> None:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    run = make_toy("parallelism=process")
    spec, device = describe(run), torch.device("cpu")
    buffer, network = make_buffer(run, spec), make_learner(run, spec, device).network
    monkeypatch.setattr(Network, "share_memory", full)
    with pytest.raises(ConfigError, match=r"^parallelism=process: \d.* of shared memory could not be had \(.*No space"):
        make_actors(ActorArguments(run, spec, network, buffer, device))
    buffer.close()


def test_environments_that_were_stopped_with_the_run_are_not_silent(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(
        """
import multiprocessing, os, subprocess, sys
from dqnspeed import compose
from dqnspeed.envs import make_vector_env

def main():
    env = make_vector_env(compose(sys.argv[1:]), overlap=True)
    env.reset([1, 2])
    for step in range(12):
        env.send([0, 0])
        if step == 9:  # a slow step
            pids = " ".join(str(pid) for pid in [os.getpid(), *(one.pid for one in multiprocessing.active_children())])
            how = f"sleep 0.5; kill -STOP {pids}; sleep 3; kill -CONT {pids}"
            stopped = subprocess.Popen(["sh", "-ec", how])
        env.recv()
    assert stopped.wait() == 0
    env.close()
"""
    )
    slow = ["num_envs=2", "parallelism.timeout_s=2", "env.id=toy_envs:Broken-v0", "env.kwargs={how: slow}"]
    found = forked.run("stopped", *TOY, *slow, cwd=tmp_path, env=environment(), timeout=120)
    assert found.returncode == 0, found.stderr


def test_actors_with_copies_of_the_weights_act_with_the_newest() -> None:
    """Actors of a learner on a GPU have copies."""
    run = make_toy(*GREEDY, "parallelism=process", "parallelism.num_actors=2", "num_envs=2")
    with Started(run, make=lambda arguments: ProcessActors(arguments, copy_weights=True)) as started:
        assert_newest_weights(started)


def copied_weights(folder: Path) -> tuple[Network, Network, WeightSnapshot]:
    """Network of a learner, network of a worker, and the snapshot between them."""
    run = make_toy()
    network, own = (make_learner(run, describe(run), torch.device("cpu")).network for _ in range(2))
    return network, own, WeightSnapshot(network, folder / "weights.lock")


def test_the_background_that_a_learner_measures_reaches_copies_before_the_first_update(tmp_path: Path) -> None:
    run = make_toy("model.background=true")
    learner, own = (make_learner(run, describe(run), torch.device("cpu")) for _ in range(2))
    snapshot = WeightSnapshot(learner.network, tmp_path / "weights.lock")
    publisher = WeightPublisher(learner.network, snapshot)
    learner.on_training_start(np.full((5, 3), 7, np.float32))
    publisher.publish()
    snapshot.refresh(own.network)
    assert (own.network.preprocess.background == 7).all() and int(own.network.version) == 0
    save(tmp_path / "state", learner.state_dict())
    own.load_state_dict(load(tmp_path / "state"))
    assert int(own.network.version) == 0


def test_copied_weights_are_never_of_two_versions(tmp_path: Path) -> None:
    network, own, snapshot = copied_weights(tmp_path)
    publisher, stop = WeightPublisher(network, snapshot), threading.Event()

    def learn() -> None:
        while not stop.is_set():
            with torch.no_grad():
                network.version.add_(1)
                for parameter in network.parameters():
                    parameter.fill_(int(network.version))
            publisher.publish()

    learner = threading.Thread(target=learn)
    learner.start()
    seen = set[int]()
    try:
        while len(seen) < 20:
            snapshot.refresh(own)
            if int(own.version):
                values = {float(v) for p in own.parameters() for v in (p.detach().min(), p.detach().max())}
                assert values == {float(own.version)}
                seen.add(int(own.version))
    finally:
        stop.set()
        learner.join()


READING = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"


def test_the_learner_never_waits_for_a_worker_that_reads_and_a_killed_worker_holds_no_lock(tmp_path: Path) -> None:
    network, own, snapshot = copied_weights(tmp_path)
    publisher = WeightPublisher(network, snapshot)
    command, pipe = [sys.executable, "-c", READING, tmp_path / "weights.lock"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as worker:
        try:
            assert worker.stdout is not None and worker.stdout.readline() == b"\n"
            network.version.fill_(1)
            publisher.publish()
            snapshot.refresh(own)  # beside the other
            assert int(own.version) == 0
        finally:
            worker.kill()
    publisher.publish()
    snapshot.refresh(own)
    assert int(own.version) == 1
