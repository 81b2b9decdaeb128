"""The contract of every parallelism, and what happens when an actor breaks."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import torch
from conftest import TOY, environment, make_toy, shared_memory_of, untimed

from dqnspeed.actors import ActorArguments, ActorError, Actors, local, make_actors, process
from dqnspeed.actors.process import ProcessActors, ProcessLink
from dqnspeed.actors.stepper import NewGames, env_seeds
from dqnspeed.actors.weights import HostWeights, Publisher
from dqnspeed.algorithms import make_buffer, make_learner
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import Episode, VectorEnv, describe, make_vector_env
from dqnspeed.envs.backends import RawStep
from dqnspeed.execution.arrays import host
from dqnspeed.networks.base import Network
from dqnspeed.tracking.metrics import Timer
from dqnspeed.training.state_file import load, save
from dqnspeed.training.updates import make_updates

KINDS = {
    "serial": ["num_envs=2"],
    "overlap": ["parallelism=overlap", "num_envs=2"],
    "process": ["parallelism=process", "num_envs=2"],
    "process, two actors": ["parallelism=process", "parallelism.num_actors=2", "num_envs=2"],
    "process, queue": ["parallelism=process", "parallelism.transport=queue", "num_envs=2"],
    "process, held ratio": ["parallelism=process", "parallelism.samples_per_step=16", "num_envs=2"],
}
CONTRACT = ["algo.n_step=3", "exploration.decay_start=0", "exploration.decay_steps=100", "replay.buffer_size=2000"]
GREEDY = ["exploration.start=0", "exploration.final=0"]


class Started:
    """Actors with their replay, as the trainer would make them."""

    def __init__(
        self,
        run: RunConfig,
        state: dict[str, Any] | None = None,
        segment: int = 0,
        holds: torch.device | None = None,
    ):
        self.run = run
        spec, device = describe(run), torch.device("cuda" if run.device == "cuda" else "cpu")
        torch.manual_seed(0)
        self.learner = make_learner(run, spec, device)
        self.replay = make_buffer(run, spec, device=holds)
        if state:
            self.replay.load_state_dict(state["replay"])
        self.actors: Actors = make_actors(
            ActorArguments(run, spec, self.learner.network, self.replay, device, state and state["actors"], segment)
        )
        self.new_games = self.actors.begin().episodes
        self.agent_steps, self.episodes, self.limit = 0, list[Episode](), math.inf

    def collect(self, steps: int) -> None:
        deadline = time.monotonic() + 60
        # Rows that were counted may still be in a pipe.
        while self.agent_steps < steps or self.replay.storage.written.sum() < steps:
            self.actors.dispatch()
            collected = self.actors.collect(self.limit, wait=True)
            self.agent_steps += collected.agent_steps
            self.episodes += [game for game in collected.episodes if isinstance(game, Episode)]
            assert time.monotonic() < deadline

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.actors.close()
        self.replay.close()


@pytest.mark.parametrize(
    ("kind", "replay", "holds"),
    [
        *((kind, "uniform", None) for kind in KINDS),
        ("process, two actors", "prioritized", None),
        ("process, queue", "prioritized", None),
        ("process, two actors", "uniform", "cpu"),
        pytest.param("process, two actors", "prioritized", "cuda", marks=pytest.mark.cuda),
    ],
)
def test_contract(kind: str, replay: str, holds: str | None) -> None:
    run = make_toy(*CONTRACT, f"replay={replay}", *KINDS[kind])
    with Started(run, holds=torch.device(holds) if holds else None) as started:
        assert_contract(started)


def assert_contract(started: Started) -> None:
    """Frames say (seed, episode, step), so every sampled transition can be checked on its own."""
    run, lanes = started.run, started.run.total_envs
    started.collect(150)
    while started.replay.storage.written.min() < 40 or len({game.env for game in started.episodes}) < lanes:
        started.collect(started.agent_steps + 1)  # an actor may be slow to begin
    batch = started.replay.sample(400)
    if batch.reprioritize is not None:
        batch.reprioritize(torch.ones(400))  # whatever came since
    games = list(started.episodes)
    assert [lane for new in started.new_games for lane in new.envs] == [*range(lanes)]  # type: ignore[union-attr]

    seeds = {s % 1000 for actor in range(run.parallelism.num_actors) for s in env_seeds(run.seed, actor, run.num_envs)}
    before, after = host(batch.observations), host(batch.next_observations)
    assert len(seeds) == lanes and set(before[:, 0].astype(int)) == seeds
    np.testing.assert_array_equal(before[:, :2], after[:, :2])  # no transition crosses an episode's end
    taken = (after[:, 2] - before[:, 2]).astype(int)
    left = 7 - before[:, 2].astype(int)
    np.testing.assert_array_equal(taken, np.minimum(3, left))
    terminated = (left <= 3) & (before[:, 1] % 2 == 0)
    np.testing.assert_allclose(host(batch.discounts), np.where(terminated, 0, 0.99**taken), rtol=1e-5)
    # The first reward is 10 * action + step, and later rewards lie within what any action gives.
    rest = host(batch.rewards) - (10 * host(batch.actions) + before[:, 2] + 1)
    lowest = sum(0.99**k * (before[:, 2] + k + 1) * (taken > k) for k in (1, 2))
    assert (rest >= lowest - 1e-3).all() and (rest <= lowest + 20 * 2).all()

    assert games and all(game.length == 7 for game in games)
    assert {game.env for game in games} == set(range(lanes))


class TensorBackend:
    """A backend whose frames are tensors on ``device``, and always the same ones, which the next step overwrites."""

    def __init__(self, backend: Any, device: str):
        self._backend, self._device, self.num_envs, self.device = backend, device, backend.num_envs, None
        self._frames: torch.Tensor | None = None

    def reset(self, seeds: list[int]) -> RawStep:
        return self._there(self._backend.reset(seeds))

    def recv(self) -> RawStep:
        return self._there(self._backend.recv())

    def _there(self, step: RawStep) -> RawStep:
        frames = torch.as_tensor(step.frames)
        if self._frames is None:
            self._frames = torch.empty_like(frames, device=self._device)
        self._frames.copy_(frames)
        return replace(step, frames=self._frames)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("algo", ["dqn", "ppo"])
@pytest.mark.parametrize("kind", ["serial", "overlap"])
def test_environments_whose_frames_are_tensors_are_acted_on_and_stored_alike(
    kind: str, algo: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a resume, whose checkpoint holds NumPy's arrays alone."""
    own = ["algo.num_steps=64", "algo.batch_size=16"] if algo == "ppo" else ["wrappers.stack=3"]
    run = make_toy(f"algo={algo}", *own, f"device={device}", f"parallelism={kind}", "num_envs=4")

    def made(*args: Any, **named: Any) -> VectorEnv:
        env = make_vector_env(*args, **named)
        env._backend = TensorBackend(env._backend, device)
        return env

    stored = []
    for maker in (make_vector_env, made):
        monkeypatch.setattr(local, "make_vector_env", maker)
        state: dict[str, Any] | None = None
        for segment in range(2):
            with Started(run, state, segment, torch.device(device)) as started:
                started.collect(100)
                started.actors.pause()
                state = {"actors": started.actors.state_dict(), "replay": started.replay.state_dict()}
                assert not any(isinstance(leaf, torch.Tensor) for leaf in untimed(state).values())
                stored.append(untimed(state))
    np.testing.assert_equal(stored[2:], stored[:2])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", KINDS)
