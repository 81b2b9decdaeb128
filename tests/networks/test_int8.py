"""A network in 8-bit integers is the network, but for their rounding."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytest
import torch
from conftest import as_arrays, make_run
from torch import nn

from dqnspeed.algorithms import make_learner, make_network
from dqnspeed.algorithms.dqn import DQN, DeepQLearner
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import ONEDNN, check_learner
from dqnspeed.memory import Batch, Memory
from dqnspeed.networks.base import frozen_copy
from dqnspeed.networks.heads import QNetwork
from dqnspeed.networks.int8 import Int8Network, fits
from dqnspeed.runs.updates import PlainUpdates
from dqnspeed.system import machine
from dqnspeed.tracking.metrics import Timer

here = machine.multiplies_bytes() and all(hasattr(torch.ops.onednn, name) for name in ONEDNN)
computed = pytest.mark.skipif(not here, reason="a processor without VNNI, or a torch without its operations")

IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 4, 4, largest=255.0)
SMALL = ["model=small", "optimizer.lr=1e-3", "algo.target_sync=3"]


def network(*overrides: str) -> QNetwork:
    torch.manual_seed(0)
    made = frozen_copy(make_network(make_run(*overrides), IMAGE))
    assert isinstance(made, QNetwork)
    for bias in (parameter for parameter in made.parameters() if parameter.dim() == 1):
        nn.init.uniform_(bias, -0.2, 0.2)
    return made


def images(seed: int = 0, size: int = 16) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (size, 4, 84, 84), np.uint8))


def batch(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    numbers = torch.from_numpy(rng.normal(size=16).astype(np.float32))
    return Batch(images(seed), torch.arange(16) % 4, numbers, images(seed + 100), torch.full((16,), 0.9))


def learner(*overrides: str, int8: bool = True) -> DeepQLearner:
    torch.manual_seed(0)
    made = make_learner(make_run(*SMALL, *overrides, f"execution.int8_target={int8}"), IMAGE, torch.device("cpu"))
    assert isinstance(made, DeepQLearner)
    return made


def losses(of: DeepQLearner, seeds: Sequence[int]) -> list[float]:
    first = of.updates
    for seed in seeds:
        of.update(batch(seed))
    return of._history[first : of.updates, 0].tolist()


NETWORKS = [
    ["model=nature"],
    ["model=nature", "model.dueling=true", "execution.channels_last=true"],
    ["model=small", "model.hidden=[48,24]", "model.input_scale=64"],
]


@computed
@pytest.mark.parametrize("options", NETWORKS)
def test_values_are_those_of_the_network_but_for_a_hundredth(options: list[str]) -> None:
    floats = network(*options)
    floats.place(torch.device("cpu"), "channels_last" in str(options))
    int8 = Int8Network(floats)
    for seed in range(3):
        expected, [got] = floats(images(seed)), int8(images(seed))
        assert got.shape == expected.shape and got.dtype == torch.float32
        spread = (expected - expected.mean(1, keepdim=True)).abs().mean()  # of the actions, which is the least of all
        assert 0 < (got - expected).abs().mean() < 0.02 * spread
    assert [tuple(one.shape) for one in int8(images(0, 5), images(1, 3))] == [(5, 4), (3, 4)]  # of other sizes


@computed
def test_scales_and_weights_are_those_of_the_first_batch_until_they_are_to_be_taken_anew() -> None:
    floats = network("model=small")
    int8 = Int8Network(floats)
    [before] = int8(images())
    size, largest = before.abs().mean(), int8.largest.clone()
    assert (largest > 0).all()
    with torch.no_grad():
        for parameter in floats.parameters():
            parameter.mul_(2)
    assert torch.equal(*int8(images()), before)
    again = Int8Network(floats)
    again.load(largest)
    assert not torch.equal(*again(images()), before) and torch.equal(again.largest, largest)
    int8.forget()
    [anew] = int8(images())
    assert (anew - floats(images())).abs().mean() < 0.02 * size < (before - floats(images())).abs().mean()
    assert (int8.largest > largest).all()


@computed
def test_a_layer_that_gave_nothing_and_numbers_beyond_the_first_batch_s_stay_finite() -> None:
    floats = network("model=small")
    with torch.no_grad():
        floats.features[0].weight[:] = 0
        floats.features[0].bias[:] = -1
    int8 = Int8Network(floats)
    assert int8(images())[0].isfinite().all() and int8.largest[0] == 1
    dark = Int8Network(network("model=small"))
    dark(torch.zeros(4, 4, 84, 84, dtype=torch.uint8))
    assert dark(images())[0].isfinite().all()


@computed
def test_threads_change_nothing() -> None:
    int8, before = Int8Network(network("model=nature")), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found += int8(images())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@computed
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["algo.double=true", "execution.precision=bf16", "execution.channels_last=true"],
        ["algo=munchausen", "model.dueling=true"],
        pytest.param(["execution.compile=true", "optimizer=adam"], marks=pytest.mark.slow),
    ],
)
def test_a_learner_learns_the_same_but_for_rounding_and_goes_on_as_if_never_stopped(options: list[str]) -> None:
    plain, whole = learner(*options, int8=False), learner(*options)
    before = copy.deepcopy(whole.state_dict())
    whole.warm_up(batch(50))
    assert repr(whole.state_dict()) == repr(before)
    expected, got = losses(plain, range(8)), losses(whole, range(8))
    assert got == pytest.approx(expected, rel=0.02) and got != expected

    for stop in (0, 2, 3):  # before there are scales, with some, and as the target has just changed
        first, second = learner(*options), learner(*options)
        found = losses(first, range(stop))
        second.load_state_dict(as_arrays(first.state_dict()))
        second.warm_up(batch(50))
        assert found + losses(second, range(stop, 8)) == got


class Drawn:
    """A memory that gives batches in their order, and remembers how many are drawn and not yet learnt from."""

    def __init__(self, learner: DeepQLearner):
        self._learner, self._drawn, self.ahead = learner, 0, list[int]()

    def batches(self, batch_size: int, count: int) -> Iterator[Batch]:
        for _ in range(count):
            self.ahead.append(self._drawn - self._learner.updates)
            self._drawn += 1
            yield batch(self._drawn)


@computed
@pytest.mark.parametrize("options", [[], ["algo.double=true", "algo.loss=huber"], ["algo=munchausen"]])
def test_values_of_several_batches_at_once_are_those_of_one_after_another(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, call = list[int](), Int8Network.__call__
    monkeypatch.setattr(Int8Network, "__call__", lambda self, *of: (together.append(len(of)), call(self, *of))[1])

    def run(counts: Sequence[int]) -> tuple[list[float], list[int]]:
        made = learner(*options, "algo.target_sync=9")
        memory = Drawn(made)
        updates = PlainUpdates(made, cast("Memory", memory), 16, Timer(("sampling", "updating")), "eager")
        for count in counts:
            updates.do(count)
        return made._history[: made.updates, 0].tolist(), memory.ahead

    expected, one_by_one = run([1] * 20)
    valued = 2 if "munchausen" in str(options) else 1
    assert one_by_one == [0] * 20 and together == [1] * 20 * valued
    together.clear()
    got, ahead = run([5, 3, 1, 11])
    assert ahead == [*range(4), 0, *range(3), 0, *range(4), *range(4), 0, *range(2)]  # not beyond 9 and 18 updates
    assert together[::valued] == [4, *[1] * 5, 4, 4, 1, 1, 1]
    assert got == pytest.approx(expected, rel=1e-5)


@computed
def test_a_batch_that_is_learnt_from_again_has_the_values_of_the_target_network_as_it_is_by_then() -> None:
    again, anew = learner(), learner()
    same = batch(0)
    for _ in range(5):  # beyond a copy into the target network
        again.update(same)
        anew.update(batch(0))
    assert again._history[:5, 0].tolist() == anew._history[:5, 0].tolist()
    assert not same.prepared


@computed
@pytest.mark.slow
def test_after_the_warm_up_nothing_is_compiled() -> None:
    from torch._dynamo.utils import counters

    made = learner("execution.compile=true", "optimizer=adam", "algo.target_sync=100")
    made.warm_up(batch(50))
    before = counters["stats"]["unique_graphs"]
    PlainUpdates(made, cast("Memory", Drawn(made)), 16, Timer(("sampling", "updating")), "compiled").do(5)
    assert before and counters["stats"]["unique_graphs"] == before


@computed
def test_a_batch_of_a_replay_that_draws_by_errors_is_learnt_from_before_the_next_is_drawn() -> None:
    drawn = batch(0)
    assert learner("algo.target_sync=100").ahead(drawn) == 3
    drawn.reprioritize = lambda errors: None
    assert learner("algo.target_sync=100").ahead(drawn) == 0


@computed
def test_a_run_may_go_on_with_and_without_it() -> None:
    plain, int8 = learner(int8=False), learner()
    losses(plain, range(2))
    int8.load_state_dict(as_arrays(plain.state_dict()))
    losses(int8, range(2))
    plain.load_state_dict(as_arrays(int8.state_dict()))
    assert np.isfinite(losses(plain, range(2))).all()


@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        *((options, True) for options in NETWORKS),
        (["model=impala"], False),
        (["model=small", "model.layer_norm=true"], False),
        (["model=small", "model.background=true"], False),
        (["model=small", "model.hidden=[]"], False),
        (["exploration=noisy"], False),
    ],
)
def test_a_network_with_something_else_between_its_layers_is_refused(options: list[str], fitting: bool) -> None:
    run = make_run(*options, "execution.int8_target=true")
    assert fits(make_network(run, IMAGE)) == fitting
    if not fitting:
        with pytest.raises(ConfigError, match=rf"^execution.int8_target=true: .* model={run.model.name} "):
            run.algo.check_spec(run, IMAGE)  # type: ignore[attr-defined]


def test_observations_that_are_no_bytes_are_refused() -> None:
    run = make_run("execution.int8_target=true")
    floats = EnvSpec((1, 84, 84), np.dtype(np.float32), 4, 4, largest=1.0)
    with pytest.raises(ConfigError, match="observations of 4x84x84 float32"):
        run.algo.check_spec(run, floats)  # type: ignore[attr-defined]


def test_where_it_cannot_be_computed_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(run: RunConfig) -> str:
        with pytest.raises(ConfigError, match=r"^execution.int8_target=true: ") as error:
            check_learner(run)
        return str(error.value)

    run = make_run("device=cpu", "execution.int8_target=true")
    monkeypatch.setattr(machine, "multiplies_bytes", lambda: False)
    assert refused(run).endswith("needs a CPU with VNNI, which this processor lacks or does not tell of; use false.")
    monkeypatch.setattr(machine, "multiplies_bytes", lambda: True)
    monkeypatch.setattr("dqnspeed.execution.precision.ONEDNN", ["qnothing"])
    assert "has no qnothing; use false." in refused(run)
    monkeypatch.setattr(machine, "pick_device", lambda _: torch.device("cuda"))
    assert "and device=cpu is cuda here" in refused(run)
    with pytest.raises(ConfigError, match="is for algo=dqn, munchausen, not c51; use false"):
        check(make_run("algo=c51", "execution.int8_target=true"))

    class Own(DQN):
        """May compute its targets otherwise."""

    with pytest.raises(ConfigError, match="is for algo=dqn, munchausen, not own; use false"):
        check(dataclasses.replace(run, algo=Own(**vars(run.algo) | {"name": "own"})))
