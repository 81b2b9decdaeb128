"""Updates and acting as graphs: the same as one operation after another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from conftest import as_arrays, make_run, make_toy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dqnspeed.actors.stepper import EnvStepper
from dqnspeed.algorithms import make_buffer, make_learner, make_policy
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Rows
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec, describe, make_vector_env
from dqnspeed.execution.arrays import host
from dqnspeed.execution.graph import CaptureError, Capturing, Launch
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.exploration.cuda_graph import GraphedPolicy
from dqnspeed.exploration.policy import NetworkPolicy
from dqnspeed.exploration.stacked_policy import StackedPolicy
from dqnspeed.tracking.metrics import Timer
from dqnspeed.training.updater import PREPARED, EagerUpdater, GraphUpdater, make_updater

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
IMAGES = ["env.id=toy_envs:Catch-v0", "model=board", "model.hidden=[8]", "execution=lean", "execution.precision=bf16"]
ALGORITHMS = {
    "dqn": ["algo=dqn"],
    "dqn, n-step, double, dueling": ["algo.double=true", "algo.n_step=3", "model.dueling=true"],
    "dqn, clipped and annealed": ["algo.max_grad_norm=0.5", "optimizer.lr_final=1e-5", "optimizer.lr_decay_steps=50"],
    "dqn, compiled": ["execution.compile=true"],
    "prioritized": ["replay=prioritized", "replay.beta_updates=40"],
    "c51": ["algo=c51"],
    "iqn": ["algo=iqn"],
    "munchausen": ["algo=munchausen"],
    "rainbow": ["algo=rainbow", "algo.target_update_every=6"],
    "sac_discrete": ["algo=sac_discrete"],
    "ppo": ["algo=ppo", "algo.ent_coef_final=0"],
    "ppo, steered": ["algo=ppo", "algo.adaptive_kl_target=0.02", "algo.adaptive_kl_target_final=0.001"],
    "ppo, corrected": ["algo=ppo", "algo.correction=vtrace"],
    "a2c": ["algo=a2c", "algo.num_steps=8"],
    "pqn": ["algo=pqn"],
    "dqn, images in bf16": [*IMAGES, "algo.target_update_every=6"],
    "ppo, images in bf16": [*IMAGES, "algo=ppo"],
}  # fmt: skip
# A CPU computes the same with a graph and without; these have all that makes a difference around the loss.
ON_CPU = ["dqn, n-step, double, dueling", "rainbow", "ppo, steered", "pqn"]
OPTIMIZERS = ["adam", "adamw", "radam", "rmsprop"]


# On a CPU the two are equal to the last bit. A weight that differs by its last bit at first, or an optimizer that keeps
# its learning rate in float32, makes 1,000 updates differ by less than a hundredth of what is allowed below.
UPDATES = {"cpu": 60, "cuda": 1000}


def at_once(function: Callable[[], object], device: torch.device) -> Launch:
    """Stands for a capture where there is no GPU: each launch calls the function."""
    if device.type == "cuda":
        return Capturing()(function, device)
    return lambda: function() and None


class OnOneDevice(TorchDispatchMode):
    """Refuses operations on arrays of two devices, which torch allows here and there, and waits then."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor) and x.dim()]
        assert len({x.device for x in given}) <= 1, operation
        return operation(*args, **(kwargs or {}))


def on_one_device(function: Callable[[], object], device: torch.device) -> Launch:
    """Stands for a capture."""

    def launch() -> None:
        with OnOneDevice():
            function()

    return launch


def play(run: RunConfig, spec: EnvSpec, buffer: Any, steps: int, seed: int = 0) -> None:
    """Fill a memory with random games of 7 steps."""
    rng, lanes = np.random.default_rng(seed), run.total_envs
    for step in range(steps):
        last = np.full(lanes, step % 8 == 7)
        buffer.storage.append(
            Rows(
                frames=rng.normal(size=(lanes, *spec.frame_shape)).astype(spec.frame_dtype),
                actions=rng.integers(spec.num_actions, size=lanes),
                rewards=rng.normal(size=lanes).astype(np.float32),
                terminated=np.full(lanes, step % 8 == 6), truncated=np.zeros(lanes, bool),
                first=np.full(lanes, step % 8 == 0), transition=~last,
                acting={"log_probs": rng.normal(size=lanes) - 1, "values": rng.normal(size=lanes),
                        "versions": np.zeros(lanes)},
            )
        )  # fmt: skip


