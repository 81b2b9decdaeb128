"""The doctor finds each mistake of an environment, and nothing wrong in a sound one."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from conftest import Command, environment, make_run

from dqnspeed.doctor import checkup, command, training
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, RandomPlay, check_play
from dqnspeed.doctor.diagnosis import diagnose
from dqnspeed.envs import describe

QUICK = ["model.hidden=[16]", "replay.buffer_size=2000", "algo.learning_starts=100", "execution.threads=1"]


@pytest.fixture(autouse=True)
def few_steps_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SPEED_STEPS", 300)
    monkeypatch.setattr(checkup, "MIN_STEPS", 50)


def ask(tmp_path: Path, *overrides: str, seconds: float = 0.3) -> dict[str, Finding]:
    """The worst finding of each topic."""
    worst: dict[str, Finding] = {}
    order = [OK, LOOK, WRONG]
    for finding in diagnose(make_run(*overrides, *QUICK), seconds, tmp_path / "seen.png"):
        if finding.topic not in worst or order.index(finding.verdict) > order.index(worst[finding.topic].verdict):
            worst[finding.topic] = finding
    return worst


@pytest.mark.cuda
@pytest.mark.parametrize("algo", ["dqn", "ppo", "pqn"])
def test_a_sound_environment_is_sound_on_a_gpu(algo: str, tmp_path: Path) -> None:
    found = ask(tmp_path, f"algo={algo}", "env=cartpole", "device=cuda", "num_envs=4", "algo.batch_size=32")
    assert found["training" if "training" in found else "gradients"].verdict != WRONG


def test_pong_is_sound(tmp_path: Path) -> None:
    found = ask(tmp_path, "backend=ale", seconds=2)
    assert {f.verdict for topic, f in found.items() if topic not in ("speed", "episodes")} == {OK}
    assert "4x84x84 uint8, 4 frames of 1 channel, channels first" in found["observations"].text
    assert "features.0" in found["gradients"].text and "steps/s" in found["speed"].text
    from PIL import Image

    assert np.asarray(Image.open(tmp_path / "seen.png")).std() > 10


@pytest.mark.parametrize(
    ("limits", "phrase"),
    [
        ("stop.max_minutes=1 stop.max_steps=10_000_000", "6,000 steps in 1 minute (stop.max_minutes)"),
        ("stop.max_minutes=600 stop.max_steps=720_000", "2.0 h for 720,000 steps (stop.max_steps)"),
        ("", "2.8 h for 1,000,000 steps (as many as the book's Pong)"),
    ],
)
def test_a_duration_is_until_the_nearer_limit(limits: str, phrase: str) -> None:
    run = make_run("stop.max_steps=null", *limits.split())
    assert training.until_limit(run, steps_per_second=100)[1] == phrase


def test_a_board_is_sound(tmp_path: Path) -> None:
    found = ask(tmp_path, "wrappers=none", "env.id=toy_envs:Board-v0", "model=board")
    assert "1x15x15 uint8" in found["observations"].text
    assert [f for f in found.values() if f.verdict == WRONG] == []


SICK = ["env.id=toy_envs:Sick-v0", "wrappers=none", "model=board"]
MISTAKES = {
    "divided": ("spaces", "was it divided?"),
    "silent": ("rewards", "all zero"),
    "endless": ("episodes", "none ended"),
    "frozen": ("observations", "they never change"),
    "huge": ("rewards", "far from 1"),
    "stale": ("observations", "does not change in 100%"),
    "short": ("episodes", "over as soon as they begin"),
    "changed": ("wrappers", "RecordEpisodeStatistics outside"),
    "dim": ("observations", "almost zero for the network"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    topic, words = MISTAKES[mistake]
    found = ask(tmp_path, *SICK, f"env.kwargs={{mistakes: [{mistake}]}}")
    assert found[topic].verdict == (LOOK if mistake == "changed" else WRONG) and words in str(found[topic])


def test_numbers_that_stop_being_finite_are_reported() -> None:
    run = make_run("env=cartpole")
    played = RandomPlay(rewards=[1.0] * 500 + [math.nan], low=math.nan, high=math.nan)
    found = {f.topic: f for f in check_play(run, describe(run), played, 500)}
    assert found["observations"].verdict == found["rewards"].verdict == WRONG
    assert "nan at step 501" in found["rewards"].text


@pytest.mark.parametrize("wrong", ["no info", "nan", "nan reward", "raises"])
def test_an_environment_that_breaks_is_reported_without_a_traceback(wrong: str, tmp_path: Path) -> None:
    kwargs = f"env.kwargs={{kind: {'float' if wrong == 'nan' else 'hwc'}, wrong: '{wrong}'}}"
    found = ask(tmp_path, "env.id=toy_envs:Anything-v0", "wrappers=none", "model=board", kwargs)
    assert found["spaces"].verdict == WRONG


def test_no_time_to_play_is_no_mistake_of_the_environment_nor_is_a_close_that_raises(tmp_path: Path) -> None:
    kwargs = "env.kwargs={kind: hwc, wrong: close}"
    found = ask(tmp_path, "env.id=toy_envs:Anything-v0", "wrappers=none", "model=board", kwargs, seconds=1e-9)
    assert found["observations"].verdict != WRONG and found["rewards"].text.startswith("1 to 1")


def test_four_mistakes_are_all_reported(tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mistakes = ["divided", "huge", "endless", "changed"]
    code, out, _ = run_here(command, *SICK, "seconds=1", f"env.kwargs={{mistakes: [{','.join(mistakes)}]}}", *QUICK)
    assert code == 1 and (tmp_path / "doctor.png").exists()
    for mistake in mistakes:
        topic, words = MISTAKES[mistake]
        assert any(not line.startswith("ok") and topic in line and words in line for line in out.splitlines())


@pytest.mark.parametrize(
    "line", ["env=cartpole algo=ppo num_envs=4 algo.batch_size=16", "env=frozen_lake algo=q_learning"]
)
def test_an_algorithm_of_any_kind_can_be_asked_about(line: str, tmp_path: Path) -> None:
    found = ask(tmp_path, *line.split())
    assert found.get("gradients", found["speed"]).verdict != WRONG and "updates/s" in found["speed"].text


def test_bad_input_gets_one_sentence(run_here: Command) -> None:
    for line, sentence in {
        "seconds=-3": "seconds=-3.0: must be more than 0.",
        "picture=nowhere/a.png": "picture=nowhere/a.png: there is no such folder.",
        "sweep=num_envs": "sweep=num_envs: a sweep needs the command line of dqnspeed.train.",
        "picture=a.txt": "picture=a.txt: must end with one of .png,",
        "env=pongg": "env=pongg: there is no such option",
        "-m": "-m: is no option; give KEY=VALUE, where KEY is one of seconds, picture; or GROUP=OPTION and ",
    }.items():
        code, _, errors = run_here(command, line)
        assert code == 2 and errors.startswith(f"dqnspeed: {sentence}"), errors


def test_the_doctor_ends_if_an_environment_hangs_in_a_game(tmp_path: Path) -> None:
    ready = tmp_path / "ready"  # the toy hangs once this folder is there
    line = ["env.id=toy_envs:Broken-v0", "wrappers=none", "model=mlp", "parallelism.timeout_s=3", "seconds=60", *QUICK,
            f"env.kwargs={{how: hang, folder: '{ready}'}}"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "dqnspeed.doctor", *line], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = iter(process.stdout)
    while "wrappers" not in next(lines):
        pass
    ready.mkdir()
    *_, last = lines
    assert process.wait(20) == 1
    process.stdout.close()
    assert last.startswith("wrong  play           env.id=toy_envs:Broken-v0 has not answered for 3 s (")
    assert "in hang_in_the_toy)" in last and "set parallelism.timeout_s=60 to wait longer" in last


def test_running_statistics_of_a_copy_are_told() -> None:
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))
    findings = list(checkup.check_wrappers(env, make_run("experiment=own_env")))
    assert [finding.verdict for finding in findings] == [LOOK] and "not saved" in findings[0].text
