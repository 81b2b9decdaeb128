"""Playing a trained agent: what it prints, writes and refuses; and the videos of training."""

from __future__ import annotations

import contextlib
import csv
import errno
import itertools
import json
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pygame
import pytest
import toy_envs
from conftest import TOY, Command, environment, interrupted, make_run, train_in
from gymnasium import spaces
from PIL import Image

import dqnspeed
from dqnspeed import envs
from dqnspeed.agents.agent import load
from dqnspeed.agents.overlay import HEIGHT, Overlay
from dqnspeed.config.options import ConfigError
from dqnspeed.play import command
from dqnspeed.play.command import COMMAND_LINE
from dqnspeed.play.games import play as play_here
from dqnspeed.play.options import PlayConfig
from dqnspeed.play.recorder import print_write_errors
from dqnspeed.play.screen import ELSEWHERE, Screen, WindowClosedError, wants_window
from dqnspeed.report.runs import return_of
from dqnspeed.tracking.video import Film, check_encoder, enlarge, frame_rate, picture, write_mp4
from dqnspeed.training import state_file

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture(autouse=True)
def dummy_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def options(*arguments: str) -> PlayConfig:
    return COMMAND_LINE.read(arguments)[0]


def read_mp4(path: Path) -> np.ndarray:
    """The frames ``(T, H, W, 3)`` of a video, read by another library than the one that wrote it."""
    import cv2

    capture, frames = cv2.VideoCapture(str(path)), []
    while (read := capture.read())[0]:
        frames.append(read[1][:, :, ::-1])
    capture.release()
    return np.stack(frames)


def played(run: Path) -> list[dict[str, Any]]:
    """The results of all calls of ``play``."""
    return [json.loads(line) for line in (run / "play.jsonl").read_text().splitlines()]


