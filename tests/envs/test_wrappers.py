from __future__ import annotations

import contextlib
import dataclasses

import cv2
import gymnasium
import numpy as np
import pytest
import torch
from ale_py import Action
from ale_py.env import AtariEnv
from conftest import make_run, mostly_integration
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from PIL import Image

from dqnspeed.agents.environment import AgentEnv
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import FrameStack, describe, make_env, make_vector_env
from dqnspeed.envs.crop import find_crop
from dqnspeed.envs.games import _roms, atari_game, fire_index
from dqnspeed.envs.wrappers import FrameSkip
from dqnspeed.execution.arrays import host

GAMES = {"pong": "Pong", "breakout": "Breakout", "seaquest": "Seaquest", "enduro": "Enduro"}


@pytest.mark.slow
@pytest.mark.parametrize("game", mostly_integration(GAMES, "breakout"))
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
    for _ in range(1000):
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


def assert_same_games(runs: list[RunConfig], steps: int, overlap: bool = False, tensors: bool = False) -> None:
    """Check frames, rewards, lost lives, returns and ends of random play, which begins and ends several games.

    Args:
        tensors: the second environment gets its actions as a tensor where its games are.
    """
    with contextlib.ExitStack() as stack:
        envs = [stack.enter_context(contextlib.closing(make_vector_env(run, overlap))) for run in runs]
        np.testing.assert_array_equal(*[host(env.reset([1, 2])).copy() for env in envs])
        rng, num_actions, ends = np.random.default_rng(0), describe(runs[0]).num_actions, 0
        for _ in range(steps):
            actions = rng.integers(num_actions, size=2)
            there = torch.from_numpy(actions.copy()).to(envs[1].device) if tensors else actions
            for env, given in zip(envs, (actions, there), strict=True):
                env.send(given)
            if tensors:
                there[:] = 99
            found = [env.recv() for env in envs]
            for part in ("frames", "rewards", "terminated", "truncated", "first"):
                np.testing.assert_array_equal(*[host(getattr(step, part)) for step in found], err_msg=part)
            assert found[0].episodes == found[1].episodes
            ends += found[0].terminated.sum() + found[0].truncated.sum()
        assert ends > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages",
    [
        "", "wrappers.max_pool=false", "wrappers.frame_skip=1", "wrappers.frame_skip=3 wrappers.resize=64",
        "wrappers.grayscale=false wrappers.resize=96", "wrappers.resize=null", "env.id=pong wrappers.resize=10",
        "wrappers.crop=[34,194,16,155] wrappers.resize=64", "wrappers.crop=[1,210,0,85] wrappers.grayscale=false",
        "wrappers.frame_skip=8 wrappers.tap_frames=2", "wrappers.tap_frames=1 env.full_action_space=true",
        # The code of these games is not compiled, which takes longer than a test.
        *(f"backend.compile_rom=false {others}" for others in (
            "env.id=air_raid", "env.mode=8 env.difficulty=1",
            "wrappers.frame_skip=3 wrappers.max_pool=false env.id=qbert",  # some of whose frames end early
            "env.id=video_chess",  # which thinks for some frames
        )),
    ],
)  # fmt: skip
def test_atari_warp_equals_gymnasium(stages: str) -> None:
    """Time limits end games within a skip (frame 603); random no-ops differ."""
    common = ["env=breakout", "wrappers.noop_max=0", "num_envs=2", "env.max_episode_frames=603"]
    shared = [*common, *(stage for stage in stages.split() if not stage.startswith("backend."))]
    assert_same_games([make_run("backend=atari_warp", *common, *stages.split()), make_run(*shared)], 310)


@pytest.mark.slow
@pytest.mark.parametrize("game", mostly_integration(GAMES, "seaquest"))
def test_ale_equals_gymnasium(game: str) -> None:
    """Time limits end games within a skip (frame 603); random no-ops differ."""
    common = [f"env={game}", "wrappers.noop_max=0", "num_envs=2", "env.max_episode_frames=603"]
    assert_same_games([make_run("backend=ale", *common), make_run(*common)], 400)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_actions_may_be_given_where_the_games_are(device: str, overlap: bool) -> None:
    """Lost lives replace the next actions."""
    line = ["backend=atari_warp", "env=breakout", "env.sticky_actions=0.25", "num_envs=2", "backend.reset_pool=1"]
    runs = [make_run(*line, f"backend.device={where}", "env.max_episode_frames=403") for where in ("cpu", device)]
    assert_same_games(runs, 300, overlap, tensors=True)


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
    for line in ("seed=7", "wrappers.frame_skip=12 wrappers.max_pool=false"):
        run = make_run("backend=auto", "env.id=boxing", *line.split())
        top, bottom, left, right = find_crop(run) or (0, 0, 0, 0)
        assert top <= 17 and bottom >= 172 and left <= 34 and right >= 126  # the ring, and the boxers in all corners
        assert top > 5 and right - left < 120


