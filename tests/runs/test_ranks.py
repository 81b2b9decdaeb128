"""Several processes that learn together as one would alone."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import forked
import numpy as np
import psutil
import pytest
import torch
from conftest import environment, make_run, make_toy, on_cpu, once_reported, untimed
from forked import Forked
from torch import nn

from dqnspeed.algorithms import make_learner
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import EnvSpec
from dqnspeed.execution import world as worlds
from dqnspeed.execution.world import LostRankError, World, check_world
from dqnspeed.memory import Batch, RolloutBatch
from dqnspeed.runs import rank_processes
from dqnspeed.runs.ranks import share_of
from dqnspeed.runs.schedule import schedule_sentence
from dqnspeed.runs.state_file import dumps, load, loads

pytestmark = pytest.mark.slow

SPEC = EnvSpec((5,), np.dtype(np.float32), 3, 1, largest=1.0)
CPU = torch.device("cpu")
UPDATES, SIZE = 100, 32
TWO = ["execution.world_size=2"]
KINDS = {
    "dqn": ["algo=dqn", "algo.target_sync=20"],
    "ppo": ["algo=ppo", "algo.normalize_advantage=true"],
    "pqn": ["algo=pqn"],
}


def batches(kind: str) -> Iterator[Batch | RolloutBatch]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    for _ in range(UPDATES):
        seen, actions = floats(SIZE, 5), rng.integers(3, size=SIZE)
        if kind == "dqn":
            ends = np.where(rng.random(SIZE) < 0.3, 0, 0.97).astype(np.float32)
            yield on_cpu(Batch(seen, actions, floats(SIZE), floats(SIZE, 5), ends))
        else:
            probabilities = -rng.uniform(0.8, 1.5, SIZE).astype(np.float32)
            yield on_cpu(
                RolloutBatch(
                    seen, actions, probabilities, floats(SIZE), floats(SIZE), floats(SIZE), np.zeros(SIZE, np.int64)
                )
            )


def half(batch: Any, rank: int) -> Any:
    arrays = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return replace(batch, **{name: a[rank::2] for name, a in arrays.items() if isinstance(a, torch.Tensor)})


def learnt(kind: str, world: World | None) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Weights before and after learning from all batches, or from this rank's half of each, and metrics."""
    run = make_run("env=cartpole", "model.hidden=[16]", f"algo.batch_size={SIZE}", *KINDS[kind])
    torch.manual_seed(0)
    learner: Any = make_learner(run, SPEC, CPU)
    learner.attach(None, world)
    before = nn.utils.parameters_to_vector(learner.network.parameters()).detach().numpy().copy()
    for batch in batches(kind):
        learner.update(batch if world is None else half(batch, world.rank))
    after = nn.utils.parameters_to_vector(learner.network.parameters()).detach().numpy()
    return before, after, learner.stats()


def second(file: str) -> None:
    world = World(1, 2, worlds.store_in(Path(file), 2), CPU, 60.0)
    for kind in KINDS:
        learnt(kind, world)
    assert world.receive(0) == bytes(range(200))
    world.command(0)
    world.close()
    if sys.platform == "linux":  # a thread that outlives Python's shutdown can end the process with an abort
        names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
        assert not any("gloo" in name for name in names), names


@pytest.fixture(scope="module", autouse=True)
def loopback() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        yield


def test_two_ranks_follow_one_that_has_the_whole_batch(tmp_path: Path) -> None:
    file = str(tmp_path / "store")
    other = multiprocessing.get_context("spawn").Process(target=second, args=(file,))
    other.start()
    with contextlib.closing(World(0, 2, worlds.store_in(Path(file), 2), CPU, 60.0)) as world:
        for kind in KINDS:
            before, together, stats = learnt(kind, world)
            _, alone, expected = learnt(kind, None)
            moved = np.abs(alone - before).max()
            assert moved > 0.001, kind
            np.testing.assert_allclose(together, alone, rtol=0, atol=0.01 * moved, err_msg=kind)
            assert stats["train/loss"] == pytest.approx(expected["train/loss"], rel=1e-3)
        world.send(1, bytes(range(200)))
        assert world.seconds > 0

        world.command(7)
        other.join(30)
        # The other one is gone.
        with pytest.raises(LostRankError, match=r"execution.world_size=2: one of the processes of this run is lost"):
            for _ in range(3):
                world.gather(np.zeros(2))
    assert other.exitcode == 0


