"""The page of a training: its process, what it sends, and what becomes of it."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
from conftest import TOY, Training, command, environment, listen, make_run
from PIL import Image
from safetensors.numpy import save

import dqnspeed
from dqnspeed.tracking import live_page
from dqnspeed.tracking.live_page import MAX_POINTS, LivePage, inline_page
from dqnspeed.tracking.time_left import TimeLeft

LINE = [*TOY, "live=true", "tracking.progress=plain", "stop.max_minutes=2"]
GAME = ["env=breakout", "backend=ale", "model=small", "num_envs=2", "algo.learning_starts=40", "algo.batch_size=8",
        "replay.buffer_size=1000", "execution.threads=1", "tracking=local", "tracking.progress=plain",
        "tracking.report_every_s=0.5", "stop.max_minutes=2", "live=true"]  # fmt: skip


class Run:
    """A training in a process of its own, and the address of its page."""

    def __init__(self, overrides: list[str], folder: Path):
        self.process = subprocess.Popen(
            command(*overrides, f"hydra.run.dir={folder}"), cwd=folder.parent, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.lines = list[str]()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.lines.extend(iter(lines.readline, ""))

    def line(self, pattern: str, seconds: float = 90) -> re.Match[str]:
        """The first line that has ``pattern``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := next(filter(None, (re.search(pattern, line) for line in list(self.lines))), None):
                return found
            time.sleep(0.05)
        pytest.fail(f"no {pattern} in {''.join(self.lines)}")

    @property
    def url(self) -> str:
        return self.line(r"live page: (\S+)")[1]

    @property
    def page(self) -> psutil.Process:
        """The process that serves the page."""
        return next(one for one in psutil.Process(self.process.pid).children() if "-I" in one.cmdline())

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        return code


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    begun = list[Run]()

    def one(*overrides: str) -> Run:
        begun.append(Run([*overrides], tmp_path / f"run{len(begun)}"))
        return begun[-1]

    yield one
    for run in begun:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.end(signal.SIGKILL)