def learnt(run: RunConfig, graph: bool, updates: int, device: str) -> tuple[GradientLearner, Any, list[Any]]:
    """A learner after ``updates``, each a graph or one operation after another; its memory and its losses."""
    spec, where = describe(run), torch.device(device)
    if graph and device == "cuda":
        run = with_graph(run)
    torch.manual_seed(0)
    learner = make_learner(run, spec, where)
    assert isinstance(learner, GradientLearner)
    learner.on_device = graph  # also on a CPU, whose optimizers cannot be captured
    buffer: Any = make_buffer(run, spec, device=where)
    learner.attach(buffer)
    losses, timer = [], Timer(("sampling", "updating"))
    batch = run.algo.batch_size
    does: Any = EagerUpdater(learner, buffer, batch, timer, "eager")
    if graph:
        capture = at_once if device == "cpu" else None  # else as in a training, where all graphs share their memory
        does = GraphUpdater(learner, buffer, batch, timer, capture)
    done = seed = 0
    while done < updates:
        play(run, spec, buffer, 16, seed)
        seed += 1
        due = 12 if run.has_replay else buffer.due(batch)
        does.run(due)
        done += due
        losses.append({name: value for name, value in learner.stats().items() if not name.startswith("time/")})
    if graph:
        assert_graphed(does)
    return learner, buffer, losses


def rows(run: RunConfig) -> int:
    """Rows of each environment after which some updates are due."""
    return 16 if run.has_replay else run.algo.num_steps  # type: ignore[attr-defined]


def with_graph(run: RunConfig) -> RunConfig:
    return replace(run, device="cuda", execution=replace(run.execution, graph=True))


