"""Contract of every kind of actors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import forked
import numpy as np
import pytest
import torch
from conftest import make_toy, untimed
from started import CONTRACT, GREEDY, Started, assert_contract, assert_newest_weights, assert_pauses

from dqnspeed.actors import ActorError, local
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.envs import make_vector_env
from dqnspeed.system import child_processes
from dqnspeed.tracking.metrics import Timer
from dqnspeed.training.updater import make_updater

KINDS = {
    "serial": ["num_envs=2"],
    "overlap": ["parallelism=overlap", "num_envs=2"],
    "process": ["parallelism=process", "num_envs=2"],
    "process, two actors": ["parallelism=process", "parallelism.num_actors=2", "num_envs=2"],
    "process, queue": ["parallelism=process", "parallelism.transport=queue", "num_envs=2"],
    "process, held ratio": ["parallelism=process", "parallelism.samples_per_step=16", "num_envs=2"],
}


@pytest.mark.parametrize(
    ("kind", "replay", "device"),
    [
        *((kind, "uniform", None) for kind in KINDS),
        ("process, two actors", "prioritized", None),
        ("process, queue", "prioritized", None),
        ("process, two actors", "uniform", "cpu"),
        pytest.param("process, two actors", "prioritized", "cuda", marks=pytest.mark.cuda),
    ],
)
def test_contract(kind: str, replay: str, device: str | None) -> None:
    run, where = make_toy(*CONTRACT, f"replay={replay}", *KINDS[kind]), device and torch.device(device)
    with Started(run, device=where) as started:
        assert_contract(started)
        assert_pauses(started)
        state, before = started.pause(), {**started.actors.seconds}
    assert before["acting"] > 0 and before["stepping"] > 0
    with Started(run, state, segment=1, device=where) as started:
        assert dict(started.actors.seconds) == pytest.approx(before)
        started.collect(40)
        assert started.actors.seconds["stepping"] > before["stepping"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["overlap", "process, queue"])
def test_processes_start_as_outside_tests(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "START_METHOD", forked.START_METHOD)
    with Started(make_toy(*CONTRACT, *KINDS[kind])) as started:
        assert_contract(started)
        assert_pauses(started)


class TensorFrames:
    """A vector environment whose frames are a tensor on ``device``, the same tensor at each step."""

    def __init__(self, env: Any, device: str):
        self._env, self._device = env, device
        self._frames: torch.Tensor | None = None

    def reset(self, seeds: list[int]) -> Any:
        return self._there(self._env.reset(seeds))

    def recv(self) -> Any:
        step = self._env.recv()
        return replace(step, frames=self._there(step.frames))

    def _there(self, frames: Any) -> torch.Tensor:
        newest = torch.as_tensor(frames)
        if self._frames is None:
            self._frames = torch.empty_like(newest, device=self._device)
        self._frames.copy_(newest)
        return self._frames

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize(("kind", "algo"), [("serial", "dqn"), ("overlap", "ppo")])
def test_frames_may_be_tensors(kind: str, algo: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a resume, whose checkpoint holds NumPy arrays alone."""
    own = ["algo.num_steps=64", "algo.batch_size=16"] if algo == "ppo" else ["wrappers.stack=3"]
    run = make_toy(f"algo={algo}", *own, f"device={device}", f"parallelism={kind}", "num_envs=4")
    stored = []
    for make in (make_vector_env, lambda *args, **named: TensorFrames(make_vector_env(*args, **named), device)):
        monkeypatch.setattr(local, "make_vector_env", make)
        state: dict[str, Any] | None = None
        for segment in range(2):
            with Started(run, state, segment, torch.device(device)) as started:
                started.collect(100)
                state = started.pause()
                assert not any(isinstance(leaf, torch.Tensor) for leaf in untimed(state).values())
                stored.append(untimed(state))
    np.testing.assert_equal(stored[2:], stored[:2])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", KINDS)
