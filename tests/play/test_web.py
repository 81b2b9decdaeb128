"""``play screen=web``: the page, its end, and what is refused."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Command, environment, listen

import dqnspeed
from dqnspeed.play import command
from dqnspeed.tracking.run_folder import PLAYED

LINE = ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=mlp", "algo.learning_starts=90", "algo.batch_size=8",
        "stop.max_steps=100", "execution.threads=1", "tracking=local", "tracking.progress=off"]  # fmt: skip


@pytest.fixture(scope="module")
def catch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of games of five steps."""
    run = tmp_path_factory.mktemp("catch") / "run"
    dqnspeed.train(LINE, folder=run)
    return run


class Play:
    """``play screen=web`` in a process of its own, until the address of its page."""

    def __init__(self, run: Path, *arguments: str):
        words = [sys.executable, "-m", "dqnspeed.play", f"run={run}", "screen=web", "fps=50", *arguments]
        self.process = subprocess.Popen(
            words, cwd=run.parent, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"live page: (\S+)", line):
                self.url = found[1]
                return
        pytest.fail(self.process.communicate()[1])


@pytest.fixture
def playing(catch: Path) -> Iterator[Any]:
    begun = list[Play]()

    def begin(*arguments: str) -> Play:
        begun.append(Play(catch, *arguments))
        return begun[-1]

    yield begin
    for play in begun:
        play.process.kill()
        play.process.communicate()


def test_games_are_shown_until_the_last_has_ended(playing: Any, catch: Path) -> None:
    play = playing("episodes=2", "seed=3")
    facts, pictures = listen(play.url, lambda *_: False)
    out, errors = play.process.communicate(timeout=60)
    assert play.process.returncode == 0, errors
    assert facts["ended"] == "The play has ended after 2 games." and len(pictures) >= 2
    assert facts["actions"] and "best.safetensors after " in facts["algo"]
    assert re.findall(r"game (\d+): return -?1, (\d) agent steps", out) == [("1", "5"), ("2", "5")]
    assert not (catch / PLAYED).exists(), "nothing is kept"


def test_ctrl_c_ends_a_play_that_nobody_watches(playing: Any) -> None:
    play = playing()
    threading.Timer(0.5, lambda: play.process.send_signal(signal.SIGINT)).start()
    _, errors = play.process.communicate(timeout=60)
    assert play.process.returncode == 128 + signal.SIGINT and errors == ""


def test_the_missing_library_is_named(catch: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    code, _, errors = run_here(command, f"run={catch}", "screen=web")
    sentence = "screen=web: needs aiohttp. pip install 'dqnspeed[live]' installs it."
    assert (code, errors) == (2, f"dqnspeed: {sentence}\n")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("record=true", "screen=web: does not go with record=true. Leave one of them out."),
        ("overlay=true", "screen=web: does not go with overlay=true. Leave one of them out."),
        ("num_envs=3", "num_envs=3: does not go with screen=web, which shows one game. Use 1."),
        ("deterministic=false", "deterministic=false: algo=dqn learns action values and no policy to draw from. Use "),
    ],
)
def test_what_the_page_cannot_show_is_one_sentence(more: str, sentence: str, catch: Path, run_here: Command) -> None:
    code, _, errors = run_here(command, f"run={catch}", "screen=web", more)
    assert code == 2 and errors.startswith(f"dqnspeed: {sentence}")