def test_one_that_never_comes_is_not_waited_for_forever(tmp_path: Path) -> None:
    store = worlds.store_in(tmp_path / "store", 2)
    with pytest.raises(LostRankError, match=r"\(it did not start within 0 s\)"):
        World(0, 2, store, CPU, 0.1)
    worlds.fail(store, 1, "its disk is full.")
    with pytest.raises(LostRankError, match=r"so all end \(rank 1: its disk is full\)\.$"):
        World(0, 2, store, CPU, 60.0)


def test_a_state_travels_as_bytes() -> None:
    state = {"a": {"b": np.arange(6.0).reshape(2, 3), "empty": np.zeros((0, 2), np.uint8)}, "n": 3, "list": [1, None]}
    back = loads(dumps(state))
    assert untimed(back) == untimed(state)
    assert back["a"]["b"].dtype == np.float64 and back["a"]["empty"].shape == (0, 2)


def test_ranks_share_the_batch_the_replay_and_the_steps() -> None:
    run = make_toy(*TWO, "num_envs=3", "algo.batch_size=32", "exploration.decay_steps=1000")
    assert run.num_lanes == 6
    shares = [share_of(run, rank) for rank in range(2)]
    for share in shares:
        assert (share.algo.batch_size, share.algo.learning_starts, share.replay.capacity) == (16, 20, 1000)
        assert share.num_lanes == 3 and share.execution.world_size == 1
        assert share.exploration.epsilon_at(500) == run.exploration.epsilon_at(1000)  # type: ignore[attr-defined]
    assert shares[0].seed == run.seed != shares[1].seed


def test_the_learning_rate_follows_its_rule() -> None:
    kind = ["env=cartpole", "optimizer.lr=0.001", "execution.world_size=4"]
    for rule, expected in (("none", 0.001), ("sqrt", 0.002), ("linear", 0.004)):
        run = make_run(*kind, f"execution.lr_rule={rule}")
        learner: Any = make_learner(run, SPEC, CPU)
        assert learner.optimizer.param_groups[0]["lr"] == pytest.approx(expected)
        assert f"learning rate {expected:g}" in schedule_sentence(run)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["algo=a3c", "parallelism=process"], r"world_size=2: algo=a3c learns in one process; several .* algo=.*dqn.*"),
        (["algo.batch_size=33"], r"world_size=2: must divide algo.batch_size=33"),
        (["parallelism=ray"], r"world_size=2: .* not ray\."),
        (
            ["parallelism=process", "parallelism.replace_lost=true"],
            r"world_size=2: parallelism.replace_lost=true is for",
        ),
        (["execution.world_size=0"], r"world_size=0"),
    ],
)
def test_what_cannot_be_shared_is_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_toy(*TWO, *overrides)


def test_a_world_that_does_not_fit_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "29500")):
        monkeypatch.setenv(name, value)
    with pytest.raises(
        ConfigError, match=r"world_size=2: this process was started as one of 4 .* set execution.world_size=4"
    ):
        check_world(make_toy(*TWO))
    monkeypatch.setenv("WORLD_SIZE", "1")
    check_world(make_toy())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match=r"world_size=2: needs as many GPUs, and this machine has 1; lower it"):
        check_world(make_toy(*TWO, "device=cuda"))
    with pytest.raises(ConfigError, match=r"world_size=2: takes device=cpu or cuda, not mps"):
        check_world(make_toy(*TWO, "device=mps"))


CARTPOLE = [
    "env=cartpole", "num_envs=2", "tracking=local", "tracking.progress=off", "tracking.report_every_s=0.3",
    "execution.threads=1", *TWO,
]  # fmt: skip


def started(folder: Path, *overrides: str, spawns: bool = False) -> Forked:
    folder.parent.mkdir(exist_ok=True)
    arguments = [*CARTPOLE, f"hydra.run.dir={folder}", *overrides]
    return Forked("dqnspeed.train", *arguments, cwd=folder.parent, env=environment(), spawns=spawns)


