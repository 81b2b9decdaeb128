"""Reading a run's folder: what is whole comes back, what is damaged is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Training, make_toy

from dqnspeed.config.options import ConfigError
from dqnspeed.envs import Episode
from dqnspeed.tracking import Callbacks
from dqnspeed.tracking.files import EpisodesFile, MetricsFile, file_sizes, shorten
from dqnspeed.tracking.run_folder import (
    EPISODES,
    METRICS,
    SUMMARY,
    check_links,
    holding,
    holds_run,
    newest_run,
    read_episodes,
    read_metrics,
)


def test_what_was_written_is_read_and_damaged_lines_are_counted(tmp_path: Path) -> None:
    training = Training(make_toy(), tmp_path, agent_steps=3, seconds=1.5)
    callbacks = Callbacks([MetricsFile(), EpisodesFile()])
    callbacks.on_training_start(training)
    callbacks.call("on_report", training, {"train/loss": 0.5})
    callbacks.call(
        "on_episode_end", training, 1, Episode(env=2, episode_return=-7.5, length=9, begun=4), "videos/a.mp4"
    )
    callbacks.call("on_training_end", training, {})
    report = {"step": 3, "time": 1.5, "train/loss": 0.5}
    game = {"episode": 1, "begun": 4, "return": -7.5, "length": 9, "env": 2, "agent_step": 3, "time": 1.5,
            "video": "videos/a.mp4"}  # fmt: skip
    assert holds_run(tmp_path)
    assert read_metrics(tmp_path) == ([report], "") and read_episodes(tmp_path) == ([game], "")
    with (tmp_path / METRICS).open("a") as file:
        file.write('[]\n{"step": 4}\n{"step": 4, "time": "soon"}\n{"st')
    with (tmp_path / EPISODES).open("a") as file:
        file.write("2,2,1,1,one,1,1.0,\n3,1")
    sentence = "{}: is damaged; {} lines cannot be read, the others are taken."
    assert read_metrics(tmp_path) == ([report], sentence.format(tmp_path / METRICS, "4 of its 5"))
    assert read_episodes(tmp_path) == ([game], sentence.format(tmp_path / EPISODES, "2 of its 4"))
    with (tmp_path / EPISODES).open("a") as file:
        file.write("\0" * 200_000)  # as a power cut may leave it
    assert read_episodes(tmp_path) == ([game], sentence.format(tmp_path / EPISODES, "2 of its 4"))


def test_folders_are_found_once_however_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "0").mkdir(parents=True)
    (tmp_path / "a" / "0" / METRICS).touch()
    (tmp_path / "b").symlink_to(tmp_path / "a" / "0")
    found = holding([tmp_path, tmp_path / "a" / "0", tmp_path / "a" / ".." / "a", tmp_path / "b"], METRICS, SUMMARY)
    assert found == {tmp_path / "a" / "0"}
    assert holding([tmp_path / "gone"], METRICS) == holding([tmp_path], SUMMARY) == set()


def test_numbers_keep_their_digits_and_lines_of_games_that_are_played_anew_go(tmp_path: Path) -> None:
    training = Training(make_toy(), tmp_path, agent_steps=3, seconds=1.5)
    callbacks = Callbacks([MetricsFile(), EpisodesFile()])
    callbacks.on_training_start(training)
    callbacks.call("on_report", training, {"train/loss": 3e-7, "train/updates": 1_234_567_891})
    sizes = dict[str, int]()
    for number, points in ((1, 1_234_567.0), (2, 0.1)):
        callbacks.call("on_episode_end", training, number, Episode(env=0, episode_return=points, length=9, end_row=9))
        sizes = sizes or file_sizes(tmp_path)
    callbacks.call("on_training_end", training, {})
    assert read_metrics(tmp_path)[0][0].items() >= {"train/loss": 3e-7, "train/updates": 1_234_567_891}.items()
    assert [game["return"] for game in read_episodes(tmp_path)[0]] == [1_234_567, 0.1]
    shorten(tmp_path, sizes)
    assert [game["return"] for game in read_episodes(tmp_path)[0]] == [1_234_567]
    shorten(tmp_path, {})
    assert read_episodes(tmp_path)[0] == [], "from the first step"


def test_the_newest_run_is_the_one_that_reported_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^outputs/ and multirun/: hold no run to play; .*experiment=speedrun"):
        newest_run("run to play")
    names = ["outputs/2026-03-01/12-00-00", "multirun/2026-02-01/12-00-00/1", "outputs/mine"]
    for age, name in enumerate(names):
        Path(name).mkdir(parents=True)
        (Path(name) / METRICS).touch()
        os.utime(Path(name) / METRICS, (1e9 - age, 1e9 - age))
    assert newest_run("run") == Path(names[0])
    os.utime(Path(names[1]) / METRICS)
    Path(names[2], "play.jsonl").touch()  # what is played since does not count
    Path("outputs/odd", METRICS).mkdir(parents=True)
    assert newest_run("run") == Path(names[1])
    assert newest_run("run", lambda folder: folder.name == "mine") == Path(names[2])


def test_links_out_of_a_run_are_refused_but_those_of_wandb_to_its_logs(tmp_path: Path) -> None:
    logs, folder = tmp_path / "cache" / "core.log", tmp_path / "run"
    for parent in (logs.parent, folder / "wandb" / "offline-run-1"):
        parent.mkdir(parents=True)
    logs.touch()
    (folder / "wandb" / "offline-run-1" / "debug-core.log").symlink_to(logs)
    check_links(folder)
    for name in ("wandb/id.txt", "metrics.jsonl", "checkpoints"):
        (folder / name).symlink_to(logs)
        with pytest.raises(ConfigError, match=rf"{name}: is a link that leads out of this folder"):
            check_links(folder)
        (folder / name).unlink()
