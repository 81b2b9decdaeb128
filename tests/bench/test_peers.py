"""Other libraries beside ours."""

from __future__ import annotations

import importlib.metadata
from typing import Any, cast

import pytest

from dqnspeed.bench import peers
from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.plan import Plan
from dqnspeed.bench.subject import running, speeds_of
from dqnspeed.config.options import ConfigError

TOY = ["env=cartpole", "wrappers=none", "model=mlp"]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_a_library_that_is_not_installed_is_a_piece_that_says_so(nothing_installed: None) -> None:
    pieces = list(peers.pieces(Plan(TOY, 0)))
    assert [piece.name for piece in pieces] == [peer.name for peer in peers.PEERS]
    for piece in pieces:
        with pytest.raises(ConfigError, match=r"^is not installed; pip install 'dqnspeed\[peers\]' brings it$"):
            piece.make()


def test_peers_are_refused_at_once_where_there_are_none(nothing_installed: None) -> None:
    with pytest.raises(ConfigError, match=r"^peers=true: needs other libraries; pip install 'dqnspeed\[peers\]'"):
        peers.check(Plan([], 0))
    with pytest.raises(ConfigError, match=r"^peers=true: .* env.id=CartPole-v1 is none\.$"):
        peers.check(Plan(TOY, 0))


@pytest.mark.slow
def test_what_would_change_our_side_alone_is_refused() -> None:
    for override, sentence in {
        "model=small": r"model would change our side alone", "num_envs=4": r"num_envs would change our side alone",
        "execution=lean": r"execution would change our side alone",
        "env.id=ALE/Pong-v5": r"such as PongNoFrameskip-v4, and env.id=ALE/Pong-v5 is none",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=rf"^peers=true: .*{sentence}"):
            peers.check(Plan([override], 0))


LINE = ["wrappers=native", "num_envs=8", "parallelism=overlap", "execution.threads=1"]


@pytest.mark.slow
def test_a_line_beside_other_libraries_may_be_faster_at_the_same_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.0")
    peers.check(Plan(LINE, 0), alone=True)
    with pytest.raises(ConfigError, match=r"^peers=true: num_envs would change our side alone"):
        peers.check(Plan(LINE, 0))
    for override, key in {
        "model=small": "model", "wrappers.resize=64": r"wrappers\.resize", "algo.double=true": r"algo\.double",
        "wrappers=none": "wrappers=none",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=rf"^suite=peers: {key} would change our side alone"):
            peers.check(Plan([override], 0), alone=True)


def test_more_games_of_a_line_that_stands_alone_are_no_more_work() -> None:
    def batch(alone: bool, *overrides: str) -> int:
        plan = Plan(["num_envs=8", "algo.steps_per_update=4", *overrides], 0, alone=alone)
        assert plan.reference.num_envs == 8
        assert plan.reference.updates_per_step == 1 / 4
        return cast("Any", plan.reference.algo).batch_size  # type: ignore[no-any-return]

    assert batch(True) == 32
    assert batch(True, "algo.batch_size=64") == 64
    assert batch(False) == 256


@pytest.mark.slow
@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.train.__name__)
def test_a_library_does_the_work_of_the_training_beside_it(peer: peers.Peer) -> None:
    pytest.importorskip(peer.package.replace("-", "_"))
    plan = Plan(["algo.learning_starts=40"], 0)
    [piece] = [piece for piece in peers.pieces(plan) if piece.name == peer.name]
    with running(piece.make().program) as [subject]:
        found = speeds_of([subject], 0.0, 0.0)
    per_step = 16 / 1024 if "PPO" in peer.name else plan.reference.updates_per_step
    assert found[UPDATES] / found[STEPS] == pytest.approx(per_step)


@pytest.mark.slow
def test_other_work_of_actor_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_version", lambda _: "1")
    plan = Plan(["parallelism=process", "parallelism.replay_ratio=16"], 0)
    assert plan.ratio == 16
    with pytest.raises(ConfigError, match=r"parallelism.replay_ratio=16 would change the work of our side alone"):
        peers.check(plan, alone=True)
    with pytest.raises(ConfigError, match=r"env\.sticky_actions would change our side alone"):
        peers.check(Plan(["env.sticky_actions=0.25"], 0))
    peers.check(Plan(["env.id=BreakoutNoFrameskip-v4"], 0))