def decoded(picture: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and images of a moment."""
    [length] = struct.unpack_from("<I", picture)
    facts, at, images = json.loads(picture[4 : 4 + length]), 4 + length, dict[str, np.ndarray]()
    for name, size in facts["bytes"].items():
        images[name] = np.asarray(Image.open(io.BytesIO(picture[at : at + size])))
        at += size
    assert at == len(picture)
    return facts, images


def test_a_training_is_shown_with_its_newest_weights(begin: Callable[..., Run]) -> None:
    run = begin(*GAME)

    def enough(facts: dict[str, Any], pictures: list[bytes]) -> bool:
        return {"weights", "curves", "actions"} <= facts.keys() and len(pictures) > 20

    facts, pictures = listen(run.url, enough)
    assert facts["title"].startswith("baseline env=breakout ") and "live" not in facts["title"]
    assert facts["actions"] == ["NOOP", "FIRE", "RIGHT", "LEFT"] and facts["outputs"] == "action values"
    assert len({len(values) for values in facts["curves"].values()}) == 1 and facts["steps"] > 0
    moments = [decoded(picture) for picture in pictures]
    assert all(images["game"].shape == (210, 160, 3) for _, images in moments)
    assert all(images["seen"].shape == (84, 4 * 84, 3) for _, images in moments)
    assert any((one["game"] != other["game"]).any() for (_, one), (_, other) in itertools.pairwise(moments))
    assert all(len(moment["values"]) == 4 for moment, _ in moments)
    page = run.page
    assert run.end() == 128 + signal.SIGINT
    assert not page.is_running() or page.status() == psutil.STATUS_ZOMBIE
    assert not any("leak" in line for line in run.lines)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    dqnspeed.train([*TOY, "stop.max_steps=100"], folder=folder)
    return folder


class Page:
    """The process of a page, and its replies."""

    def __init__(self, config: dict[str, Any], folder: Path):
        self.replies = list[Any]()
        self._heard = threading.Event()
        self.process = live_page.PageProcess(config, str(folder), False, self._reply)
        assert self._heard.wait(60)
        self.url = self.replies[0]["line"].removeprefix("live page: ").partition(" ")[0]

    def _reply(self, one: Any) -> None:
        self.replies.append(one)
        self._heard.set()

    def end(self) -> None:
        self.process.send(ended="It has ended.")
        self.process.close()
        assert self.replies[-1] is None


def test_the_game_is_played_with_the_weights_that_are_sent(trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    page = Page(config, trained)
    weights = dqnspeed.load(trained, device="cpu").network.state_dict()
    page.process.send(save({name: np.zeros_like(array.numpy()) for name, array in weights.items()}), agent_steps=7)

    def enough(facts: dict[str, Any], pictures: list[bytes]) -> bool:
        return facts.get("weights") == "7" and bool(pictures) and set(decoded(pictures[-1])[0]["values"]) == {0}

    listen(page.url, enough)
    page.end()


class WaitForPageToEnd(dqnspeed.Callback):
    """Kills the process of the page, if it is to, waits for its end, and ends the training a report later."""

    def __init__(self, kills: bool):
        self._kills, self._reports = kills, 0

    def on_report(self, training: Any, metrics: Any) -> None:
        self._reports += 1
        if self._reports == 3:
            pages = [one for one in psutil.Process().children() if "-I" in one.cmdline()]
            for page in pages:
                if self._kills:
                    page.kill()
            psutil.wait_procs(pages, 30)
            while threading.active_count() > self.threads:
                time.sleep(0.01)  # the thread that reads its replies prints the line
        if self._reports == 5:
            training.end("seen")

    def on_training_start(self, training: Any) -> None:
        self.threads = threading.active_count()


SHORT = [*TOY, "stop.max_minutes=2", "tracking.report_every_s=0.1"]
ENDED = "live=true: the page has ended. The training continues.\n"


def test_a_page_that_is_killed_ends_no_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = dqnspeed.train(SHORT, folder=tmp_path / "run", live=True, callbacks=[WaitForPageToEnd(kills=True)])
    assert results.summary["stopped_by"] == "seen" and ENDED in capfd.readouterr().out


CUT_WEIGHTS = b'{"bytes": 8000000, "agent_steps": 1}\n' + bytes(5_000_000)


@pytest.mark.parametrize("cut", [b"", b'{"facts": {"steps"', CUT_WEIGHTS])
def test_a_run_that_is_killed_amid_a_message_leaves_no_process(cut: bytes) -> None:
    boot = [sys.executable, "-I", "-c", live_page.BOOT, json.dumps(sys.path)]
    with subprocess.Popen(boot, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        url = json.loads(process.stdout.readline())["line"].removeprefix("live page: ").partition(" ")[0]
        process.stdin.write(b'{"facts": {"steps": 1}, "bytes": 0}\n' + cut)
        threading.Timer(1, process.stdin.close).start()
        facts, _ = listen(url, lambda facts, _: "ended" in facts)
        assert facts["ended"] == "The run ended without a message; it may have been killed."
        assert process.wait(60) == 0


def test_a_training_that_is_killed_is_said_so(begin: Callable[..., Run]) -> None:
    run = begin(*LINE)
    page = run.page if run.url else None

    def enough(facts: dict[str, Any], _: list[bytes]) -> bool:
        run.process.kill()  # at the first message
        return "ended" in facts

    facts, _ = listen(run.url, enough)
    assert facts["ended"] == "The run ended without a message; it may have been killed."
    assert page is not None
    page.wait(30)


def test_an_environment_without_pictures_shows_what_there_is_until_the_end(begin: Callable[..., Run]) -> None:
    run = begin(*LINE)
    sent = threading.Event()

    def enough(facts: dict[str, Any], pictures: list[bytes]) -> bool:
        if "weights" in facts and len(pictures) > 3 and not sent.is_set():
            sent.set()
            run.process.send_signal(signal.SIGINT)
        return "ended" in facts

    facts, pictures = listen(run.url, enough)
    assert facts["ended"].startswith("The training has ended: it was stopped by SIGINT.")
    moment, images = decoded(pictures[-1])
    assert images == {} and facts["sees_images"] is False and len(moment["values"]) == len(facts["actions"])


def test_a_page_whose_process_does_not_start_ends_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "BOOT", "raise SystemExit(3)")
    results = dqnspeed.train(SHORT, folder=tmp_path / "run", live=True, callbacks=[WaitForPageToEnd(kills=False)])
    assert results.summary["stopped_by"] == "seen" and results.config["live"] is True
    assert "live" not in results.summary["label"] and results.summary["benchmark"] is False
    assert ENDED in capfd.readouterr().out


def test_a_page_that_fails_is_off_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no points")

    monkeypatch.setattr(LivePage, "_add_point", fail)
    results = dqnspeed.train(SHORT, folder=tmp_path / "run", live=True, callbacks=[WaitForPageToEnd(kills=False)])
    assert results.summary["stopped_by"] == "seen" and ENDED not in capfd.readouterr().out
    assert [record.getMessage() for record in caplog.records if "LivePage" in record.getMessage()] == [
        "LivePage failed and is off for the rest of this run: no points"
    ]


def test_a_game_that_cannot_be_made_is_one_sentence(trained: Path) -> None:
    """The page's process has not the environment that the run's own process registered."""
    config = json.loads((trained / "config.json").read_text())
    page = Page({**config, "env": {**config["env"], "id": "Nowhere-v0"}}, trained)
    facts, _ = listen(page.url, lambda facts, _: "problem" in facts)
    assert facts["problem"].startswith("The game cannot be shown: ") and "Nowhere-v0" in facts["problem"]
    page.end()
    assert page.replies[1] == {"problem": f"live=true: {facts['problem']}"}


def test_long_curves_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[dict[str, Any]]()
    process = mock.Mock(is_behind=True, send=lambda **message: sent.append(message.get("facts", {})))
    monkeypatch.setattr(live_page, "PageProcess", lambda *_: process)
    page, training = LivePage(TimeLeft(make_run(*TOY).stop), in_notebook=False), Training(make_run(*TOY))
    page.on_training_start(training)
    for training.seconds in range(5 * MAX_POINTS):
        page.on_report(training, {"episode/return_mean_100": training.seconds / 10})
    curves = sent[-1]["curves"]
    assert MAX_POINTS / 2 <= len(curves["time"]) <= MAX_POINTS
    assert curves["time"] == sorted(curves["time"]) and curves["time"][0] == 0
    assert curves["return"] == [time / 10 for time in curves["time"]]


def test_a_notebook_gets_a_curve_and_a_clip() -> None:
    nan = float("nan")
    shown = inline_page("a <run>", "?", {"time": [1, 2, 3], "return": [nan, 1, 4]}, base64.b64encode(b"GIF").decode())
    assert (
        "a &lt;run&gt;: ?" in shown
        and "<polyline" in shown
        and "mean return 4.00 after 3 s, from 1.00 to 4.00" in shown
    )
    assert 'src="data:image/gif;base64,R0lG"' in shown
    assert "no game has ended yet" in inline_page("a", "?", {"time": [1], "return": [nan]}, "")


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(dqnspeed.ConfigError, match=r"^live=true: needs aiohttp\. pip install 'dqnspeed\[live\]'"):
        live_page.check_live(make_run(*TOY, "live=true"))