def ran(folder: Path, *overrides: str) -> str:
    """What a run that ends by itself says on stderr."""
    with started(folder, *overrides) as process:
        return process.communicate(timeout=120)[1]


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_the_pole_is_balanced_by_two(tmp_path: Path) -> None:
    kind = ["algo=ppo", "optimizer.lr=1e-3", "parallelism=process", "stop.reward_bound=60", "stop.window=20",
            "stop.max_minutes=1.9"]  # fmt: skip
    errors = ran(tmp_path / "run", *kind)
    summary = summary_of(tmp_path / "run")
    assert summary["solved"] and summary["acting"] == "eager", errors
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["time/averaging"] > 0
    games = (tmp_path / "run" / "episodes.csv").read_text().splitlines()
    assert {line.split(",")[3] for line in games[1:]} == {"0", "1", "2", "3"}  # environments, two of each


@pytest.mark.parametrize(
    "kind",
    [
        ["algo=ppo", "algo.rollout_steps=20", "algo.batch_size=16"],
        ["algo.learning_starts=60", "algo.batch_size=16", "algo.steps_per_update=4", "checkpoint.every_minutes=0.02",
         "replay.capacity=360", "replay=prioritized", "wrappers=none", "model=mlp", "model.hidden=[16]",
         "eval.every_steps=150", "eval.episodes=2", "parallelism=overlap"],
    ],
    ids=["ppo", "dqn, overlap, prioritized, evaluations"],
)  # fmt: skip
def test_a_resumed_run_of_two_equals_an_uninterrupted_one(kind: list[str], tmp_path: Path) -> None:
    kind = [*kind, "checkpoint.replay=true", "env.reward_bound=null"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert ran(whole, *kind, "stop.max_steps=480") == ""
    ran(parts, *kind, "stop.max_steps=240")
    forked.run("dqnspeed.train", f"resume={parts}", "stop.max_steps=480", cwd=tmp_path, env=environment(), timeout=100)
    final = [untimed(load(folder / "checkpoints" / "final.safetensors")) for folder in (whole, parts)]
    for state in final:
        for key in [key for key in state if "config" in key or "episodes" in key]:
            del state[key]
    assert final[0] == final[1]
    assert summary_of(whole)["agent_steps"] >= 480


def test_ranks_whose_games_differ_in_length_come_to_the_last_step_together(tmp_path: Path) -> None:
    kind = ["algo=ppo", "env.id=FrozenLake-v1", "env.reward_bound=null", "num_envs=1", "algo.rollout_steps=2",
            "algo.batch_size=4", "parallelism=process", "stop.max_steps=700", "seed=3"]  # fmt: skip
    assert ran(tmp_path / "run", *kind) == ""
    assert 700 <= summary_of(tmp_path / "run")["agent_steps"] < 710


def test_variables_are_put_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    rank_processes._set({"MINE": "2", "NOT_THERE": "3"})
    assert (os.environ["MINE"], os.environ.pop("NOT_THERE")) == ("2", "3")
    rank_processes._set({"MINE": None})
    assert "MINE" not in os.environ


@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_a_lost_rank_ends_all(victim: str, tmp_path: Path) -> None:
    folder, family = tmp_path / "run", list[psutil.Process]()
    with started(folder, "algo=ppo", "env.reward_bound=null", spawns=True) as process:

        def kill() -> None:
            family.extend(psutil.Process(process.pid).children(recursive=True))
            follower = next(child for child in family if "spawn_main" in " ".join(child.cmdline()))
            os.kill(follower.pid if victim == "follower" else process.pid, signal.SIGKILL)

        with once_reported(folder, kill):
            _, errors = process.communicate(timeout=60)
        _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []
    if victim == "follower":
        assert process.returncode == 1 and "Traceback" not in errors
        assert "one of the processes of this run is lost, so all end (rank 1 was killed by signal 9)." in errors
        assert summary_of(folder)["stopped_by"] == "error"


def test_ctrl_c_saves_a_run_of_two(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with (
        started(folder, "algo=ppo", "env.reward_bound=null") as process,
        once_reported(folder, lambda: os.killpg(process.pid, signal.SIGINT)),
    ):
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "resume=" in out, errors
    assert set(load(folder / "checkpoints" / "final.safetensors")["ranks"]) == {"1"}


def test_torchrun_may_start_them(tmp_path: Path) -> None:
    arguments = [
        *CARTPOLE,
        "algo=ppo",
        "env.reward_bound=null",
        "stop.max_steps=600",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    starts = ["--standalone", "--nproc-per-node=2", "-m", "dqnspeed.train", *arguments]
    done = forked.run("torch.distributed.run", *starts, cwd=tmp_path, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert summary_of(tmp_path / "run")["agent_steps"] >= 600
