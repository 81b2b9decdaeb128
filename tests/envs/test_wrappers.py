from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

import cv2
import gymnasium
import numpy as np
import pytest
import torch
from ale_py import Action
from ale_py.env import AtariEnv
from ale_py.vector_env import AtariVectorEnv
from conftest import make_run
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from PIL import Image

from dqnspeed.config.options import ConfigError
from dqnspeed.envs import FrameStack, describe, make_env, make_vector_env
from dqnspeed.envs.crop import find_crop
from dqnspeed.envs.games import _roms, atari_game, fire_index
from dqnspeed.play.environment import AgentEnv

GAMES = {"pong": "Pong", "breakout": "Breakout", "seaquest": "Seaquest", "enduro": "Enduro"}
STEPS = 2000


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_the_standard_wrappers_equal_gymnasiums_preprocessing_and_stack(game: str) -> None:
    """Thousands of random steps, resets included; Gymnasium has no FIRE reset and no lost-life ends."""
    ours = make_run(
        f"env={game}",
        "wrappers.fire_reset=false",
        "wrappers.episodic_life=false",
        "wrappers.clip_reward=false",
    )
    env = make_env(ours.env, ours.wrappers)
    plain = gymnasium.make(f"{GAMES[game]}NoFrameskip-v4", disable_env_checker=True)
    theirs = FrameStackObservation(AtariPreprocessing(plain, noop_max=30, frame_skip=4), 4)
    stack = FrameStack(1, 4, (1, 84, 84), np.dtype(np.uint8))

    frame, _ = env.reset(seed=3)
    expected, _ = theirs.reset(seed=3)
    stack.push(frame[None], np.array([True]))
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(STEPS):
        np.testing.assert_array_equal(stack.observations[0], expected)
        action = int(rng.integers(env.action_space.n))
        frame, reward, *over, _ = env.step(action)
        expected, their_reward, *their_over, _ = theirs.step(action)
        assert (reward, over) == (their_reward, their_over)
        if any(over):
            ends += 1
            np.testing.assert_array_equal(frame[0], expected[-1])
            frame, _ = env.reset()
            expected, _ = theirs.reset()
        stack.push(frame[None], np.array([any(over)]))
    assert ends > 0 or game == "enduro"
    env.close()
    theirs.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages",
    [
        "", "wrappers.max_pool=false", "wrappers.frame_skip=1", "wrappers.frame_skip=3 wrappers.resize=64",
        "wrappers.grayscale=false wrappers.resize=96", "wrappers.resize=null", "wrappers.resize=10",
        "wrappers.crop=[34,194,16,155] wrappers.resize=64", "wrappers.crop=[1,210,0,85] wrappers.grayscale=false",
        "wrappers.crop=[34,194,0,160] wrappers.resize=80", "wrappers.frame_skip=2 env.id=pong",
        "wrappers.frame_skip=8 wrappers.tap_frames=2", "wrappers.tap_frames=1 env.full_action_space=true",
        "wrappers.fire_reset=false env.full_action_space=true", "env.id=pong",
        # Their code is not compiled, which takes longer than they play.
        *(f"backend.compile_rom=false {others}" for others in (
            "env.id=air_raid", "env.id=seaquest", "env.mode=8 env.difficulty=1", "env.id=qbert",
            "wrappers.frame_skip=12 wrappers.max_pool=false env.id=qbert",
            "wrappers.frame_skip=3 wrappers.max_pool=false env.id=qbert",  # some of whose frames end early
            "env.id=video_chess",  # which thinks for some frames
        )),
    ],
)  # fmt: skip
def test_atari_warp_equals_gymnasium(stages: str) -> None:
    """Frames, rewards, lost lives, returns and ends, also in mid-skip (frame 603), but without random no-ops."""
    common = ["env=breakout", "wrappers.noop_max=0", "num_envs=2", "env.max_episode_frames=603"]
    shared = [*common, *(stage for stage in stages.split() if not stage.startswith("backend."))]
    runs = [make_run("backend=atari_warp", *common, *stages.split()), make_run(*shared)]
    envs = [make_vector_env(run, overlap=False) for run in runs]
    np.testing.assert_array_equal(*[env.reset([1, 2]) for env in envs])
    rng, num_actions, ends = np.random.default_rng(0), describe(runs[0]).num_actions, 0
    for _ in range(310 if runs[0].wrappers.frame_skip > 1 else 400):
        actions = rng.integers(num_actions, size=2)
        steps = []
        for env in envs:
            env.send(actions)
            steps.append(env.recv())
        emulated, ours = steps
        for part in ("frames", "rewards", "terminated", "truncated", "first"):
            np.testing.assert_array_equal(getattr(emulated, part), getattr(ours, part), err_msg=part)
        assert emulated.episodes == ours.episodes
        ends += emulated.terminated.sum() + emulated.truncated.sum()
    assert ends > 1
    for env in envs:
        env.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_actions_may_be_given_where_the_games_are(overlap: bool) -> None:
    run = make_run("backend=atari_warp", "env=breakout", "num_envs=3", "wrappers.episodic_life=true")
    envs = [make_vector_env(run, overlap) for _ in range(2)]
    np.testing.assert_array_equal(*[env.reset([1, 2, 3]) for env in envs])
    rng, lost = np.random.default_rng(0), 0
    for _ in range(300):
        actions = rng.integers(4, size=3)
        envs[0].send(actions)
        lost += int((envs[0]._to_press > 0).sum())  # whose next actions are replaced
        there = torch.from_numpy(actions.copy()).to(envs[1].device)
        envs[1].send(there)
        there.fill_(99)
        steps = [env.recv() for env in envs]
        for part in ("frames", "rewards", "terminated", "first"):
            np.testing.assert_array_equal(getattr(steps[0], part), getattr(steps[1], part), err_msg=part)
    assert lost > 3
    for env in envs:
        env.close()


