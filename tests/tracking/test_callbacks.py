"""Callbacks: from Python, from plugins, and what becomes of one that raises."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import TOY, Training, make_run, make_toy, train_in

import dqnspeed
from dqnspeed.config.options import ConfigError
from dqnspeed.tracking import Callback, CallbackError, Callbacks, TrainingState, make_trackers, register_tracker
from dqnspeed.tracking.trackers import TRACKERS
from dqnspeed.training.state_file import load

FEW = ["stop.max_steps=200", "tracking.report_every_s=0.001"]


def recording() -> tuple[Callback, mock.Mock]:
    """A callback, and the mock that records its calls."""
    calls = mock.Mock()
    events = {name: getattr(calls, name) for name in vars(Callback) if name.startswith("on_")}
    return type("Recording", (Callback,), events)(), calls


def raising(event: str, optional: bool = False) -> Callback:
    """A callback that raises at an event."""

    def method(self: Callback, *_: Any) -> None:
        raise RuntimeError("the callback broke")

    callback: Callback = type("Mine", (Callback,), {event: method, "optional": optional})()
    return callback


def test_a_callback_hears_of_every_event(tmp_path: Path) -> None:
    (callback, calls), updates = recording(), list[int]()
    calls.on_update.side_effect = lambda training: updates.append(training.updates)
    run = make_toy(*FEW, "eval.every_steps=100", "eval.episodes=1", "checkpoint.every_minutes=0.00001")
    summary = train_in(tmp_path, run, callbacks=[callback])
    events = [name for name, *_ in calls.method_calls]
    assert events[0] == "on_training_start" and events[-1] == "on_training_end"
    assert updates == sorted(set(updates)) and updates[-1] == summary["updates"]
    games = [call.args[1] for call in calls.on_episode_end.call_args_list]
    assert games == [*range(1, summary["episodes"] + 1)]
    assert events.count("on_evaluation") == summary["evaluations"] == 2
    saved = [call.args[1].stem.partition("_")[0] for call in calls.on_checkpoint.call_args_list]
    assert {*saved} == {"step", "final", "best"}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert events.count("on_report") == len(lines) and "train/loss" in calls.on_report.call_args.args[1]


@pytest.mark.parametrize("event", ["on_training_start", "on_update", "on_evaluation", "on_checkpoint"])
def test_a_callback_that_raises_ends_the_run_saved_and_is_named(event: str, tmp_path: Path) -> None:
    other, calls = recording()
    evaluated = ["eval.every_steps=60", "eval.episodes=1", "checkpoint.every_minutes=0.00001"]
    callbacks = [raising(event), other]
    with pytest.raises(CallbackError, match=rf"^callback Mine\.{event}: raised ") as raised:
        train_in(tmp_path, make_toy("stop.max_steps=100000", *evaluated), callbacks=callbacks)
    assert "RuntimeError: the callback broke" in str(raised.value)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["stopped_by"] == "error" and "the callback broke" in summary["error"]
    assert calls.on_training_end.call_args.args[1]["stopped_by"] == "error"
    if event != "on_training_start":  # nothing was trained by then
        state = load(tmp_path / "checkpoints" / "final.safetensors")
        assert state["progress"]["agent_steps"] == summary["agent_steps"] < 100_000
        resumed = train_in(tmp_path, make_toy(f"stop.max_steps={summary['agent_steps'] + 100}"), resume=True)
        assert resumed["stopped_by"] == "max_steps"


def test_a_callback_that_raises_at_the_end_leaves_the_summary_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(CallbackError, match="the callback broke"):
        train_in(tmp_path, make_toy(*FEW), callbacks=[raising("on_training_end")])
    assert json.loads((tmp_path / "summary.json").read_text())["stopped_by"] == "max_steps"


def test_an_optional_callback_that_raises_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (good, calls), training = recording(), Training(make_toy(), tmp_path)
    callbacks = Callbacks([raising("on_report", optional=True), good])
    callbacks.on_training_start(training)
    for _ in range(3):
        callbacks.call("on_report", training, {})
    callbacks.check()
    assert len(calls.method_calls) == 4
    assert caplog.messages == ["Mine failed and is off for the rest of this run: the callback broke"]


def test_the_seconds_of_a_callback_stand_in_the_timings(tmp_path: Path) -> None:
    class Slow(Callback):
        def on_update(self, training: TrainingState) -> None:
            time.sleep(0.002)

    summary = train_in(tmp_path, make_toy(*FEW), callbacks=[Slow()])
    assert summary["callbacks"]["Slow"] >= 0.002 * 100
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["time/callbacks"] >= summary["callbacks"]["Slow"] / 2


def test_a_callback_ends_a_run(tmp_path: Path) -> None:
    class Enough(Callback):
        def on_update(self, training: TrainingState) -> None:
            if training.updates >= 10:
                training.end("enough updates")

    summary = train_in(tmp_path, make_toy("stop.max_steps=100000"), callbacks=[Enough()])
    assert summary["stopped_by"] == "enough updates" and 10 <= summary["updates"] < 20
    assert (tmp_path / "checkpoints" / "final.safetensors").is_file()


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (Callback, "callbacks=<class .*: takes a list of objects of dqnspeed.Callback"),
        ([Callback], "takes a list of objects"),
    ],
)
def test_what_is_no_callback_is_refused_in_one_sentence(callbacks: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        dqnspeed.train(["env=cartpole"], folder=tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_a_broken_callback_is_a_run_error_of_the_python_interface(tmp_path: Path) -> None:
    sentence = r"^callback Mine\.on_report: raised RuntimeError: the callback broke\."
    with pytest.raises(dqnspeed.RunError, match=sentence):
        dqnspeed.train([*TOY, "stop.max_steps=60"], folder=tmp_path / "run", callbacks=[raising("on_report")])


def test_trackers_are_made_by_name_with_their_arguments() -> None:
    @register_tracker("of_a_test")
    class Mine(Callback):
        def __init__(self, size: int = 1):
            self.size = size

    try:
        run = make_toy("tracking.trackers=[tensorboard,of_a_test]", "+tracking.kwargs.of_a_test.size=3")
        names = [type(tracker).__name__ for tracker in make_trackers(run.tracking)]
        assert names == ["TensorBoard", "Mine"]
        assert [tracker.size for tracker in make_trackers(run.tracking) if isinstance(tracker, Mine)] == [3]
        with pytest.raises(ConfigError, match=r"^tracking\.kwargs\.of_a_test: TypeError: .*'sise'"):
            make_trackers(make_toy("tracking.trackers=[of_a_test]", "+tracking.kwargs.of_a_test.sise=3").tracking)
    finally:
        del TRACKERS["of_a_test"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("tracking.trackers=[tensorbord]", "tracking.trackers=tensorbord: there is no such tracker (nearest: tens"),
        ("tracking.trackers=[wandb,wandb]", "tracking.trackers=wandb: is named twice."),
        ("+tracking.kwargs.csv.path=a", "tracking.kwargs.csv: belongs to a tracker that tracking.trackers does not"),
    ],
)
def test_a_wrong_tracker_is_one_sentence_before_anything_begins(overrides: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        dqnspeed.compose(["env=cartpole", *overrides.split()])
    assert str(raised.value).startswith(sentence)


def test_no_tracker_is_made_for_a_disabled_wandb() -> None:
    assert make_trackers(make_run("tracking.wandb=disabled", "tracking.trackers=[wandb]").tracking) == []