def play(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    without_display = {k: v for k, v in environment().items() if k not in DISPLAYS}
    return forked.run("dqnspeed.play", *arguments, cwd=folder, env=without_display | more, timeout=120)


@pytest.fixture(scope="module")
def atari(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder above a short run on the CPU, in games of 50 agent steps, whose configuration names a GPU."""
    folder = tmp_path_factory.mktemp("atari")
    line = ["env=breakout", "backend=ale", "model=small", "num_envs=2", "algo.learning_starts=240",
            "algo.batch_size=8", "replay.buffer_size=1000", "stop.max_steps=250", "env.max_episode_frames=200",
            "execution.threads=1", "tracking=local", "tracking.progress=off", "tracking.video_every=4"]  # fmt: skip
    dqnspeed.train(line, folder=folder / "run")
    config, auto = folder / "run" / "config.json", '"device": "auto"'
    assert auto in config.read_text()
    config.write_text(config.read_text().replace(auto, '"device": "cuda"'))
    return folder


@pytest.fixture(scope="module")
def catch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of games of five steps."""
    run = tmp_path_factory.mktemp("catch") / "run"
    line = ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=mlp", "algo.learning_starts=90", "algo.batch_size=8",
            "stop.max_steps=100", "execution.threads=1", "tracking=local", "tracking.progress=off"]  # fmt: skip
    dqnspeed.train(line, folder=run)
    return run


def test_play_prints_records_and_keeps_its_results(atari: Path) -> None:
    result = play(atari, "run=run", "episodes=2", "record=true", "overlay=true", "checkpoint=final", "epsilon=0.3")
    assert result.returncode == 0, result.stderr
    kept = played(atari / "run")[-1]
    assert [game["game"] for game in kept["games"]] == [1, 2]
    assert kept["return_mean"] == np.mean([game["return"] for game in kept["games"]])
    ignored = sum(game["length"] for game in kept["games"]) - sum(kept["actions"].values())
    assert 0 <= ignored <= 2 * 4  # the step after a lost life ignores the action
    assert set(kept["actions"]) <= {"NOOP", "FIRE", "RIGHT", "LEFT"}
    assert f"mean return {kept['return_mean']:.2f} ± {kept['return_std']:.2f} over 2 games" in result.stdout
    for game in kept["games"]:
        assert f"_return_{game['return']:g}.mp4" in game["video"]
        frames = read_mp4(atari / "run" / game["video"])
        assert frames.shape[1] == HEIGHT and len(frames) == game["length"] + 1  # and the end
        assert frames.std(axis=0).max() > 10  # something moves

    again = play(atari, "run=run", "episodes=2", "checkpoint=final", "epsilon=0.3")
    assert f"there is no display here. {ELSEWHERE}" in again.stdout
    both = played(atari / "run")
    assert len(both) == 2  # the earlier results are kept, and the same seed gives the same games
    assert [g["return"] for g in both[1]["games"]] == [g["return"] for g in kept["games"]]


def test_a_play_that_is_terminated_leaves_no_half_film(atari: Path, tmp_path: Path) -> None:
    shutil.copytree(atari / "run", tmp_path / "run")
    arguments = ["run=run", "episodes=200", "record=true", "checkpoint=final"]
    with forked.Forked("dqnspeed.play", *arguments, cwd=tmp_path, env=environment()) as run:
        run.wait_for(lambda: list((tmp_path / "run" / "videos").glob("film_*.partial")))
        run.terminate()
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM and errors == ""
    assert not list((tmp_path / "run" / "videos").glob("*.partial"))


def test_a_signal_ends_a_play_also_while_its_window_opens() -> None:
    image = np.zeros((210, 160, 3), np.uint8)
    pygame.surfarray.make_surface(image)  # imports it, which an interrupt would leave half done for the next position
    for position in itertools.count(1):
        with contextlib.closing(Screen(1000)) as screen:
            if not interrupted(lambda: screen.show(image), position, "dqnspeed/play/screen.py", "/pygame/"):
                break
    assert position > 20


@pytest.mark.integration
def test_an_agent_of_the_emulator_is_played_and_its_game_examined(tmp_path: Path) -> None:
    game = ["env=breakout", "backend=atari_warp", "backend.compile_rom=false", "env.max_episode_frames=200",
            "execution.threads=1"]  # fmt: skip
    small = ["algo.learning_starts=50", "algo.batch_size=8", "model=small", "replay.buffer_size=1000"]
    line = ["parallelism=process", "num_envs=2", "stop.max_steps=100", "tracking=local", "tracking.progress=off"]
    dqnspeed.train([*game, *small, *line], folder=tmp_path / "run")
    result = play(tmp_path, "run=run", "episodes=1", "record=true", "epsilon=0.3")
    assert result.returncode == 0, result.stderr
    [kept] = played(tmp_path / "run")[-1]["games"]
    frames = read_mp4(tmp_path / "run" / kept["video"])
    assert len(frames) == kept["length"] + 1 and frames.std(axis=0).max() > 10
    result = forked.run("dqnspeed.doctor", *game, "seconds=1", cwd=tmp_path, env=environment(), timeout=120)
    assert result.returncode == 0 and "wrong" not in result.stdout, result.stdout


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("DISPLAY", ":99", "the display does not answer"), ("SDL_VIDEODRIVER", "none", "none not ")],
)
def test_a_display_that_cannot_be_used_ends_no_play_that_did_not_ask_for_it(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in DISPLAYS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, value)
    assert not wants_window(options())
    assert f"The games are not shown: a window cannot be opened ({why}" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=re.escape(f"screen=window: a window cannot be opened ({why}")):
        wants_window(options("screen=window"))


def test_what_is_seen_in_a_window_is_the_picture() -> None:
    image = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
    with contextlib.closing(Screen(1000)) as screen:
        screen.show(image)
        shown = pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2)
        np.testing.assert_array_equal(shown, image.repeat(2, axis=0).repeat(2, axis=1))
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        with pytest.raises(WindowClosedError):
            screen.show(image)