PAINTED = ["env.id=toy_envs:Painted-v0", "wrappers=none"]


WAYS = {
    "area": (cv2.INTER_AREA, Image.Resampling.BOX),
    "bilinear": (cv2.INTER_LINEAR, Image.Resampling.BILINEAR),
    "bicubic": (cv2.INTER_CUBIC, Image.Resampling.BICUBIC),
    "nearest": (cv2.INTER_NEAREST, Image.Resampling.NEAREST),
}


@pytest.mark.parametrize("resizer", ["cv2", "pillow"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 9])
def test_every_channel_is_resized_by_itself(channels: int, resizer: str) -> None:
    run = make_run(*PAINTED, f"env.kwargs={{channels: {channels}}}", f"wrappers.resizer={resizer}")
    image = make_env(run.env, run.wrappers).reset(seed=1)[0]
    for way, (flag, resampling) in WAYS.items():
        small = make_env(run.env, dataclasses.replace(run.wrappers, resize=8, interpolation=way))
        found = small.reset(seed=1)[0]
        assert found.shape == small.observation_space.shape == (channels, 8, 8)
        for given, resized in zip(image, found, strict=True):
            if resizer == "cv2":
                expected = cv2.resize(given, (8, 8), interpolation=flag)
            else:
                expected = np.asarray(Image.fromarray(given).resize((8, 8), resampling))
            np.testing.assert_array_equal(resized, expected)


def test_what_changes_is_seen_where_an_environment_draws_into_one_array() -> None:
    run = make_run(*PAINTED)
    assert find_crop(run) == (5, 10, 3, 12)


def test_as_many_decisions_tell_what_changes_whatever_the_frame_skip_and_the_seed() -> None:
    for line in ("", "seed=7", "wrappers.frame_skip=12 wrappers.max_pool=false"):
        run = make_run("backend=auto", "env.id=boxing", *line.split())
        top, bottom, left, right = find_crop(run) or (0, 0, 0, 0)
        assert top <= 17 and bottom >= 172 and left <= 34 and right >= 126  # the ring, and the boxers in all corners
        assert top > 5 and right - left < 120


ROWS = re.findall(
    r"^\| (\w+) \| (\d+), (\d+), (\d+), (\d+) \| [\d.]+ % \|$",
    (Path(__file__).parents[2] / "docs" / "details.md").read_text(),
    re.MULTILINE,
)
CROPS = {game: tuple(map(int, bounds)) for game, *bounds in ROWS}