def test_actors_act_with_the_learners_newest_weights(kind: str, device: str) -> None:
    with Started(make_toy(*GREEDY, f"device={device}", *KINDS[kind])) as started:
        assert_newest_weights(started)


class CopyingActors(ProcessActors):
    """Hands the weights over as those on a GPU."""

    def _link(self, index: int, state: Mapping[str, Any] | None, segment: int) -> ProcessLink:
        if self._publisher is None:
            network = self._arguments.network
            self._weights = HostWeights(network, Path(self._dumps.name) / "weights.lock")
            self._publisher = Publisher(network, self._weights)
        return super()._link(index, state, segment)


def test_actors_with_copies_act_with_the_newest_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ProcessActors", CopyingActors)
    with Started(make_toy(*GREEDY, *KINDS["process, two actors"])) as started:
        assert_newest_weights(started)


def assert_newest_weights(started: Started) -> None:
    for action in (2, 1):
        with torch.no_grad():
            started.learner.network.q[-1].bias[action] += 1000  # type: ignore[index, union-attr]
            started.learner.network.version.add_(1)
            float(started.learner.network.q[-1].bias[action])  # type: ignore[index, union-attr]  # waits for a GPU
        started.collect(started.agent_steps + 100)  # what was under way before the change
        begin = started.replay.storage.written.copy()
        started.collect(started.agent_steps + 100)
        while not (started.replay.storage.written > begin).all():
            started.collect(started.agent_steps + 1)
        end = started.replay.storage.written.copy()
        for lane, actions in enumerate(started.replay.storage.columns["actions"]):
            np.testing.assert_array_equal(actions[begin[lane] : end[lane]], action)
        with torch.no_grad():
            started.learner.network.q[-1].bias[action] -= 1000  # type: ignore[index, union-attr]


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["serial", "overlap"])
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_a_step_of_training_waits_for_its_actions_alone(kind: str, replay: str) -> None:
    run = make_toy("device=cuda", "execution=graph", "algo.batch_size=16", f"replay={replay}", *KINDS[kind])
    with Started(run, holds=torch.device("cuda")) as started:
        started.collect(60)
        started.learner.attach(started.replay)
        updates = make_updates(run, started.learner, started.replay, Timer(("sampling", "updating")))
        try:
            for step in range(20):
                if step == 10:  # by then all is captured
                    torch.cuda.set_sync_debug_mode("error")  # a wait for an event is none for the device
                started.actors.dispatch()
                updates.do(2)
                started.actors.collect(math.inf, wait=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert updates.how == started.actors.how == "graph"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", ["serial", "overlap"])
def test_the_seconds_of_acting_on_a_gpu_are_the_gpus_own(kind: str, device: str) -> None:
    with Started(make_toy(*GREEDY, f"device={device}", *KINDS[kind])) as started:
        started.collect(50)
        found = started.actors.metrics()
        assert 0 < found["time/gpu_acting"] < 60 if device == "cuda" else found == {}


ON_POLICY = {
    "a2c": ["algo=a2c", "algo.num_steps=8"],
    "a2c, overlap": ["algo=a2c", "algo.num_steps=8", "parallelism=overlap"],
    "a3c, two actors": ["algo=a3c", "parallelism.num_actors=2"],
    "a3c, queue": ["algo=a3c", "parallelism.num_actors=2", "parallelism.transport=queue"],
    "ppo": ["algo=ppo"],
    "ppo, overlap": ["algo=ppo", "parallelism=overlap"],
    "ppo, process": ["algo=ppo", "parallelism=process"],
    "ppo, two actors": ["algo=ppo", "parallelism=process", "parallelism.num_actors=2"],
    "pqn, overlap": ["algo=pqn", "parallelism=overlap"],
    "pqn, process": ["algo=pqn", "parallelism=process"],
}


@pytest.mark.parametrize("kind", ON_POLICY)
def test_what_the_policy_knew_is_kept_with_the_step_it_was_for(kind: str) -> None:
    run = make_toy(*ON_POLICY[kind], "num_envs=2", "algo.batch_size=16", "exploration.start=0.5")
    with Started(run) as started:
        network, columns = started.learner.network, started.replay.storage.columns
        begin = np.zeros(run.total_envs, int)
        for version, later in ((0, 5), (5, 9)):
            started.limit = started.agent_steps + 50
            started.collect(started.agent_steps + 40)
            started.agent_steps += started.actors.pause().agent_steps
            end = started.replay.storage.written.copy()
            for lane in range(run.total_envs):
                rows = {name: column[lane, begin[lane] : end[lane]] for name, column in columns.items()}
                assert len(set(rows["frames"][:, 0])) <= 1  # of one environment
                assert (rows["versions"] == version).all()
                with torch.no_grad():
                    if run.algo.name == "pqn":
                        values = network(torch.tensor(rows["frames"])).max(dim=1).values
                    else:
                        logits, values = network.policy_and_value(torch.tensor(rows["frames"]))  # type: ignore[operator]
                        expected = torch.log_softmax(logits, dim=1).numpy()[np.arange(len(values)), rows["actions"]]
                        np.testing.assert_allclose(rows["log_probs"], expected, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(rows["values"], values.numpy(), rtol=1e-4, atol=1e-5)
            assert (end > begin).any()
            begin = end
            network.version.fill_(later)  # type: ignore[operator]
            started.actors.proceed()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", ["ppo", "ppo algo.correction=vtrace", "ppo parallelism=overlap", "pqn"])
def test_a_rollout_is_bootstrapped_from_what_nobody_has_acted_on_yet(kind: str, device: str) -> None:
    graph = ["execution=graph"] if device == "cuda" else []
    run = make_toy(*f"algo={kind}".split(), "num_envs=4", "algo.num_steps=5", "algo.batch_size=10",
                   "algo.epochs=1", "wrappers.stack=2", f"device={device}", *graph)  # fmt: skip
    with Started(run, holds=None if device == "cpu" else torch.device(device)) as started:
        buffer, steps = started.replay, 5
        assert isinstance(buffer, RolloutBuffer)
        started.learner.attach(buffer)
        for learnt in range(4):
            while not (due := buffer.due(10)):
                started.actors.collect(math.inf, wait=True)
            assert buffer.storage.cursors().tolist() == [steps * (learnt + 1)] * 4
            with torch.no_grad():  # as the last update of a rollout would
                next(iter(started.learner.network.parameters())).add_(0.1)
            assert buffer.bootstrap is not None
            bootstrap = buffer.bootstrap()
            for _ in range(due):
                buffer.sample(10)
            for _ in range(4):
                started.actors.collect(math.inf, wait=True)  # with the same weights
            first = buffer.storage.columns["values"][:, steps * (learnt + 1)]
            np.testing.assert_allclose(bootstrap, first, rtol=1e-4, atol=1e-5)


def test_the_halves_of_an_overlap_take_turns_over_pauses_and_resumes() -> None:
    run = make_toy("algo=ppo", "parallelism=overlap", "num_envs=2", "algo.num_steps=64", "algo.batch_size=16")
    state: dict[str, Any] | None = None
    for _ in range(3):
        with Started(run, state) as started:
            for _ in range(2):  # and the step that a pause waits for: one group moves twice
                started.actors.collect(math.inf, wait=True)
            started.actors.pause()
            assert started.replay.storage.rows(0) - started.replay.storage.rows(1) in (0, 1)
            state = {"actors": started.actors.state_dict(), "replay": started.replay.state_dict()}


def test_serial_and_a_queued_actor_store_the_same_experience() -> None:
    """One environment, the same seed, actions all random: the transport changes nothing."""
    stored = []
    for kind in (
        ["parallelism=serial"],
        ["parallelism=process", "parallelism.transport=queue"],
        ["parallelism=process"],
    ):
        with Started(make_toy(*kind)) as started:
            started.collect(60)
            stored.append(started.replay.storage.frames_of(0, 0, 60))
            actions = started.replay.storage.flat["actions"][:59].copy()
            transition = started.replay.storage.flat["transition"][:59].copy()
            stored.append(np.where(transition, actions, -1))
    for other in (stored[2:4], stored[4:6]):
        np.testing.assert_array_equal(other[0], stored[0])
        np.testing.assert_array_equal(other[1], stored[1])


@pytest.mark.parametrize("kind", KINDS)
def test_paused_actors_rest_and_tell_all_they_need_to_go_on(kind: str) -> None:
    with Started(make_toy(*KINDS[kind])) as started:
        assert_pauses(started)


def assert_pauses(started: Started) -> None:
    started.collect(40)
    for _ in range(20):  # one pause right after the other
        started.agent_steps += started.actors.pause().agent_steps
        state = started.actors.state_dict()
        rows = started.replay.cursors().tolist()
        assert sum(actor["agent_steps"] for actor in state.values()) == started.agent_steps
        time.sleep(0.002)
        assert started.replay.cursors().tolist() == rows
        started.actors.proceed()
    started.collect(started.agent_steps + 40)


def test_an_actor_that_was_not_paused_is_not_saved_as_it_was_at_an_earlier_pause() -> None:
    """As where a run ends because none is left: its games would go on where the memory has others by now."""
    with Started(make_toy("parallelism=process")) as started:
        started.collect(40)
        started.agent_steps += started.actors.pause().agent_steps
        assert "env" in started.actors.state_dict()["0"]
        started.actors.proceed()
        started.collect(started.agent_steps + 40)
        assert set(started.actors.state_dict()["0"]) == {"agent_steps", "seconds"}


def test_actors_stop_at_the_limit() -> None:
    with Started(make_toy("parallelism=process", "parallelism.samples_per_step=8")) as started:
        for limit in (110, 150):
            started.limit = limit
            started.collect(limit)
            time.sleep(0.3)
            assert int(started.actors._controls.slots["agent_steps"].sum()) == limit  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["raise", "hang", "die"])
def test_a_broken_actor_stops_the_run_within_seconds_and_says_why(how: str) -> None:
    run = make_toy(
        "env.id=toy_envs:Broken-v0", f"env.kwargs={{how: {how}}}", "parallelism=process", "parallelism.num_actors=2",
        f"parallelism.timeout_s={3 if how == 'hang' else 60}",
    )  # fmt: skip
    expected = {"raise": "the toy broke", "hang": "hang_in_the_toy", "die": "was killed by SIGKILL"}[how]
    with Started(run) as started, pytest.raises(ActorError, match=expected):
        started.collect(10_000)


def test_an_actor_that_hangs_is_noticed_by_a_learner_that_looks_seldom() -> None:
    run = make_toy(
        "env.id=toy_envs:Broken-v0", "env.kwargs={how: hang}", "parallelism=process", "parallelism.timeout_s=2"
    )
    with Started(run) as started, pytest.raises(ActorError, match="hang_in_the_toy"):
        for _ in range(8):
            time.sleep(1.1)  # an update
            started.actors.collect(math.inf, wait=False)


def test_a_learner_that_looks_seldom_takes_no_actor_that_waits_for_it_for_one_that_hangs() -> None:
    run = make_toy("parallelism=process", "parallelism.transport=queue", "parallelism.timeout_s=2")
    with Started(run) as started:
        for _ in range(2):
            time.sleep(3)
            started.actors.collect(math.inf, wait=False)


@pytest.mark.parametrize("kind", ["serial", "overlap", "process"])
@pytest.mark.parametrize("how", ["raise", "stop", "leave", "shape"])
def test_what_an_environment_raises_is_reported_once_with_its_own_traceback(kind: str, how: str) -> None:
    run = make_toy("env.id=toy_envs:Broken-v0", f"env.kwargs={{how: {how}}}", f"parallelism={kind}")
    shape = r"has the shape \(2,\) after 10 steps of a game, and its space"
    expected = {"shape": shape}.get(how, "the toy broke")
    with Started(run) as started, pytest.raises(ActorError, match=expected) as raised:
        started.collect(10_000)
    assert str(raised.value).count("Traceback") == 1 and "died" not in str(raised.value)


@pytest.mark.parametrize("kind", ["overlap", "process parallelism.num_actors=2"])
def test_the_global_generators_of_child_processes_follow_the_seed_and_differ(kind: str) -> None:
    run = make_toy("env.id=toy_envs:Dice-v0", *f"parallelism={kind}".split(), "num_envs=2")
    seen = []
    for segment in (0, 0, 1):
        with Started(run, segment=segment) as started:
            lanes = range(run.total_envs)
            while min(map(started.replay.storage.rows, lanes)) < 5:
                started.collect(started.agent_steps + 1)
            seen.append([np.array(list(started.replay.storage.frames_of(lane, 0, 5))) for lane in lanes])
    first, again, resumed = seen
    np.testing.assert_array_equal(first, again)
    draws = [float(frame[1]) for lanes in (first, resumed) for frames in lanes for frame in frames]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("kind", ["overlap", "process"])
def test_an_environment_may_end_a_process_of_its_own_in_a_child_and_talk_where_nobody_listens(kind: str) -> None:
    run = make_toy("env.id=toy_envs:Broken-v0", "env.kwargs={how: starts another}", f"parallelism={kind}")
    with Started(run) as started:
        started.collect(5)


def test_an_actor_that_cannot_start_says_why() -> None:
    run = make_toy("parallelism=process")
    spec = describe(run)
    broken = make_toy("parallelism=process", "env.id=toy_envs:Broken-v0", "env.kwargs={how: raise, nonsense: 1}")
    replay = make_buffer(run, spec)
    learner = make_learner(run, spec, torch.device("cpu"))
    with pytest.raises(ActorError, match="nonsense"):
        make_actors(ActorArguments(broken, spec, learner.network, replay, torch.device("cpu")))
    replay.close()


def copied_weights(folder: Path) -> tuple[Network, Network, HostWeights]:
    """A learner's network, an actor's, and the copy between them."""
    run = make_toy()
    network, own = (make_learner(run, describe(run), torch.device("cpu")).network for _ in range(2))
    return network, own, HostWeights(network, folder / "weights.lock")


def test_the_background_that_a_learner_measures_reaches_copies_before_the_first_update(tmp_path: Path) -> None:
    run = make_toy("model.background=true")
    learner, own = (make_learner(run, describe(run), torch.device("cpu")) for _ in range(2))
    weights = HostWeights(learner.network, tmp_path / "weights.lock")
    publisher = Publisher(learner.network, weights)
    learner.begin(np.full((5, 3), 7, np.float32))
    publisher.publish()
    weights.load_into(own.network)
    assert (own.network.preprocess.background == 7).all() and int(own.network.version) == 0
    save(tmp_path / "state", learner.state_dict())
    own.load_state_dict(load(tmp_path / "state"))
    assert int(own.network.version) == 0


def test_copied_weights_are_never_of_two_versions(tmp_path: Path) -> None:
    network, own, weights = copied_weights(tmp_path)
    publisher, stop = Publisher(network, weights), threading.Event()

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
            weights.load_into(own)
            if int(own.version):
                values = {float(v) for p in own.parameters() for v in (p.detach().min(), p.detach().max())}
                assert values == {float(own.version)}
                seen.add(int(own.version))
    finally:
        stop.set()
        learner.join()


READING = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"


def test_the_learner_never_waits_for_an_actor_that_reads_and_a_killed_one_reads_no_more(tmp_path: Path) -> None:
    network, own, weights = copied_weights(tmp_path)
    publisher = Publisher(network, weights)
    command, pipe = [sys.executable, "-c", READING, tmp_path / "weights.lock"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as actor:
        try:
            assert actor.stdout is not None and actor.stdout.readline() == b"\n"
            network.version.fill_(1)
            publisher.publish()
            weights.load_into(own)  # beside the other
            assert int(own.version) == 0
        finally:
            actor.kill()
    publisher.publish()
    weights.load_into(own)
    assert int(own.version) == 1


def test_killing_an_actor_from_outside_is_noticed() -> None:
    with Started(make_toy("parallelism=process")) as started:
        started.collect(50)
        os.kill(started.actors._links[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(ActorError, match="SIGKILL"):
            started.collect(10**9)


@pytest.mark.cuda
def test_an_actor_that_is_killed_gives_its_memory_of_the_gpu_back() -> None:
    with Started(make_toy("device=cuda", "parallelism=process")) as started:
        started.collect(50)
        free = torch.cuda.mem_get_info()[0]
        os.kill(started.actors._links[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(ActorError, match="SIGKILL"):
            started.collect(10**9)
        deadline = time.monotonic() + 30
        while torch.cuda.mem_get_info()[0] < free + 10**8:  # its context alone takes more
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert all(torch.isfinite(parameter).all() for parameter in started.learner.network.parameters())


def test_a_lost_actor_is_replaced_and_no_transition_crosses_the_gap() -> None:
    run = make_toy("parallelism=process", "parallelism.num_actors=2", "num_envs=2", "parallelism.restart_actors=true")
    with Started(run) as started:
        links = started.actors._links  # type: ignore[attr-defined]
        started.collect(200)
        assert started.actors.metrics() == {"perf/actors": 2, "perf/policy_lag": 0}
        lost, lane = links[1], 2
        for link in links.values():
            os.kill(link.process.pid, signal.SIGUSR2)  # as a cluster does, to all processes of a job
        seconds = {**started.actors.seconds}
        os.kill(lost.process.pid, signal.SIGKILL)
        said, deadline, events = list[str](), time.monotonic() + 60, list[Any]()
        while not said or started.actors.metrics()["perf/actors"] < 2:
            collected = started.actors.collect(math.inf, wait=True)
            said += collected.lost
            events += [event for event in collected.episodes if isinstance(event, NewGames)]
            assert time.monotonic() < deadline
        assert events == [NewGames(range(2, 4), begun=False), NewGames(range(2, 4))]
        assert said == ["actor 1 was killed by SIGKILL."] and links[1] is not lost
        before = started.replay.storage.rows(lane)
        while started.replay.storage.rows(lane) < before + 20:
            started.actors.collect(math.inf, wait=True)
        frames = started.replay.storage.frames_of(lane, 0, started.replay.storage.rows(lane))
        assert len({tuple(seed) for seed in frames[:, :1]}) == 2  # the games of both, with seeds of their own
        batch = started.replay.sample(2000)
        np.testing.assert_array_equal(batch.observations[:, :2], batch.next_observations[:, :2])
        assert all(started.actors.seconds[name] >= before for name, before in seconds.items())
        started.actors.pause()
        assert set(started.actors.state_dict()) == {"0", "1"}


def test_environments_that_were_stopped_with_the_run_are_no_silent_ones(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(
        """
import os, subprocess, sys
from dqnspeed import compose
from dqnspeed.envs import make_vector_env

def main():
    env = make_vector_env(compose(sys.argv[1:]), overlap=True)
    env.reset([1, 2])
    for step in range(12):
        env.send([0, 0])
        if step == 9:  # which takes them a while
            pids = " ".join(str(pid) for pid in [os.getpid(), *(one.pid for one in env._backend.env.processes)])
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


def test_an_actor_that_breaks_again_before_it_stepped_ends_the_run() -> None:
    run = make_toy(
        "env.id=toy_envs:Broken-v0", "env.kwargs={how: raise}", "parallelism=process", "parallelism.restart_actors=true"
    )
    with Started(run) as started, pytest.raises(ActorError, match="the toy broke"):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            collected = started.actors.collect(math.inf, wait=True)
            if collected.lost:  # the next one is broken from its first step on
                started.actors._steps_at_start[0] = 10**9  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", ["dqn", "a3c"])
def test_weights_that_find_no_room_in_shared_memory_are_one_sentence(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(network: Network) -> None:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    run = make_toy(f"algo={algorithm}", "parallelism=process")
    spec, device = describe(run), torch.device("cpu")
    buffer, network = make_buffer(run, spec), make_learner(run, spec, device).network
    monkeypatch.setattr(Network, "share_memory", full)
    with pytest.raises(ConfigError, match=r"^parallelism=process: \d.* of shared memory could not be had \(.*No space"):
        make_actors(ActorArguments(run, spec, network, buffer, device))
    buffer.close()


def test_close_leaves_no_process_and_no_shared_memory() -> None:
    with Started(make_toy("parallelism=process", "parallelism.num_actors=2")) as started:
        started.collect(50)
        pids = [link.process.pid for link in started.actors._links.values()]  # type: ignore[attr-defined]
        shared = shared_memory_of(lambda pid: pid in pids)
        assert shared or sys.platform != "linux"
    del started
    gc.collect()  # semaphores go with the objects that hold them
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert [path for path in shared if path.exists()] == []


def test_seeds_differ_between_environments_actors_and_runs() -> None:
    seeds = [s for run in range(5) for actor in range(4) for s in env_seeds(run, actor, 8)]
    assert len(set(seeds)) == len(seeds)