# The parts that wrappers.crop=[] finds for the speedrun.
CROPS = {
    "asterix": (21, 185, 1, 155), "atlantis": (0, 183, 0, 160), "beam_rider": (2, 196, 4, 160),
    "bowling": (2, 177, 8, 155), "boxing": (12, 177, 30, 130), "breakout": (0, 201, 4, 156),
    "enduro": (0, 178, 4, 160), "fishing_derby": (33, 195, 4, 160), "freeway": (0, 200, 4, 160),
    "ice_hockey": (0, 192, 28, 131), "kung_fu_master": (5, 201, 4, 160), "montezuma_revenge": (10, 185, 19, 156),
    "ms_pacman": (0, 188, 0, 160), "pong": (29, 199, 7, 160), "qbert": (1, 210, 0, 160),
    "riverraid": (0, 205, 4, 160), "seaquest": (17, 192, 4, 160), "skiing": (1, 183, 4, 156),
    "space_invaders": (2, 200, 0, 160), "tennis": (13, 194, 10, 160),
}  # fmt: skip


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
    assert tuple(crop or ()) == CROPS[game]
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
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^backend\.device=cuda: there is no CUDA device here\. Use "):
        describe(make_run("backend=atari_warp", "backend.device=cuda"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "other_line"),
    [
        ("env.id=ALE/Pong-v5 num_envs=8", ""),  # with the action that sticky actions repeat
        ("env.id=skiing wrappers.clip_reward=false", ""),  # with the points of a start
        *(
            (
                "backend=atari_warp env=breakout env.sticky_actions=0.25 num_envs=3 env.max_episode_frames=403 "
                f"backend.reset_pool={pool}",
                "backend.threads=2",
            )
            for pool in (0, 2)
        ),
    ],
)
def test_saved_games_continue(line: str, other_line: str) -> None:
    env, other = (make_vector_env(make_run(*line.split(), *more.split())) for more in ("", other_line))
    count, rng = env.num_envs, np.random.default_rng(0)
    env.reset(list(range(count)))
    other.reset(list(range(count, 2 * count)))
    for k in range(160):
        if k % 40 == 0:
            other.send(np.zeros(count, np.int64))
            other.recv()
            assert other.load_state_dict(env.state_dict())
        actions, steps = rng.integers(3, size=count), []
        for each in (env, other):
            each.send(actions)
            step = each.recv()
            steps.append((np.array(step.frames), step.rewards))
        np.testing.assert_equal(*steps)
    env.close()
    other.close()


def test_a_state_of_another_game_or_version_of_the_emulator_is_not_taken() -> None:
    env, other_game = (make_vector_env(make_run("backend=atari_warp", f"env={game}")) for game in ("breakout", "pong"))
    env.reset([1])
    state = env.state_dict()
    assert env.load_state_dict(state) and not other_game.load_state_dict(state)
    for game in state["games"].values():
        game["version"] = "that of before"
    assert not env.load_state_dict(state)
    env.close()
    other_game.close()


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


class Numbered(gymnasium.Env):
    """Draws its number and 9 minus it into one array in each frame; ``pressed`` has the action of each frame."""

    observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, names: list[str], ends_at: int = 100):
        self.names, self.ends_at, self.pressed, self.picture = names, ends_at, list[int](), np.zeros(2, np.uint8)

    def get_action_meanings(self) -> list[str]:
        return self.names

    def reset(self, **_: object) -> tuple[np.ndarray, dict]:
        return self.picture, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.pressed.append(action)
        self.picture[:] = len(self.pressed), max(0, 9 - len(self.pressed))
        return self.picture, 1.0, len(self.pressed) == self.ends_at, False, {}


NAMES = ["NOOP", "LEFT", "RIGHT"]


@pytest.mark.parametrize(
    ("max_pool", "shown"),
    [(True, [[4, 6], [4, 6]]), (False, [[4, 5], [6, 3]])],  # as in Gymnasium, the maximum keeps the frames before
)
def test_a_game_that_ends_in_mid_skip_shows_the_frames_before(max_pool: bool, shown: list[list[int]]) -> None:
    env = FrameSkip(Numbered(NAMES, ends_at=6), 4, max_pool)
    env.reset()
    for frame, expected in zip(shown, ((4.0, False), (2.0, True)), strict=True):
        found, *rest, _, _ = env.step(0)
        assert found.tolist() == frame and tuple(rest) == expected


