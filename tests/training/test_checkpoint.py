"""Checkpoint files: saved and loaded, damaged, chosen for a resume, and on a full disk."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_run, untimed
from full_disk import file_size_limit
from hypothesis import given
from hypothesis import strategies as st

from dqnspeed.config.options import ConfigError
from dqnspeed.tracking.run_folder import DamagedError
from dqnspeed.training import state_file
from dqnspeed.training.checkpoint import Checkpoints, candidates, newest, state_to_resume
from dqnspeed.training.state_file import load, save

STATE = {
    "learner": {"network": {"features.0.weight": torch.arange(6.0).reshape(2, 3)}, "updates": 7},
    "actors": {"0": {"frames": np.arange(4, dtype=np.uint8), "rng": {"state": 2**127 + 1}, "none": None}},
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5),
}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", STATE)
    state = load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(state["learner"]["network"]["features.0.weight"], [[0, 1, 2], [3, 4, 5]])
    assert state["learner"]["updates"] == 7
    assert state["actors"]["0"]["rng"] == {"state": 2**127 + 1} and state["actors"]["0"]["none"] is None
    assert state["actors"]["0"]["frames"].dtype == np.uint8 and state["flags"].tolist() == [True, False]
    assert state["empty"].shape == (0, 3) and state["scalar"].shape == () and state["scalar"] == 2.5
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    save(path, STATE)
    return path.read_bytes()


@given(data=st.data())
def test_damage_is_noticed(whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    path.write_bytes(whole[:at] if cut else whole[:at] + flipped + whole[at + 1 :])
    try:
        state = load(path)
    except DamagedError as error:
        assert str(path) in str(error)
    else:  # a space of the header may change without any meaning
        path.write_bytes(whole)
        assert not cut and untimed(state) == untimed(load(path))


def test_large_arrays_stay_in_the_file_until_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "MAPPED", 1000)
    path, large = tmp_path / "step.safetensors", np.random.default_rng(0).integers(0, 256, (10, 100), np.uint8)
    arrays = {"frames": large, "few": large[0], "ends": large > 9, "sums": large * 0.5}
    save(path, {"replay": arrays})
    state = load(path)["replay"]
    assert sys.platform != "linux" or str(path) in Path("/proc/self/maps").read_text()
    path.unlink()
    for name, array in arrays.items():
        np.testing.assert_array_equal(state[name], array)
        assert state[name].dtype == array.dtype
    state["frames"][0] = 0  # as any other array
    save(path, {"frames": large})
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedError, match="checksum"):
        load(path)


def test_the_best_and_the_last_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr("dqnspeed.training.checkpoint.time", SimpleNamespace(monotonic=lambda: now[0]))
    checkpoints = Checkpoints(tmp_path, make_run("checkpoint.every_minutes=1", "checkpoint.keep=2").checkpoint)
    for mean, games in [(-19.0, 20), (-20.0, 30), (-18.0, 40), (-18.5, 50)]:
        if checkpoints.is_best(mean):
            checkpoints.save_best({"games": games}, mean)
    assert load(tmp_path / "best.safetensors")["games"] == 40
    for second in range(0, 305, 5):
        now[0] = second
        if checkpoints.is_due():
            checkpoints.save_periodic({"second": second}, step=second)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best.safetensors", "step_0000000240.safetensors", "step_0000000300.safetensors"]


def test_a_best_of_few_games_gives_way_to_the_first_of_a_whole_window(tmp_path: Path) -> None:
    """A lucky first ten games would otherwise stay the best for a long time, or for ever."""
    config, kept = make_run().checkpoint, []
    checkpoints = Checkpoints(tmp_path, config)
    for mean, provisional in [(-15.0, True), (-20.5, False), (-16.0, True), (-21.0, False), (-19.0, False)]:
        if checkpoints.is_best(mean, provisional):
            checkpoints.save_best({"mean": mean}, mean, provisional)
            kept.append(mean)
        state = checkpoints.state_dict()
        checkpoints = Checkpoints(tmp_path, config)  # as in a run that is resumed
        checkpoints.load_state_dict(state)
    assert kept == [-15.0, -20.5, -19.0]
    assert not checkpoints.is_best(float("nan")) and not checkpoints.is_best(float("inf"))


def test_a_best_that_was_saved_after_the_checkpoint_stands(tmp_path: Path) -> None:
    begun = Checkpoints(tmp_path, config := make_run().checkpoint)
    begun.save_best({}, 15.0)
    state = begun.state_dict()
    begun.save_best({}, 18.0)
    resumed, anew = Checkpoints(tmp_path, config), Checkpoints(tmp_path, config)
    resumed.load_state_dict(state)
    for one in (resumed, anew):  # the second was ended before its first checkpoint
        assert not one.is_best(15.5) and one.is_best(18.5)
    other = Checkpoints(tmp_path, config, "eval, 100")
    assert other.is_best(-3.0)


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert newest(tmp_path) is None
    for name in ("step_0000000010", "step_0000000200", "final"):
        save(tmp_path / f"{name}.safetensors", {"name": name})
    found = newest(tmp_path)
    assert found is not None and found[1] == {"name": "final"}
    for name in ("final", "step_0000000200"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"rubbish")
    found = newest(tmp_path)
    assert found is not None and found[1] == {"name": "step_0000000010"}
    assert [r.message.split(" is damaged")[0] for r in caplog.records] == [
        str(tmp_path / "final.safetensors"), str(tmp_path / "step_0000000200.safetensors"),
    ]  # fmt: skip
    (tmp_path / "step_0000000010.safetensors").write_bytes(b"")
    with pytest.raises(DamagedError, match="step_0000000010"):
        newest(tmp_path)


def test_going_on_sets_aside_what_is_newer_and_what_was_half_written(tmp_path: Path) -> None:
    """A checkpoint of a segment that never was must not be met again, nor keep the next ones from being kept."""
    folder, config = tmp_path / "checkpoints", make_run("checkpoint.keep=1").checkpoint
    for name in ("step_0000005000", "step_0000006000"):
        save(folder / f"{name}.safetensors", {"name": name})
    (folder / "step_0000006000.safetensors").write_bytes(b"rubbish")
    (folder / "step_0000007000.partial").write_bytes(b"half")
    assert state_to_resume(tmp_path, config) == {"name": "step_0000005000"}
    Checkpoints(folder, config).save_periodic({"name": "new"}, step=5500)
    assert sorted(path.name for path in folder.iterdir()) == ["step_0000005500.safetensors", "step_0000006000.damaged"]
    assert state_to_resume(tmp_path, config) == {"name": "new"}


def test_a_run_without_any_checkpoint_is_not_started_again_where_that_would_lose_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 50.0}\n')
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step_0000000001.safetensors.7.partial").write_bytes(b"half")
    assert state_to_resume(tmp_path, make_run("checkpoint.every_minutes=1").checkpoint) == {}
    assert list((tmp_path / "checkpoints").iterdir()) == []
    with pytest.raises(ConfigError, match="nothing to resume from"):
        state_to_resume(tmp_path, make_run("checkpoint=none").checkpoint)
    evaluated = '{"step": 1, "time": 50.0, "time/evaluating": 5000.0}\n'
    (tmp_path / "metrics.jsonl").write_text(evaluated)
    with pytest.raises(ConfigError, match="nothing to resume from"):
        state_to_resume(tmp_path, make_run("checkpoint.every_minutes=1").checkpoint)
    (tmp_path / "metrics.jsonl").unlink()
    assert state_to_resume(tmp_path, make_run("checkpoint.every_minutes=1").checkpoint) == {}
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 5000.0}\n')
    with pytest.raises(ConfigError, match="nothing to resume from"):
        state_to_resume(tmp_path, make_run("checkpoint.every_minutes=1").checkpoint)


def test_a_final_checkpoint_is_outdated_once_a_resumed_run_saves_a_newer_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, make_run().checkpoint)
    checkpoints.save_final({})
    checkpoints.save_periodic({}, step=5)
    assert [path.name for path in candidates(tmp_path)] == ["step_0000000005.safetensors"]


def test_the_newest_checkpoint_is_that_of_most_steps_where_a_kill_left_a_final_one_of_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, make_run().checkpoint)
    for steps, names in ((5, "final step"), (6, "final step"), (4, "step final")):
        checkpoints.save_periodic({}, step=5)
        checkpoints.save_final({"progress": {"agent_steps": steps}})
        assert [path.name.partition("_")[0].partition(".")[0] for path in candidates(tmp_path)] == names.split()
    (tmp_path / "final.safetensors").write_text("damaged")
    assert candidates(tmp_path)[0].name == "final.safetensors"


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(tmp_path, make_run("checkpoint.keep=1").checkpoint)
    checkpoints.save_periodic({"weights": np.ones(10)}, step=1)
    with file_size_limit(100_000):
        checkpoints.save_periodic({"weights": np.ones(100_000)}, step=2)
    assert [r.levelno for r in caplog.records] == [logging.WARNING] and "training continues" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["step_0000000001.safetensors"]
    assert load(tmp_path / "step_0000000001.safetensors")["weights"].shape == (10,)


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path: Path) -> None:
    Checkpoints(tmp_path, make_run().checkpoint).save_periodic({}, 1)
    (tmp_path / "step_0000000002.safetensors").mkdir()
    with pytest.raises(ConfigError, match=r"step_0000000002.safetensors: cannot be read \(Is a directory\)"):
        newest(tmp_path)