def changes_outside(game: str, crop: tuple[int, ...], decisions: int = 400, games: int = 8) -> float:
    """The share of decisions of random play, as the speedrun plays, after which a pixel outside of ``crop`` changes
    that no score is drawn with: one that changes without points, too."""
    crops = "wrappers.crop=null wrappers.resize=null wrappers.grayscale=false backend.compile_rom=false"
    run = make_run("experiment=speedrun", "backend=atari_warp", f"env.id={game}", f"num_envs={games}", *crops.split())
    rng, quiet, changes, counted = np.random.default_rng(1000), np.zeros(games), [], []
    actions = describe(run).num_actions
    with contextlib.closing(make_vector_env(run)) as env:
        before = np.array(env.reset(list(range(1000, 1000 + games))))
        outside = np.ones(before.shape[2:], bool)
        outside[crop[0] : crop[1], crop[2] : crop[3]] = False
        played = np.zeros_like(outside)
        for _ in range(decisions):
            env.send(rng.integers(actions, size=games))
            step = env.recv()
            changed = (np.asarray(step.frames) != before).any(axis=1) & outside
            quiet = np.where(
                (step.raw.rewards != 0) | step.raw.terminated | step.raw.truncated | step.first, 0, quiet + 1
            )
            played |= changed[quiet > 3].any(axis=0)
            changes.append(np.packbits(changed, axis=2)), counted.append(~step.first)
            before = np.array(step.frames)
    each = np.array([(these & np.packbits(played, axis=1)).any(axis=(1, 2)) for these in changes])
    return float(each[np.array(counted)].mean())


@pytest.mark.integration
@pytest.mark.parametrize("game", CROPS)
def test_nothing_but_scores_changes_outside_of_the_part_that_is_kept(game: str) -> None:
    crop = make_run("experiment=speedrun", f"env.id={game}").wrappers.crop
    assert tuple(crop or ()) == CROPS[game] and len(CROPS) == 20
    assert changes_outside(game, CROPS[game]) <= 0.001


def test_pictures_may_be_of_any_whole_numbers_and_a_render_mode_may_be_given_twice() -> None:
    run = make_run(*PAINTED, "env.kwargs={render_mode: rgb_array}")
    with contextlib.closing(make_vector_env(run, render_mode="rgb_array")) as env:
        env.reset([1])
        np.testing.assert_array_equal(env.render(), np.arange(1200).reshape(20, 20, 3) % 256)