@pytest.mark.parametrize("names", [NAMES, ["LEFT", "NOOP", "RIGHT"]])
def test_a_tap_lets_go_of_each_action_but_noop(names: list[str]) -> None:
    game = Numbered(names)
    env = FrameSkip(game, 4, max_pool=False, tap=1)
    assert env.action_space == gymnasium.spaces.Discrete(5)
    assert env.get_action_meanings() == [*names, "LEFT TAP", "RIGHT TAP"]
    for action in range(5):
        env.step(action)
    noop, left, right = map(names.index, ("NOOP", "LEFT", "RIGHT"))
    held = [[action] * 4 for action in range(3)]
    frames = np.reshape(game.pressed, (5, 4)).tolist()
    assert frames == [*held, [left, noop, noop, noop], [right, noop, noop, noop]]
    with pytest.raises(ConfigError, match=r"^wrappers\.tap_frames=2: .* no NOOP\.$"):
        FrameSkip(Numbered(["FIRE", "LEFT", "RIGHT"]), 4, max_pool=False, tap=2)


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
        (["wrappers.resize=42", "wrappers.interpolation=nearest"], (1, 42, 42)),
        (["wrappers.frame_skip=1", "wrappers.noop_max=0"], (1, 84, 84)),
        (["backend=ale", "wrappers.grayscale=false"], (3, 84, 84)),
        (["backend=ale", "wrappers.resize=64", "wrappers.max_pool=false"], (1, 64, 64)),
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
    v4, v5 = make_run(), make_run("env.id=ALE/Pong-v5")
    switched = make_run("env.sticky_actions=0.25", "env.full_action_space=true", "env.max_episode_frames=1000")
    rules = [atari_game(run.env) for run in (v4, v5, switched)]
    assert [game and game.sticky_actions for game in rules] == [0.0, 0.25, 0.25]
    assert [game and game.full_action_space for game in rules] == [False, False, True]
    assert [game and game.max_episode_frames for game in rules] == [108_000, 108_000, 1000]
    assert make_env(switched.env, switched.wrappers).action_space.n == 18


STARTS = {
    # no FIRE in the minimal set; none at all; FIRE costs a match; no NOOP; no-ops cost time; no-ops are paid for
    "freeway": [], "skiing env.full_action_space=true": [], "haunted_house": [], "backgammon": ["FIRE"],
    "skiing": [], "entombed": ["FIRE"], "qbert": ["FIRE"], "journey_escape": [],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", mostly_integration(STARTS, "freeway", "skiing", "entombed", "qbert"))
def test_rewards_of_the_presses_at_a_start_are_not_lost(line: str) -> None:
    """The bare game gives the same rewards in as many frames from its start."""
    rom, *overrides = line.split()
    run = make_run(f"env.id={rom}", *overrides, "wrappers.clip_reward=false", "num_envs=2")
    game = atari_game(run.env)
    assert game is not None
    bare = AtariEnv(game=rom, frameskip=1, full_action_space=game.full_action_space)
    meanings, fire = bare.get_action_meanings(), fire_index(game)
    assert ([] if fire is None else [meanings[fire]]) == STARTS[line]
    first = bare.reset(seed=1)[1]["episode_frame_number"]
    start = bare.ale.cloneState(include_rng=True)  # loading the game again takes a hundred times as long
    env, action, total = make_vector_env(run), len(meanings) - 1, np.zeros(2)
    env.reset([1, 2])
    for _ in range(3):
        env.send(np.full(2, action))
        total += env.recv().rewards
    for one, reward in zip(env.engine.env.envs, total, strict=True):
        pressed = one.unwrapped.ale.getEpisodeFrameNumber() - first - 4 * 3
        assert 0 <= pressed <= 31
        bare.ale.restoreState(start)
        presses = ["NOOP"] * (pressed - (fire is not None)) + ["FIRE"] * (fire is not None)
        assert "NOOP" in meanings or presses == ["FIRE"]
        expected = sum(bare.ale.act(getattr(Action, press)) for press in presses)
        assert reward == expected + sum(float(bare.step(action)[1]) for _ in range(4 * 3))
    env.close()


@pytest.mark.slow
def test_fire_is_not_pressed_where_it_costs_whatever_a_sticky_joystick_does() -> None:
    for sticky in (0.0, 0.25, 0.9):
        game = atari_game(make_run("env.id=haunted_house", f"env.sticky_actions={sticky}").env)
        assert game is not None and fire_index(game) is None


@pytest.mark.integration
@pytest.mark.parametrize("part", range(4))
def test_every_game_begins_alike_on_both_backends(part: int) -> None:
    ale, ours = (
        make_run("backend=ale", "wrappers.noop_max=0"),
        make_run("wrappers.noop_max=0", "backend=atari_warp", "backend.compile_rom=false"),
    )
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