def assert_graphed(does: GraphUpdater) -> None:
    assert does._graphs and does.how.startswith("graph"), does.how


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "device"),
    [
        *((algo, "cpu") for algo in ON_CPU),
        *(pytest.param(algo, "cuda", marks=pytest.mark.cuda) for algo in ALGORITHMS),
    ],
)
def test_an_update_as_a_graph_is_the_update(algo: str, device: str) -> None:
    run, updates = make_toy(*ALGORITHMS[algo], "num_envs=2", "algo.batch_size=16"), UPDATES[device]
    eager, buffer, expected = learnt(run, False, updates, device)
    graphed, same, losses = learnt(run, True, updates, device)
    assert graphed.updates == eager.updates == int(graphed.update_count) == int(graphed.network.version)
    for one, other in zip(losses, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5, nan_ok=True)
    for one, other in zip(graphed.network.parameters(), eager.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    one, other = (saved.get("sampler", saved)["random"] for saved in (same.state_dict(), buffer.state_dict()))
    assert one == other  # and the next draws are too


@pytest.mark.slow
@pytest.mark.parametrize("algo", [name for name in ALGORITHMS if not name.endswith(("compiled", "bf16"))])
def test_an_update_reads_no_number_and_no_array_of_the_host(algo: str) -> None:
    """On torch's meta device, which has no numbers: what would wait for a GPU, or leave it, raises there."""
    once = ["algo.epochs=1"] if algo.startswith(("ppo", "pqn")) else []
    run = make_toy(*ALGORITHMS[algo], "num_envs=2", "algo.batch_size=16", *once)
    meta = torch.device("meta")
    spec, buffer = describe(run), make_buffer(run, describe(run), device=meta)
    if run.has_replay:
        buffer.sampler.is_empty = lambda: False  # type: ignore[attr-defined]
    learner: Any = make_learner(run, spec, meta)
    learner.on_device = True
    learner.attach(buffer)
    if algo in ("dqn, clipped and annealed", "ppo, steered"):  # a rate that is a tensor is read, but on a GPU
        learner.optimization.optimizer.step = lambda: None
    does = GraphUpdater(learner, buffer, 16, Timer(("sampling", "updating")), on_one_device)  # type: ignore[arg-type]
    for seed in range(PREPARED + 2):
        play(run, spec, buffer, rows(run), seed)
        does.run(3 if run.has_replay else buffer.due(16))  # type: ignore[attr-defined]
    assert_graphed(does)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_steps_in_a_graph_as_it_does_without_at_a_rate_that_falls(optimizer: str, device: str) -> None:
    given = [f"optimizer={optimizer}", "optimizer.lr_final=1e-6", "optimizer.lr_decay_steps=20"]
    run = make_toy(*given, "algo.batch_size=16")
    eager, graphed = (learnt(run, graph, 24, device)[0] for graph in (False, True))
    for one, other in zip(graphed.network.parameters(), eager.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert graphed.optimization.learning_rate == pytest.approx(eager.optimization.learning_rate)


def refuse(function: Callable[[], object], device: torch.device) -> Launch:
    try:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")
    except RuntimeError:
        raise RuntimeError("what follows from it") from None


def test_what_cannot_be_captured_ends_the_run_in_one_sentence() -> None:
    run = make_toy("algo.batch_size=16")
    learner: Any = make_learner(run, describe(run), torch.device("cpu"))
    buffer: Any = make_buffer(run, describe(run), device=torch.device("cpu"))
    play(run, describe(run), buffer, 30)
    does = GraphUpdater(learner, buffer, 16, Timer(("sampling", "updating")), refuse)
    does.run(PREPARED)
    _, spec, policy, *_ = policies("dqn", "cpu")
    acting = GraphedPolicy(policy, spec, 4, torch.device("cpu"), [1], refuse)
    for what, capture in (("the update", lambda: does.run(1)), ("acting", acting.warm_up)):
        with pytest.raises(CaptureError) as error:
            capture()
        assert str(error.value) == (
            f"execution.graph=true: {what} cannot be captured (operation not permitted when stream is capturing). "
            "Use execution.graph=false."
        )


def test_a_learner_or_memory_that_is_not_made_for_a_graph_is_named() -> None:
    class Own: ...

    run = make_toy("algo.batch_size=16")
    run = replace(run, execution=replace(run.execution, graph=True))
    buffer: Any = make_buffer(run, describe(run), device=torch.device("cpu"))
    own: Any = Own()
    with pytest.raises(CaptureError, match=r"\(Own is no GradientLearner\)"):
        make_updater(run, own, buffer, Timer(("sampling",)))
    usual: Any = object.__new__(GradientLearner)
    with pytest.raises(CaptureError, match=r"\(object has no draw_batch\(\)\)"):
        make_updater(run, usual, object(), Timer(("sampling",)))  # type: ignore[arg-type]


POLICIES = ["dqn", "pqn", "ppo", "sac_discrete"]


def policies(name: str, device: str) -> tuple[RunConfig, EnvSpec, NetworkPolicy, Any, Any]:
    run = make_toy(f"algo={name}", "wrappers.stack=3")
    spec, where = describe(run), torch.device(device)
    torch.manual_seed(0)
    learner = make_learner(run, spec, where)
    policy = make_policy(run, spec, learner.network, where, np.random.default_rng(0))
    assert isinstance(policy, NetworkPolicy)
    return run, spec, policy, StackedPolicy(policy, spec, 4), GraphedPolicy(policy, spec, 4, where, [1], at_once)


def frames_of(spec: EnvSpec, rng: np.random.Generator) -> np.ndarray:
    frames: np.ndarray = rng.normal(size=(4, *spec.frame_shape)).astype(spec.frame_dtype)
    return frames


@pytest.mark.parametrize(
    ("form", "device"),
    [
        ("arrays", "cpu"),
        ("in turns", "cpu"),
        *(pytest.param(form, "cuda", marks=pytest.mark.cuda) for form in ("arrays", "tensors", "in turns")),
    ],
)
@pytest.mark.parametrize("name", POLICIES)
def test_a_graph_acts_on_the_same_stacks_and_knows_the_same(name: str, device: str, form: str) -> None:
    _, spec, policy, stacked, graphed = policies(name, device)
    rng = np.random.default_rng(0)
    for step in range(9):
        frames, first = frames_of(spec, rng), rng.random(4) < (1 if step == 0 else 0.3)
        for one in (stacked, graphed):
            there = form == "tensors" or (form == "in turns" and step % 3 != 0)
            one.push(torch.from_numpy(frames).to(device) if there else frames, first)
        saved, same = stacked.state_dict()["stack"]["stacks"], graphed.state_dict()["stack"]["stacks"]
        np.testing.assert_array_equal(saved, same)
        expected, knew = stacked(0.0)()
        actions, known = graphed(0.0)()
        assert actions.dtype == expected.dtype and set(known) == set(knew)
        for column in knew:
            assert known[column].dtype == knew[column].dtype or column == "versions"
        if "values" in knew:
            np.testing.assert_allclose(known["values"], knew["values"], rtol=1e-4, atol=1e-6)
        if name == "ppo":
            network: Any = policy.network
            with torch.no_grad():
                logits, _ = network.policy_and_value(torch.from_numpy(saved).flatten(1, 2).to(device))
            chosen = torch.log_softmax(logits, 1).cpu().numpy()[np.arange(4), actions]
            np.testing.assert_allclose(known["log_probs"], chosen, rtol=1e-4, atol=1e-6)
        if name in ("dqn", "pqn"):
            np.testing.assert_array_equal(actions, expected)


@pytest.mark.parametrize("name", POLICIES)
def test_acting_as_a_graph_reads_no_number_and_no_array_of_the_host(name: str) -> None:
    *_, graphed = policies(name, "meta")
    on_one_device(graphed._step, torch.device("meta"))()


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_graph_draws_actions_as_often_as_they_are_likely(name: str) -> None:
    _, spec, policy, _, graphed = policies(name, "cpu")
    frames = np.repeat(frames_of(spec, np.random.default_rng(0))[:1], 4, axis=0)
    graphed.push(frames, np.ones(4, bool))
    counts, observations = np.zeros(spec.num_actions), torch.from_numpy(np.repeat(frames, 3, axis=1))
    for _ in range(3000):
        actions, _ = graphed(np.array([0.5, 0.5, 0.5, 0.5]))()
        counts += np.bincount(actions, minlength=spec.num_actions)
    with torch.no_grad():
        output = policy.network(observations[:1])[0]
    if name == "ppo":
        chances = torch.softmax(output, dim=0).numpy()
    else:
        chances = np.full(spec.num_actions, 0.5 / spec.num_actions)
        chances[int(output.argmax())] += 0.5
    np.testing.assert_allclose(counts / counts.sum(), chances, atol=0.02)


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_graph_goes_on_where_it_or_a_host_stopped(name: str) -> None:
    _, spec, policy, stacked, graphed = policies(name, "cpu")
    rng = np.random.default_rng(1)
    for step in range(4):
        frames, first = frames_of(spec, rng), np.full(4, step == 0)
        for one in (stacked, graphed):
            one.push(frames, first)
            if step < 3:
                one(0.3)()
    for state, exact in ((graphed.state_dict(), True), (stacked.state_dict(), False)):
        again = GraphedPolicy(policy, spec, 4, torch.device("cpu"), [5], at_once)
        again.load_state_dict(copy.deepcopy(state))
        np.testing.assert_array_equal(again.state_dict()["stack"]["stacks"], stacked.state_dict()["stack"]["stacks"])
        if exact:
            for _ in range(3):
                actions, expected = again(0.5)()[0], graphed(0.5)()[0]
                np.testing.assert_array_equal(actions, expected)
                frames = frames_of(spec, rng)
                for one in (again, graphed):
                    one.push(frames, np.zeros(4, bool))


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_games_that_are_given_a_graphs_actions_on_the_device_play_alike(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("warp")
    run = make_run("backend=atari_warp", f"backend.device={device}", "env=breakout", "num_envs=3", "model=small",
                   "wrappers.resize=40", "model.conv=[[8,8,4]]")  # fmt: skip
    spec, where = describe(run), torch.device(device)
    torch.manual_seed(0)
    network = make_learner(run, spec, where).network
    policy = cast(NetworkPolicy, make_policy(run, spec, network, where, np.random.default_rng(0)))

    steppers, rewards, ends = list[EnvStepper](), 0.0, 0
    for there in (False, True):
        env = make_vector_env(run)
        env.device = env.device if there else None
        graphed = GraphedPolicy(policy, spec, 3, where, [1], at_once)
        monkeypatch.setattr("dqnspeed.actors.stepper.StackedPolicy", lambda *_, made=graphed: made)
        steppers.append(EnvStepper(run, spec, network, torch.device("cpu"), env))
    assert {one.how for one in steppers} == {"graph"}
    for step in range(200):
        found = []
        for one in steppers:
            one.send(0.5, late=step % 2 == 0)
            found.append(one.recv())
        (rows, games), (others, other_games) = found
        assert games == other_games
        for name in ("frames", "actions", "rewards", "terminated", "truncated", "first", "transition"):
            np.testing.assert_array_equal(host(getattr(rows, name)), host(getattr(others, name)), err_msg=name)
        rewards, ends = rewards + rows.rewards.sum(), ends + rows.terminated.sum()
    assert rewards > 0 and ends > 3
    for one in steppers:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algo", ["rainbow", "ppo, steered"])
def test_saved_and_loaded_it_goes_on_to_the_last_bit(algo: str, device: str) -> None:
    run = make_toy(*ALGORITHMS[algo], "num_envs=2", "algo.batch_size=16")
    learner, buffer, _ = learnt(run, True, 60, device)
    spec, where = describe(run), torch.device(device)
    again: Any = make_learner(with_graph(run) if device == "cuda" else run, spec, where)
    again.on_device = True
    copied: Any = make_buffer(run, spec, device=where)
    again.attach(copied)
    again.load_state_dict(as_arrays(learner.state_dict()))
    copied.load_state_dict(copy.deepcopy(buffer.state_dict()))
    both = [
        (one, rings, GraphUpdater(one, rings, 16, Timer(("sampling", "updating")), at_once))
        for one, rings in ((learner, buffer), (again, copied))
    ]
    for seed in range(90, 93):
        after = []
        for one, rings, does in both:
            torch.manual_seed(seed)
            play(run, spec, rings, rows(run), seed)
            does.run(12 if run.has_replay else rings.due(16))
            after.append([parameter.detach().cpu().numpy().copy() for parameter in one.network.parameters()])
        for a, b in zip(*after, strict=True):
            np.testing.assert_array_equal(a, b)
    for _, _, does in both:
        assert_graphed(does)


@pytest.mark.cuda
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_nothing_waits_for_the_device(algo: str) -> None:
    run = with_graph(make_toy(*ALGORITHMS[algo], "num_envs=2", "algo.batch_size=16"))
    learner, buffer, _ = learnt(run, True, 60, "cuda")
    does = GraphUpdater(learner, buffer, 16, Timer(("sampling", "updating")))
    spec = describe(run)
    try:
        for seed in range(6):  # the first prepare and capture
            if seed == 2:
                torch.cuda.set_sync_debug_mode("error")
            play(run, spec, buffer, rows(run), seed)
            does.run(12 if run.has_replay else buffer.due(16))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_graphed(does)


@pytest.mark.cuda
def test_what_waits_for_the_device_is_refused() -> None:
    """A plugin's loss, say."""
    run = with_graph(make_toy("algo.batch_size=16", "num_envs=2"))
    spec = describe(run)
    learner: Any = make_learner(run, spec, torch.device("cuda"))
    buffer: Any = make_buffer(run, spec, device=torch.device("cuda"))
    play(run, spec, buffer, 40)
    update = learner.update
    learner.update = lambda batch: (float(batch.rewards.sum()), update(batch))[1]
    does = GraphUpdater(learner, buffer, 16, Timer(("sampling", "updating")))
    with pytest.raises(CaptureError):
        does.run(4)


def test_what_comes_from_the_host_is_refused_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    to_device = ToDevice(torch.device("cuda"), pin_memory=False)
    with pytest.raises(RuntimeError, match="rewards comes from the host at each update"):
        to_device({"rewards": torch.zeros(3)})
