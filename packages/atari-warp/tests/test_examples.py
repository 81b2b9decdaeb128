"""Trainings of other libraries in the repository's ``examples``, on atari-warp and on their own environments."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
EXAMPLES = PACKAGE.parents[1] / "examples"
RUNS = {
    "ppo_cleanrl_style.py env=atari_warp": "torch",
    "ppo_cleanrl_style.py env=ale game=breakout": "torch",
    "ppo_cleanrl_style.py env=envpool": "envpool",
    "train_sb3.py env=atari_warp algorithm=ppo": "stable_baselines3",
    "train_sb3.py env=atari_warp algorithm=dqn": "stable_baselines3",
    "train_sb3.py env=sb3": "stable_baselines3",
    "train_torchrl.py env=atari_warp": "torchrl",
    "train_torchrl.py env=ale": "torchrl",
    "train_torchrl.py env=torchrl": "torchrl",
    "train_rllib.py env=atari_warp": "ray.rllib",
    "train_rllib.py env=ale": "ray.rllib",
    "train_rllib.py env=rllib": "ray.rllib",
}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are in the repository only")


def run_example(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, str(EXAMPLES / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def needs(library: str) -> None:
    """Skip a test unless a library can be imported; Ray comes with and without RLlib."""
    if library == "ray.rllib":
        pytest.importorskip("tree", reason="needs ray[rllib]")
    pytest.importorskip(library.partition(".")[0])


@pytest.mark.integration
@pytest.mark.parametrize("command", RUNS)
def test_an_example_trains_for_some_seconds(command: str) -> None:
    needs(RUNS[command])
    done = run_example(*command.split(), "minutes=0.02")
    assert done.returncode == 0, done.stderr
    assert "frames/s" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["env=gym"], "env=gym: unknown. Choose atari_warp, ale or envpool."),
        (["games=pong"], "games=pong: unknown option. Choose from env=, game="),
        (["minutes=two"], "minutes=two: must be a number."),
    ],
)
def test_an_example_refuses_unknown_options(words: list[str], error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["ppo_cleanrl_style.py", *words])
    with pytest.raises(SystemExit, match=f"^{re.escape(error)}"):
        runpy.run_path(str(EXAMPLES / "ppo_cleanrl_style.py"), run_name="__main__")