def test_a_game_that_is_over_and_out_of_time_at_once_is_both_for_who_plays_the_agent() -> None:
    run = make_run(*PAINTED, "env.kwargs={channels: 1}")
    with contextlib.closing(AgentEnv(run, describe(run))) as env:
        env.reset(seed=1)
        ends = [env.step(0)[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(True, True)]


@pytest.mark.parametrize("backend", ["gymnasium", "ale", "atari_warp"])
def test_who_plays_the_agent_acts_from_the_first_step_on(backend: str) -> None:
    """Also where steps at a game's start are a press for the agent."""
    run = make_run(f"backend={backend}", "env.id=ALE/Breakout-v5", "wrappers.noop_max=0")
    seen = []
    for action in (2, 3):
        with contextlib.closing(AgentEnv(run, describe(run))) as env:
            env.reset(seed=1)
            seen.append(env.step(action)[0][-1])
    assert (seen[0] != seen[1]).any()


@pytest.mark.skipif(torch.cuda.is_available(), reason="refused where there is no CUDA device")
def test_the_emulator_plays_on_a_gpu_that_is_there() -> None:
    with pytest.raises(ConfigError, match=r"^backend\.device=cuda: there is no CUDA device here\. Use "):
        describe(make_run("backend=atari_warp", "backend.device=cuda"))


@pytest.mark.cuda
def test_the_emulator_gives_the_same_on_a_gpu_and_frames_stay_there() -> None:
    line = ["backend=atari_warp", "env=breakout", "env.sticky_actions=0.25", "num_envs=3", "env.max_episode_frames=403"]
    line.append("backend.reset_pool=1")
    envs = [make_vector_env(make_run(*line, f"backend.device={device}")) for device in ("cpu", "cuda")]
    first = [torch.as_tensor(env.reset([1, 2, 3])) for env in envs]
    assert first[1].is_cuda and torch.equal(first[0], first[1].cpu())
    rng = np.random.default_rng(0)
    for k in range(150):
        actions, steps = rng.integers(4, size=3), []
        for env in envs:
            env.send(torch.from_numpy(actions).to(env.device) if k % 2 else actions)
            steps.append(env.recv())
        frames = [torch.as_tensor(step.frames) for step in steps]
        assert frames[1].is_cuda and torch.equal(frames[0], frames[1].cpu())
        for part in ("rewards", "terminated", "truncated", "first"):
            np.testing.assert_array_equal(*[getattr(step, part) for step in steps], err_msg=part)
    for env in envs:
        env.close()


@pytest.mark.slow
@pytest.mark.parametrize("spares", [0, 2])
def test_games_of_the_emulator_are_saved_whole(spares: int) -> None:
    """Also on another number of threads, and with random no-ops and sticky actions."""
    line = ["backend=atari_warp", "env=breakout", "env.sticky_actions=0.25", "num_envs=3", "env.max_episode_frames=403"]
    line.append(f"backend.reset_pool={spares}")
    env, other = (make_vector_env(make_run(*line, f"backend.threads={threads}")) for threads in (1, 2))
    env.reset([1, 2, 3])
    other.reset([4, 5, 6])
    rng = np.random.default_rng(0)
    for k in range(200):
        if k == 50:
            assert other.load_state_dict(env.state_dict())
        actions, frames = rng.integers(4, size=3), []
        for each in (env, other):
            each.send(actions)
            frames.append(each.recv().frames)
        assert k < 50 or np.array_equal(*frames)
    assert len({each.render().shape for each in (env, other)}) == 1
    other_game = make_vector_env(make_run("backend=atari_warp", "env=pong", "num_envs=3"))
    assert not other_game.load_state_dict(env.state_dict())
    state = env.state_dict()
    for game in state["games"].values():
        game["version"] = "that of before"
    assert not other.load_state_dict(state)
    for each in (env, other, other_game):
        each.close()


@pytest.mark.slow
def test_a_saved_game_goes_on_with_the_action_that_sticky_actions_repeat() -> None:
    run = make_run("env.id=ALE/Pong-v5", "num_envs=8")
    env, other = make_vector_env(run), make_vector_env(run)
    env.reset(list(range(8)))
    other.reset(list(range(8, 16)))
    rng = np.random.default_rng(0)
    for k in range(160):
        if k % 20 == 0:
            other.send(rng.integers(6, size=8))
            other.recv()
            assert other.load_state_dict(env.state_dict())
        actions, frames = rng.integers(6, size=8), []
        for each in (env, other):
            each.send(actions)
            frames.append(np.array(each.recv().frames))
        np.testing.assert_array_equal(*frames)
    env.close()
    other.close()


@pytest.mark.slow
def test_sticky_actions_repeat_the_last_action_of_a_frame_as_often_as_asked() -> None:
    run = make_run("env.id=ALE/Pong-v5", "wrappers.frame_skip=1", "wrappers.noop_max=0")
    env = make_env(run.env, run.wrappers)
    ale, played = env.unwrapped, list[int]()
    step = ale.step
    ale.step = lambda action: (played.append(int(action)), step(action))[1]
    env.reset(seed=1)
    wanted = [2 + i % 2 for i in range(4000)]
    for action in wanted:
        env.step(action)
    env.close()
    assert played[0] == 1  # FIRE, at the game's start
    each = list(zip(played[1:], wanted, played[:-1], strict=True))
    assert all(got in (action, last) for got, action, last in each)
    changed = [got != action for got, action, _ in each]
    assert 0.17 < np.mean(changed) < 0.23  # as often as actions are repeated that differ from the one asked for


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_ale_equals_gymnasium_where_their_definitions_coincide(game: str) -> None:
    """Frames, rewards, lost lives, returns and ends, also in mid-skip (frame 1003), but without random no-ops."""
    common = [f"env={game}", "wrappers.noop_max=0", "num_envs=2", "env.max_episode_frames=1003"]
    envs = [make_vector_env(make_run("backend=ale", *common)), make_vector_env(make_run(*common))]
    first = [env.reset([1, 2]).copy() for env in envs]
    np.testing.assert_array_equal(*first)
    rng = np.random.default_rng(0)
    num_actions = {"pong": 6, "breakout": 4, "seaquest": 18, "enduro": 9}[game]
    ends = 0
    for _ in range(600):
        actions = rng.integers(num_actions, size=2)
        steps = []
        for env in envs:
            env.send(actions)
            steps.append(env.recv())
        ale, ours = steps
        for part in ("frames", "rewards", "terminated", "truncated", "first"):
            np.testing.assert_array_equal(getattr(ale, part), getattr(ours, part), err_msg=part)
        assert ale.episodes == ours.episodes
        ends += ale.terminated.sum() + ale.truncated.sum()
    assert ends > 3
    for env in envs:
        env.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gymnasium", "ale", "atari_warp"])
def test_a_life_that_is_lost_in_the_step_of_the_frame_limit_is_terminated_as_in_gymnasium(backend: str) -> None:
    """FIRE, then RIGHT: Breakout takes a life in its frame 97, in the step of frames 97 to 100."""
    for limit, ends in {96: (False, True), 97: (True, True), 100: (True, True), 101: (True, False)}.items():
        line = ["env=breakout", "num_envs=1", f"env.max_episode_frames={limit}"]
        run = make_run(f"backend={backend}", *line, "wrappers.noop_max=0", "wrappers.fire_reset=false")
        with contextlib.closing(make_vector_env(run)) as env:
            env.reset([1])
            for action in [1, *[2] * (24 if limit > 96 else 23)]:
                env.send(np.array([action]))
                step = env.recv()
            assert (step.terminated[0], step.truncated[0]) == ends, limit
            assert len(step.episodes) == (limit < 101)
            env.send(np.array([2]))
            step = env.recv()
            assert step.first[0] and not step.terminated[0] and not step.truncated[0]


@pytest.mark.slow
def test_native_draws_its_noops_differently() -> None:
    """The known difference: ale draws 0..noop_max-1 and counts FIRE among them; gymnasium draws 1..noop_max."""

    def frames_at_start(ale: bool, fire: bool) -> set[int]:
        if ale:
            env = AtariVectorEnv("breakout", 6, num_threads=1, noop_max=3, use_fire_reset=fire)
            frames = env.reset(seed=0)[1]["episode_frame_number"]
            env.close()
            return set(map(int, frames))
        run = make_run("env=breakout", "wrappers.noop_max=3", f"wrappers.fire_reset={fire}")
        env = make_env(run.env, run.wrappers)
        seen = {int(env.reset(seed=seed)[1]["episode_frame_number"]) for seed in range(6)}
        env.close()
        return seen

    assert frames_at_start(ale=True, fire=False) == {0, 1, 2}
    assert frames_at_start(ale=False, fire=False) == {1, 2, 3}
    assert frames_at_start(ale=True, fire=True) == {1, 2}
    assert frames_at_start(ale=False, fire=True) == {2, 3, 4}


class EndsMidSkip(gymnasium.Env):
    """Frames hold their own number; the game ends at frame 6, in the middle of the second skip of four."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[np.ndarray, dict]:
        self.number = 0
        return np.zeros((2, 2), np.uint8), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.number += 1
        return np.full((2, 2), self.number, np.uint8), 1.0, self.number == 6, False, {}


def test_a_game_that_ends_mid_skip_shows_the_frames_before() -> None:
    """Gymnasium's stale frame: the maximum keeps the last two frames of the step before (here 3 and 4)."""
    from dqnspeed.envs.wrappers import FrameSkip

    pooled, plain = FrameSkip(EndsMidSkip(), 4, max_pool=True), FrameSkip(EndsMidSkip(), 4, max_pool=False)
    for env, last in ((pooled, 4), (plain, 6)):
        env.reset()
        assert env.step(0)[:3][1:] == (4.0, False)
        frame, reward, terminated, _, _ = env.step(0)
        assert (frame[0, 0], reward, terminated) == (last, 2.0, True)


class DrawsIntoOne(EndsMidSkip):
    """Every picture is in the same array."""

    def reset(self, **_: object) -> tuple[np.ndarray, dict]:
        self.number, self.picture = 0, np.zeros((2, 2), np.uint8)
        return self.picture, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.number += 1
        self.picture[:] = [[self.number, 9 - self.number], [0, 0]]
        return self.picture, 1.0, False, False, {}


def test_the_maximum_is_of_two_frames_though_an_environment_draws_both_into_one_array() -> None:
    from dqnspeed.envs.wrappers import FrameSkip

    env = FrameSkip(DrawsIntoOne(), 4, max_pool=True)
    env.reset()
    assert env.step(0)[0][0].tolist() == [4, 6]


class Pressed(gymnasium.Env):
    """Shows the action of each frame, and keeps all of them."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, names: list[str]) -> None:
        self.names, self.frames = names, list[int]()

    def get_action_meanings(self) -> list[str]:
        return self.names

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.frames.append(action)
        return np.full((2, 2), action, np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize("names", [["NOOP", "LEFT", "RIGHT"], ["LEFT", "NOOP", "RIGHT"]])
def test_a_tap_lets_go_of_each_action_but_noop(names: list[str]) -> None:
    from dqnspeed.envs.wrappers import FrameSkip

    game = Pressed(names)
    env = FrameSkip(game, 4, max_pool=False, tap=1)
    assert env.action_space == gymnasium.spaces.Discrete(5)
    assert env.get_action_meanings() == [*names, "LEFT TAP", "RIGHT TAP"]
    for action in range(5):
        env.step(action)
    noop, left, right = map(names.index, ("NOOP", "LEFT", "RIGHT"))
    held = [[action] * 4 for action in range(3)]
    frames = np.reshape(game.frames, (5, 4)).tolist()
    assert frames == [*held, [left, noop, noop, noop], [right, noop, noop, noop]]


def test_a_game_without_noop_cannot_be_tapped() -> None:
    from dqnspeed.envs.wrappers import FrameSkip

    with pytest.raises(
        ConfigError, match=r"^wrappers.tap_frames=2: lets go of an action, and this game's have no NOOP\.$"
    ):
        FrameSkip(Pressed(["FIRE", "LEFT", "RIGHT"]), 4, max_pool=False, tap=2)


@pytest.mark.slow
def test_tweaked_is_the_last_frame_resized_by_pillow() -> None:
    run = make_run("wrappers=tweaked", "wrappers.fire_reset=false")
    env = make_env(run.env, run.wrappers)
    plain = gymnasium.make("PongNoFrameskip-v4", obs_type="grayscale", disable_env_checker=True)
    env.reset(seed=1)
    plain.reset(seed=1)
    for action in (2, 3, 0, 5):
        frame = env.step(action)[0]
        for _ in range(4):
            screen = plain.step(action)[0]
        np.testing.assert_array_equal(frame[0], Image.fromarray(screen).resize((84, 84), Image.Resampling.BOX))
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "shape"),
    [
        (["wrappers.grayscale=false"], (3, 84, 84)),
        (["wrappers.resize=null"], (1, 210, 160)),
        (["wrappers.resize=42", "wrappers.interpolation=nearest"], (1, 42, 42)),
        (["wrappers.frame_skip=1", "wrappers.noop_max=0"], (1, 84, 84)),
        (["backend=ale", "wrappers.grayscale=false"], (3, 84, 84)),
        (["backend=ale", "wrappers.resize=64", "wrappers.max_pool=false"], (1, 64, 64)),
        (["wrappers.crop=[34,194,0,160]"], (1, 84, 84)),
        (["wrappers.crop=[0,33,1,99]", "wrappers.resize=null", "wrappers.grayscale=false"], (3, 33, 98)),
        (["wrappers=none"], (3, 210, 160)),
    ],
)
def test_each_stage_can_be_switched_off_or_changed(overrides: list[str], shape: tuple[int, ...]) -> None:
    env = make_vector_env(make_run(*overrides))
    frames = env.reset([0])
    assert frames.shape == (1, *shape) and frames.dtype == np.uint8
    env.send(np.zeros(1, np.int64))
    assert env.recv().frames.shape == (1, *shape)
    env.close()


@pytest.mark.slow
def test_rules_of_the_game_follow_the_id_and_can_be_switched() -> None:
    from dqnspeed.envs.games import atari_game

    v4, v5 = make_run(), make_run("env.id=ALE/Pong-v5")
    switched = make_run("env.sticky_actions=0.25", "env.full_action_space=true", "env.max_episode_frames=1000")
    rules = [atari_game(run.env) for run in (v4, v5, switched)]
    assert [game and game.sticky_actions for game in rules] == [0.0, 0.25, 0.25]
    assert [game and game.full_action_space for game in rules] == [False, False, True]
    assert [game and game.max_episode_frames for game in rules] == [108_000, 108_000, 1000]
    assert make_env(switched.env, switched.wrappers).action_space.n == 18


@pytest.mark.slow
def test_without_max_pooling_native_shows_another_frame_only_at_an_end_in_mid_skip() -> None:
    common = ["wrappers.noop_max=0", "wrappers.max_pool=false", "env.max_episode_frames=403"]
    ale, ours = make_vector_env(make_run("backend=ale", *common)), make_vector_env(make_run(*common))
    ale.reset([1])
    ours.reset([1])
    differ = []
    for i in range(150):
        steps = []
        for env in (ale, ours):
            env.send(np.array([i % 6]))
            steps.append(env.recv())
        assert steps[0].truncated == steps[1].truncated
        if not np.array_equal(steps[0].frames, steps[1].frames):
            differ.append(bool(steps[0].truncated[0]))
    assert differ == [True]
    ale.close()
    ours.close()


STARTS = {
    # no FIRE in the minimal set; none at all; FIRE costs a match; no NOOP; no-ops cost time; no-ops are paid for
    "freeway": [], "skiing env.full_action_space=true": [], "haunted_house": [], "backgammon": ["FIRE"],
    "skiing": [], "entombed": ["FIRE"], "qbert": ["FIRE"], "journey_escape": [],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", STARTS)
def test_what_is_pressed_at_a_games_start_is_in_its_set_and_nothing_it_brings_is_lost(line: str) -> None:
    """Rewards of a few steps, those of the start included, are those of the bare game after as many frames."""
    rom, *overrides = line.split()
    for backend in ("gymnasium", "ale"):
        run = make_run(f"backend={backend}", f"env.id={rom}", *overrides, "wrappers.clip_reward=false", "num_envs=4")
        game = atari_game(run.env)
        assert game is not None
        bare = AtariEnv(game=rom, frameskip=1, full_action_space=game.full_action_space)
        meanings = bare.get_action_meanings()
        fire = fire_index(game)
        assert ([] if fire is None else [meanings[fire]]) == STARTS[line]
        env = make_vector_env(run)
        env.reset([1, 2, 3, 4])
        steps, action = 3, len(meanings) - 1
        total = np.zeros(4)
        for _ in range(steps):
            env.send(np.full(4, action))
            total += env.recv().rewards
        backends = env.engine.env
        if backend == "ale":
            backends.send(np.full(4, action))
            frames = backends.recv()[4]["episode_frame_number"] - 4
        else:
            frames = np.array([e.unwrapped.ale.getEpisodeFrameNumber() for e in backends.envs])
        first = bare.reset(seed=1)[1]["episode_frame_number"]
        start = bare.ale.cloneState(include_rng=True)  # loading the game again takes a hundred times as long
        for i in range(4):
            bare.ale.restoreState(start)
            pressed = frames[i] - first - 4 * steps
            assert 0 <= pressed <= 31
            # gymnasium presses FIRE after its no-ops, ale before them
            presses = ["NOOP"] * (pressed - (fire is not None))
            if fire is not None and pressed:
                presses.insert(len(presses) if backend == "gymnasium" else 0, "FIRE")
            if "NOOP" not in meanings:
                assert backend == "ale" or presses == ["FIRE"]
            expected = sum(bare.ale.act(getattr(Action, press)) for press in presses)
            expected += sum(float(bare.step(action)[1]) for _ in range(4 * steps))
            assert total[i] == expected, (backend, i)
        env.close()


@pytest.mark.slow
def test_fire_is_not_pressed_where_it_costs_whatever_a_sticky_joystick_does() -> None:
    for sticky in (0.0, 0.25, 0.9):
        game = atari_game(make_run("env.id=haunted_house", f"env.sticky_actions={sticky}").env)
        assert game is not None and fire_index(game) is None


@pytest.mark.integration
@pytest.mark.parametrize("part", range(4))
def test_every_game_begins_alike_on_both_backends(part: int) -> None:
    ale, ours = make_run("backend=ale", "wrappers.noop_max=0"), make_run("wrappers.noop_max=0")
    for rom in sorted(_roms())[part::4]:
        outcomes = []
        for run in (ale, ours):
            env = make_vector_env(dataclasses.replace(run, env=dataclasses.replace(run.env, id=rom)))
            outcome = [env.reset([1]).copy()]
            for _ in range(3):
                env.send(np.zeros(1, np.int64))
                step = env.recv()
                outcome += [step.frames.copy(), step.rewards, step.terminated | step.truncated]
            env.close()
            outcomes.append(outcome)
        for here, there in zip(*outcomes, strict=True):
            np.testing.assert_array_equal(here, there, err_msg=rom)


def test_what_a_start_brought_is_kept_in_a_saved_game() -> None:
    run = make_run("env.id=skiing", "wrappers.clip_reward=false")
    env, other = make_vector_env(run), make_vector_env(run)
    env.reset([1])
    other.reset([2])
    other.load_state_dict(env.state_dict())
    steps = []
    for each in (env, other):
        each.send(np.zeros(1, np.int64))
        steps.append(each.recv())
        each.close()
    assert steps[0].rewards == steps[1].rewards