def test_actors_act_with_the_learners_newest_weights(kind: str, device: str) -> None:
    with Started(make_toy(*GREEDY, f"device={device}", *KINDS[kind])) as started:
        assert_newest_weights(started)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["serial", "overlap"])
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_a_step_of_training_waits_for_its_actions_alone(kind: str, replay: str) -> None:
    run = make_toy("device=cuda", "execution=graph", "algo.batch_size=16", f"replay={replay}", *KINDS[kind])
    with Started(run, device=torch.device("cuda")) as started:
        started.collect(60)
        started.learner.attach(started.buffer)
        updater = make_updater(run, started.learner, started.buffer, Timer(("sampling", "updating")))
        try:
            for step in range(20):
                if step == 10:  # by then everything is captured
                    torch.cuda.set_sync_debug_mode("error")  # ignores waits for an event
                started.actors.send()
                updater.run(2)
                started.actors.collect(math.inf, wait=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert updater.how == started.actors.how == "graph"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", ["serial", "overlap"])
def test_the_seconds_of_acting_on_a_gpu_are_the_gpus_own(kind: str, device: str) -> None:
    with Started(make_toy(*GREEDY, f"device={device}", *KINDS[kind])) as started:
        started.collect(50)
        found = started.actors.metrics()
        assert 0 < found["time/gpu_acting"] < 60 if device == "cuda" else found == {}


ON_POLICY = {
    "a2c, overlap": ["algo=a2c", "algo.num_steps=8", "parallelism=overlap"],
    "a3c, two actors": ["algo=a3c", "parallelism.num_actors=2"],
    "a3c, queue": ["algo=a3c", "parallelism.num_actors=2", "parallelism.transport=queue"],
    "ppo": ["algo=ppo"],
    "ppo, two actors": ["algo=ppo", "parallelism=process", "parallelism.num_actors=2"],
    "pqn, overlap": ["algo=pqn", "parallelism=overlap"],
}


@pytest.mark.parametrize("kind", ON_POLICY)
def test_columns_of_the_policy_are_stored_with_the_step_that_they_belong_to(kind: str) -> None:
    run = make_toy(*ON_POLICY[kind], "num_envs=2", "algo.batch_size=16", "exploration.start=0.5")
    with Started(run) as started:
        network, begin = started.network, np.zeros(run.total_envs, int)
        for version, later in ((0, 5), (5, 9)):
            started.limit = started.agent_steps + 50
            started.collect(started.agent_steps + 40)
            started.pause()
            end = started.rows()
            for i in range(run.total_envs):
                names = ["frames", "actions", "values", "versions", *(["log_probs"] if run.algo.name != "pqn" else [])]
                rows = {name: started.column(name)[i, begin[i] : end[i]] for name in names}
                assert len(set(rows["frames"][:, 0])) <= 1  # of one environment
                assert (rows["versions"] == version).all()
                with torch.no_grad():
                    if run.algo.name == "pqn":
                        values = network(torch.tensor(rows["frames"])).max(dim=1).values
                    else:
                        logits, values = network.policy_and_value(torch.tensor(rows["frames"]))
                        expected = torch.log_softmax(logits, dim=1).numpy()[np.arange(len(values)), rows["actions"]]
                        np.testing.assert_allclose(rows["log_probs"], expected, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(rows["values"], values.numpy(), rtol=1e-4, atol=1e-5)
            assert (end > begin).any()
            begin = end
            network.version.fill_(later)
            started.actors.resume()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", ["ppo", "ppo algo.correction=vtrace", "ppo parallelism=overlap", "pqn"])
def test_a_rollout_is_bootstrapped_from_observations_that_were_not_acted_on_yet(kind: str, device: str) -> None:
    graph = ["execution=graph"] if device == "cuda" else []
    run = make_toy(*f"algo={kind}".split(), "num_envs=4", "algo.num_steps=5", "algo.batch_size=10",
                   "algo.epochs=1", "wrappers.stack=2", f"device={device}", *graph)  # fmt: skip
    with Started(run, device=None if device == "cpu" else torch.device(device)) as started:
        buffer, steps = started.buffer, 5
        assert isinstance(buffer, RolloutBuffer)
        started.learner.attach(buffer)
        for rollout in range(4):
            while not (due := buffer.due(10)):
                started.actors.collect(math.inf, wait=True)
            assert started.rows().tolist() == [steps * (rollout + 1)] * 4
            with torch.no_grad():  # as the last update of a rollout would
                next(iter(started.network.parameters())).add_(0.1)
            assert buffer.bootstrap is not None
            bootstrap = buffer.bootstrap()
            for _ in range(due):
                buffer.sample(10)
            for _ in range(4):
                started.actors.collect(math.inf, wait=True)  # with the same weights
            first = started.column("values")[:, steps * (rollout + 1)]
            np.testing.assert_allclose(bootstrap, first, rtol=1e-4, atol=1e-5)


def test_serial_and_a_queued_actor_store_the_same_experience() -> None:
    """One environment, the same seed, actions all random: the transport changes nothing."""
    stored = []
    for kind in ("serial", "process", "process parallelism.transport=queue"):
        with Started(make_toy(*f"parallelism={kind}".split())) as started:
            started.collect(60)
            actions, transition = (started.column(name)[0, :59].copy() for name in ("actions", "transition"))
            stored.append((started.buffer.storage.frames_of(0, 0, 60), np.where(transition, actions, -1)))
    for frames, actions in stored[1:]:
        np.testing.assert_array_equal(frames, stored[0][0])
        np.testing.assert_array_equal(actions, stored[0][1])


SHAPE = r"has the shape \(2,\) after 10 steps of a game, and its space"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how", "sentence"),
    [
        ("serial", "stop", "the toy broke"),
        ("serial", "exit", "SystemExit"),
        ("serial", "shape", SHAPE),
        ("overlap", "leave", "the toy broke"),
        ("overlap", "exit", "SystemExit"),
        ("overlap", "die", "process died"),
        ("overlap", "hang", "not answered for 2 s"),
        ("process", "raise", "the toy broke"),
        ("process", "shape", SHAPE),
        ("process", "die", "was killed by SIGKILL"),
    ],
)
def test_an_environment_that_breaks_is_reported_within_seconds(kind: str, how: str, sentence: str) -> None:
    run = make_toy(
        "env.id=toy_envs:Broken-v0", f"env.kwargs={{how: {how}}}", f"parallelism={kind}", "num_envs=2",
        f"parallelism.timeout_s={2 if how == 'hang' else 60}",
    )  # fmt: skip
    with Started(run) as started, pytest.raises(ActorError, match=sentence) as raised:
        started.collect(10_000)
    if how not in ("die", "hang"):
        assert str(raised.value).count("Traceback") == 1 and "died" not in str(raised.value)


@pytest.mark.parametrize("kind", ["overlap", "process parallelism.num_actors=2"])
def test_the_global_generators_of_child_processes_follow_the_seed_and_differ(kind: str) -> None:
    run = make_toy("env.id=toy_envs:Dice-v0", *f"parallelism={kind}".split(), "num_envs=2")
    seen = []
    for segment in (0, 0, 1):
        with Started(run, segment=segment) as started:
            while started.rows().min() < 5:
                started.collect(started.agent_steps + 1)
            seen.append([np.array(list(started.buffer.storage.frames_of(i, 0, 5))) for i in range(run.total_envs)])
    first, again, resumed = seen
    np.testing.assert_array_equal(first, again)
    draws = [float(frame[1]) for envs in (first, resumed) for frames in envs for frame in frames]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("kind", ["overlap", "process"])
def test_an_environment_may_end_a_process_of_its_own_and_print_where_nobody_reads(kind: str) -> None:
    run = make_toy("env.id=toy_envs:Broken-v0", "env.kwargs={how: starts another}", f"parallelism={kind}")
    with Started(run) as started:
        started.collect(5)