def test_a_window_that_is_closed_keeps_the_games_that_ended(catch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[np.ndarray]()

    def show(self: Screen, image: np.ndarray) -> None:
        shown.append(image)
        if len(shown) == 9:  # in the second game
            raise WindowClosedError

    monkeypatch.setattr(Screen, "show", show)
    result = play_here(options(f"run={catch}", "episodes=3", "screen=window"))
    assert len(result["games"]) == 1 and len(shown) == 9


def test_a_game_without_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dqnspeed.train([*TOY, "stop.max_steps=100"], folder=tmp_path / "run")
    shown = play_here(options(f"run={tmp_path / 'run'}", "episodes=1"))
    assert len(shown["games"]) == 1 and "The games are not shown: " in capsys.readouterr().out
    with pytest.raises(ConfigError, match="render"):
        play_here(options(f"run={tmp_path / 'run'}", "episodes=1", "record=true"))

    # Actions go by the names that the environment gives all of them, or by its own numbers.
    monkeypatch.setattr(toy_envs.Counter, "action_space", spaces.Discrete(3, start=5))
    numbers = {"5", "6", "7"}
    named = ({1: "left", 2: "right", 3: "stay"}, {"left", "right", "stay"}), (["left"], numbers), (None, numbers)
    for names, expected in named:
        monkeypatch.setattr(toy_envs.Counter, "get_action_meanings", lambda self, names=names: names, raising=False)
        result = play_here(options(f"run={tmp_path / 'run'}", "episodes=4", "epsilon=1"))
        assert set(result["actions"]) == expected
        assert dqnspeed.load(tmp_path / "run").action_names == sorted(expected)


def test_a_policy_plays_its_most_likely_actions_or_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["stop.max_steps=100", "model.hidden=[8]"]
    for algo, default in (("ppo", "eval.deterministic=false"), ("dqn", "eval.deterministic=true")):
        dqnspeed.train([*TOY, f"algo={algo}", default, *few], folder=tmp_path / algo)
    run = f"run={tmp_path / 'ppo'}"
    drawn, best = (play_here(options(run, "episodes=100", *more)) for more in ([], ["deterministic=true"]))
    assert (drawn["deterministic"], best["deterministic"]) == (False, True)
    assert len(best["actions"]) < len(drawn["actions"]) == 3
    with pytest.raises(ConfigError, match=r"^deterministic=false: algo=dqn learns action values and no policy"):
        play_here(options(f"run={tmp_path / 'dqn'}", "deterministic=false"))


@pytest.mark.parametrize("shown_too", ["overlay=false", "overlay=true", "saliency=true"])
def test_five_steps_are_six_pictures(shown_too: str, catch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[np.ndarray]()
    monkeypatch.setattr(Screen, "show", lambda self, image: shown.append(image))
    result = play_here(options(f"run={catch}", "episodes=2", "record=true", "screen=window", shown_too))
    assert len(shown) == 12
    films = [read_mp4(catch / game["video"]) for game in result["games"]]
    assert [len(film) for film in films] == [6, 6]
    if shown_too == "overlay=false":  # the ball falls a row a step, to the bottom
        for film in (shown[:6], shown[6:], *films):
            rows = [(np.asarray(image)[:: len(image) // 6, :: len(image[0]) // 5, 0] > 128) for image in film]
            assert [int(np.flatnonzero(row.any(axis=1))[0]) for row in rows] == [0, 1, 2, 3, 4, 5]


def test_training_games_are_recorded_and_the_curve_points_to_them(atari: Path) -> None:
    with (atari / "run" / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 4
    for row in rows:
        number = int(row["episode"])
        name = f"videos/episode_{number:06d}_return_{row['return']}.mp4" if number % 4 == 0 else ""
        assert row["video"] == name
        if name:
            frames = read_mp4(atari / "run" / name)
            assert len(frames) == int(row["length"]) + 1 and frames.shape[1:] == (336, 336, 3)


def test_the_frames_of_a_recorded_game_are_that_games_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counting environment's frames say (seed, episode, step), so each film can be checked on its own."""
    for kind in (["parallelism=serial"], ["parallelism=process", "parallelism.transport=queue"]):
        videos = []

        def keep(path: Path, frames: Any, fps: float, videos: list[Any] = videos) -> None:
            videos.append(list(frames))

        monkeypatch.setattr("dqnspeed.tracking.video.write_mp4", keep)
        monkeypatch.setattr("dqnspeed.tracking.video.picture", lambda frame, largest: frame)
        monkeypatch.setattr("dqnspeed.tracking.video.enlarge", lambda frame, width: frame)
        run = make_run(*TOY, *kind, "num_envs=2", "tracking.video_every=3", "stop.max_steps=200")
        folder = tmp_path / "_".join(kind)
        folder.mkdir()
        train_in(folder, run)
        assert len(videos) > 5
        for video in videos:
            seeds, numbers, steps = np.array(video).T
            assert len(set(seeds)) == len(set(numbers)) == 1
            assert steps.tolist() == list(range(8))  # the last picture too


@pytest.mark.parametrize(
    ("line", "sentence"),
    {
        "run=nowhere": "nowhere: there is no such folder.",
        f"run={'x' * 300}": f"{'x' * 300}: cannot be looked into (File name too long).",
        "run=run checkpoint=nothing": "checkpoint=nothing: is not in run/checkpoints. Choose one of ",
        "run=run screen=window": f"screen=window: there is no display here. {ELSEWHERE}",
        "run=run episodes=0": "episodes=0: must be at least 1.",
    }.items(),
)
def test_play_answers_mistakes_in_one_sentence(
    line: str, sentence: str, catch: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(catch.parent)
    for variable in DISPLAYS:
        monkeypatch.delenv(variable, raising=False)
    code, _, errors = run_here(command, *line.split())
    assert code == 2 and errors.startswith(f"dqnspeed: {sentence}") and errors.count("\n") == 1


def test_the_newest_run_is_played(
    catch: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = run_here(command, "episodes=1")
    assert code == 2 and errors.startswith("dqnspeed: outputs/ and multirun/: hold no run with something to play; ")
    run = tmp_path / "outputs" / "day" / "time"
    shutil.copytree(catch, run)
    for name in ("outputs/later", "multirun/day/time/0"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").touch()  # newer, and nothing to play yet
    code, shown, _ = run_here(command, "episodes=1", "checkpoint=final", "screen=none")
    assert code == 0 and shown.startswith("plays the newest run, outputs/day/time\n") and played(run)[-1]["games"]


def test_pictures_of_frames() -> None:
    gray = np.array([[[0, 128], [255, 64]]], np.uint8)
    assert picture(gray, 255).tolist() == [[[0] * 3, [128] * 3], [[255] * 3, [64] * 3]]
    assert picture(np.array([[[0.0, 0.5], [1.0, 2.0]]]), 1)[:, :, 0].tolist() == [[0, 127], [255, 255]]
    board = np.zeros((5, 2, 2), np.uint8)
    board[4, 1, 1] = 1
    colours = picture(board, 1)
    assert colours.shape == (2, 2, 3) and colours[1, 1].any() and not colours[0].any()
    assert enlarge(colours, 5).shape == (6, 6, 3)
    assert enlarge(colours[:1], 2).shape == (2, 4, 3)  # the smallest size of a film


def test_an_mp4_holds_what_was_written(tmp_path: Path) -> None:
    frames = [np.full((31, 47, 3), 20 * i, np.uint8) for i in range(10)]
    write_mp4(tmp_path / "deep" / "a.mp4", frames, fps=15)
    size = (tmp_path / "deep" / "a.mp4").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (20, size // 2, size - 1):  # the disk is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        with pytest.raises(OSError):
            write_mp4(tmp_path / "cut" / "a.mp4", frames, fps=15)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "cut").iterdir()) == []
    back = read_mp4(tmp_path / "deep" / "a.mp4")
    assert back.shape == (10, 30, 46, 3)
    assert abs(back.mean(axis=(1, 2, 3)) - np.arange(10) * 20).max() < 4


def test_a_film_that_cannot_be_written_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with print_write_errors(Path("a.mp4"), lambda: None):
        raise OSError(errno.ENOSPC, "No space left on device")
    with print_write_errors(Path("b.mp4"), lambda: None):
        raise OSError("broken pipe")
    assert capsys.readouterr().err == (
        "dqnspeed: a.mp4: cannot be written (No space left on device).\n"
        "dqnspeed: b.mp4: cannot be written (broken pipe).\n"
    )


def test_the_overlay_marks_the_chosen_action_and_longer_bars_mean_higher_values() -> None:
    overlay = Overlay(["NOOP", "LEFT", "RIGHT"], stack=2, largest=255)
    game, observation = np.zeros((210, 160, 3), np.uint8), np.zeros((2, 84, 84), np.uint8)
    image = overlay.draw(game, observation, np.array([0.0, 1.0, 0.5]), action=2, caption="")
    chosen = (image == (255, 170, 40)).all(axis=2)
    others = (image == (70, 110, 160)).all(axis=2)
    rows = [int(others[top : top + 22].sum()) for top in range(8, HEIGHT - 22, 22)]
    lengths = [n for n in rows if n]
    assert chosen.any() and len(lengths) == 2 and lengths[1] > 10 * lengths[0]


@pytest.mark.parametrize("env", ["frozen_lake", "cliff_walking", "taxi"])
def test_a_table_is_played_and_drawn(env: str, tmp_path: Path) -> None:
    line = [f"env={env}", "algo=q_learning", "eval.every_steps=1000", "eval.episodes=2", "stop.max_steps=3000"]
    if env == "frozen_lake":
        line.append("env.kwargs={is_slippery: false}")
    dqnspeed.train([*line, "tracking=local", "tracking.progress=off"], folder=tmp_path / "run")
    result = play_here(options(f"run={tmp_path / 'run'}", "episodes=1", "checkpoint=final", "screen=none"))
    [game] = result["games"]
    assert game["length"] == sum(result["actions"].values())
    if env == "frozen_lake":
        assert (game["return"], game["length"]) == (1, 6)  # the shortest way
    with Image.open(tmp_path / "run" / "table.png") as picture:
        assert np.asarray(picture).std() > 10


@pytest.mark.parametrize("algo", ["a2c", "ppo", "pqn"])
def test_every_algorithm_is_evaluated_and_played(algo: str, tmp_path: Path) -> None:
    line = [
        "env=cartpole", f"algo={algo}", "num_envs=4", "algo.batch_size=16", "model.hidden=[8]", "stop.max_steps=1000",
        "eval.every_steps=400", "eval.episodes=3", "tracking=local", "tracking.progress=off", "execution.threads=1",
    ]  # fmt: skip
    results = dqnspeed.train(line, folder=tmp_path / "run")
    assert results.summary["eval_return_mean"] >= 1
    result = play_here(options(f"run={results.folder}", "episodes=3", "num_envs=2", "screen=none"))
    lengths = [game["length"] for game in result["games"]]  # a pole that stands a step longer is worth one more
    assert lengths == [game["return"] for game in result["games"]] and sum(result["actions"].values()) == sum(lengths)


def test_a_checkpoint_of_another_network_is_refused(atari: Path) -> None:
    folder = atari / "run" / "checkpoints"
    state = state_file.load(folder / "final.safetensors")
    config = state["config"]
    for name, changed, sentence in (
        ("table", {**state, "learner": {"table": np.zeros(3)}}, "table: is of another network than this run's."),
        ("nothing", {"learner": {}}, "checkpoint=nothing: holds no configuration of a run."),
    ):
        state_file.save(folder / f"{name}.safetensors", changed)
        with pytest.raises(ConfigError, match=re.escape(sentence)):
            load(atari / "run", name)
        (folder / f"{name}.safetensors").unlink()
    changed = {**config, "eval": {**config["eval"], "episodes": 3}}  # as a run that is resumed may
    state_file.save(folder / "own.safetensors", {**state, "config": changed})
    own = load(atari / "run", "own")
    assert own.agent_steps == state["progress"]["agent_steps"] >= 250
    (folder / "own.safetensors").unlink()


def test_a_film_whose_name_is_taken_still_ends_with_its_return(catch: Path) -> None:
    line = options(f"run={catch}", "episodes=1", "record=true", "screen=none")
    games = [play_here(line)["games"][0] for _ in range(3)]
    films = [catch / game["video"] for game in games]
    assert len(set(films)) == 3 and [return_of(film) for film in films] == [game["return"] for game in games]


def test_a_film_has_pictures_of_one_size_and_needs_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = Film(tmp_path, 30)
    film.add(np.zeros((20, 20, 3), np.uint8))
    with pytest.raises(OSError, match="a picture is 30x20, unlike the first"):
        film.add(np.zeros((20, 30, 3), np.uint8))
    film.close()

    def missing() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", missing)
    with pytest.raises(ConfigError, match=r"^record=true: needs ffmpeg \(No ffmpeg exe could be found\)\.$"):
        check_encoder("record=true")


def test_videos_run_at_the_environments_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"env=pong": 15, "env=cartpole": 50, "env=frozen_lake algo=q_learning": 4}
    for overrides, rate in rates.items():
        run = make_run(*overrides.split())
        assert frame_rate(run, envs.describe(run)) == rate
    run = make_run(*TOY)
    for given, rate in ({"render_fps": np.float32(12)}, 12), ({"render_fps": 0}, 30), ({}, 30), (None, 30):
        monkeypatch.setattr(toy_envs.Counter, "__init__", lambda self, given=given: setattr(self, "metadata", given))
        assert frame_rate(run, envs.describe(run)) == rate
