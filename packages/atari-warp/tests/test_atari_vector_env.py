"""Vector environment: equal to ALE's, its own keywords, and bad input."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
from typing import Any

import ale_py.vector_env
import gymnasium
import numpy as np
import pytest
import torch
from atari_warp import AtariVectorEnv, EmulatorError
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

GAMES = (
    "air_raid", "asterix", "asteroids", "atlantis", "beam_rider", "berzerk", "breakout", "carnival", "enduro",
    "freeway", "haunted_house", "journey_escape", "ms_pacman", "pong", "pooyan", "qbert", "seaquest", "skiing",
    "space_invaders", "video_checkers",
)  # fmt: skip
KEYWORDS: dict[str, tuple[Any, ...]] = {
    "game": GAMES,
    "sides": ((84, 84), (210, 160), (64, 96), (105, 80), (300, 200), (84, 170)),
    "frameskip": (1, 2, 3, 4, 5),
    "stack_num": (1, 2, 4, 6),
    "lives": ({}, {"episodic_life": True}, {"life_loss_info": True}),
    "max_num_frames_per_episode": (108_000, 150, 401),
    "grayscale": (True, False),
    "maxpool": (True, False),
    "noop_max": (0, 1),
    "use_fire_reset": (True, False),
    "reward_clipping": (True, False),
    "full_action_space": (True, False),
    "autoreset_mode": ("NextStep", "SameStep"),
}


def pairwise_combinations() -> list[dict[str, Any]]:
    """Combinations of keywords in which any two values of any two keywords occur together."""
    names, draws = list(KEYWORDS), np.random.default_rng(0)
    pairs = {
        (a, i, b, j)
        for a, b in itertools.combinations(names, 2)
        for i in range(len(KEYWORDS[a]))
        for j in range(len(KEYWORDS[b]))
    }

    def covered(row: dict[str, int]) -> set[tuple[str, int, str, int]]:
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}

    found = []
    while pairs:
        a, i, b, j = min(pairs)
        tried = [{name: int(draws.integers(len(KEYWORDS[name]))) for name in names} | {a: i, b: j} for _ in range(50)]
        best = max(tried, key=lambda row: len(covered(row) & pairs))
        pairs -= covered(best)
        found.append({name: KEYWORDS[name][k] for name, k in best.items()})
    return found


def assert_equal_to_ale(game: str, steps: int, keywords: dict[str, Any]) -> None:
    theirs = ale_py.vector_env.AtariVectorEnv(game, 3, num_threads=1, **keywords)
    ours = AtariVectorEnv(game, 3, num_threads=1, compile_rom=False, **keywords)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    draws = np.random.default_rng(0)

    def check(found: Any, expected: Any, what: str) -> None:
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected, what)

    (observations, info), (their_observations, their_info) = ours.reset(seed=0), theirs.reset(seed=0)
    check(observations, their_observations, "first observations")
    for name, values in their_info.items():
        check(info[name], values, f"first {name}")
    for step in range(steps):
        actions = draws.integers(0, int(theirs.single_action_space.n), 3)
        found, expected = ours.step(actions), theirs.step(actions)
        for k, name in enumerate(("observations", "rewards", "terminations", "truncations")):
            check(found[k], expected[k], f"{name} of step {step}")
        over = expected[2] | expected[3]
        for name, values in expected[4].items():
            if name != "final_obs":
                check(found[4][name], values, f"{name} of step {step}")
            elif not keywords.get("life_loss_info"):  # theirs is undefined after a reported life
                check(found[4][name][over], values[over], f"{name} of step {step}")
    theirs.close()
    ours.close()


@pytest.mark.integration
@pytest.mark.parametrize("part", range(8))
def test_equal_to_ale_under_all_pairs_of_keywords(part: int) -> None:
    for combination in pairwise_combinations()[part::8]:
        keywords = dict(combination)
        game, (height, width) = keywords.pop("game"), keywords.pop("sides")
        keywords |= {**keywords.pop("lives"), "img_height": height, "img_width": width}
        assert_equal_to_ale(game, 160, keywords)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "keywords"),
    [
        ("breakout", {"noop_max": 1, "episodic_life": True}),
        ("air_raid", {"noop_max": 0, "img_height": 210, "img_width": 160, "stack_num": 2, "grayscale": False}),
        ("seaquest", {"noop_max": 1, "autoreset_mode": AutoresetMode.SAME_STEP, "max_num_frames_per_episode": 150}),
        ("skiing", {"noop_max": 0, "full_action_space": True, "life_loss_info": True, "maxpool": False}),
    ],
)
def test_equal_to_ale(game: str, keywords: dict[str, Any]) -> None:
    assert_equal_to_ale(game, 300, keywords)


def make(game: str = "breakout", num_envs: int = 4, **keywords: Any) -> AtariVectorEnv:
    return AtariVectorEnv(game, num_envs, **{"num_threads": 1, "compile_rom": False, **keywords})


def play(env: AtariVectorEnv, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    draws = np.random.default_rng(seed)
    return [env.step(draws.integers(0, 4, env.num_envs)) for _ in range(steps)]


def assert_same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        for k in range(4):
            np.testing.assert_array_equal(one[k], other[k])
        assert_same_info(one[4], other[4])


def assert_same_info(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_same_info(found[name], value)
        else:
            np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_game_that_ends_before_the_next_life_has_begun_is_followed_by_another(mode: AutoresetMode) -> None:
    """After FIRE and then RIGHT, Breakout takes a life in the step of frames 97 to 100, and frame 101 is the last."""
    env = make(num_envs=1, noop_max=0, use_fire_reset=False, episodic_life=True, on_life_loss="continue",
               max_num_frames_per_episode=101, autoreset_mode=mode)  # fmt: skip
    _, info = env.reset(seed=1)
    first = info["episode_frame_number"][0]
    for action in [1, *[2] * 24]:
        _, _, terminated, truncated, info = env.step(np.array([action]))
    assert (terminated[0], truncated[0]) == (True, False)
    if mode is AutoresetMode.NEXT_STEP:
        _, _, terminated, truncated, info = env.step(np.array([0]))
        assert (terminated[0], truncated[0]) == (False, False)
    elif mode is AutoresetMode.DISABLED:
        _, info = env.reset(options={"reset_mask": np.ones(1, bool)})
    assert info["episode_frame_number"][0] == first


@pytest.mark.parametrize("keyword", ["max_num_frames_per_episode", "noop_max", "stack_num"])
def test_a_number_is_needed_also_for_pictures_of_their_own_size(keyword: str) -> None:
    with pytest.raises(EmulatorError, match=f"^{keyword}=None: must be an integer"):
        make(img_height=None, img_width=None, **{keyword: None})


def test_a_state_of_other_observations_is_refused() -> None:
    ram, images = make(obs_type="ram"), make()
    ram.reset(seed=0)
    for env, state in ((images, ram.save_state()), (ram, images.save_state())):
        with pytest.raises(EmulatorError, match=r"^state: must be a result of"):
            env.load_state(state)


def test_a_state_of_before_the_first_game_needs_a_reset() -> None:
    env = make()
    env.load_state(make().save_state())
    with pytest.raises(RuntimeError, match="no game has started"):
        env.step(np.zeros(4, int))
    env.reset()


def test_noops_come_before_or_after_fire() -> None:
    starts = {
        order: make(num_envs=64, start_order=order, noop_max=5) for order in ("fire_then_noops", "noops_then_fire")
    }
    frames = {order: set(env.reset(seed=0)[1]["frame_number"].tolist()) for order, env in starts.items()}
    assert frames == {"fire_then_noops": {1, 2, 3, 4}, "noops_then_fire": {2, 3, 4, 5, 6}}


def test_a_stack_begins_with_black_frames_or_with_copies() -> None:
    black, copies = (make(stack_padding=padding).reset(seed=0)[0] for padding in ("zero", "repeat"))
    assert not black[:, :3].any() and black[:, 3].any()
    np.testing.assert_array_equal(copies, copies[:, 3:].repeat(4, axis=1))
    np.testing.assert_array_equal(copies[:, 3], black[:, 3])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_after_a_lost_life_the_game_goes_on_in_every_mode(mode: AutoresetMode) -> None:
    env = make(num_envs=2, preset="standard", autoreset_mode=mode)
    lives, total = env.reset(seed=1)[1]["lives"], 0
    for _ in range(400):
        _, _, terminated, _, info = env.step(np.array([1, 2]))
        assert (lives - info["lives"] <= 1).all()
        lost = terminated & (info["lives"] > 0)
        if mode is AutoresetMode.SAME_STEP and terminated.any():
            assert (info["final_info"]["lives"] <= lives).all() and (info["_final_info"] == terminated).all()
        if mode is AutoresetMode.DISABLED and terminated.any():
            with pytest.raises(RuntimeError, match=r"step: episodes of environments \[.*\] have ended"):
                env.step(np.array([0, 0]))
            before = info["episode_frame_number"]
            _, info = env.reset(options={"reset_mask": terminated})
            np.testing.assert_array_equal(info["episode_frame_number"][lost], before[lost] + 4)
        lives, total = info["lives"], total + int(lost.sum())
    assert total > 4


def test_other_environments_are_untouched_by_a_reset_mask() -> None:
    env, same = make(), make()
    mask = np.array([True, False, True, False])
    first, _ = env.reset(seed=[3, 4, 5, 6])
    same.reset(seed=[3, 4, 5, 6])
    observations = [each[0] for each in play(env, 20)][-1]
    play(same, 20)
    after, _ = env.reset(seed=np.array([3, 5]), options={"reset_mask": mask})
    np.testing.assert_array_equal(after[mask], first[mask])
    np.testing.assert_array_equal(after[~mask], observations[~mask])
    for one, other in zip(play(env, 20, 1), play(same, 20, 1), strict=True):
        np.testing.assert_array_equal(one[0][~mask], other[0][~mask])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_reset_pool_gives_the_same_kind_of_games(mode: AutoresetMode) -> None:
    env = make(num_envs=6, reset_pool=3, autoreset_mode=mode, max_num_frames_per_episode=200, noop_max=8)
    env.reset(seed=0)
    starts = [step[4]["episode_frame_number"] for step in play(env, 300)]
    ends = np.sum([step[3] for step in play(env, 300, 1)])
    assert ends > 20 and 1 <= np.min(starts) <= 7


def test_a_partial_reset_leaves_the_pool_alone() -> None:
    env = make(num_envs=4, reset_pool=4, max_num_frames_per_episode=40, noop_max=8)
    env.reset(seed=0)
    play(env, 15)
    env.reset(seed=7, options={"reset_mask": np.array([True, False, False, False])})
    starts = [step[4]["episode_frame_number"] for step in play(env, 60)]
    assert np.min(starts) >= 1  # a game starts with FIRE at least
    seen = [np.unique(step[0][step[4]["episode_frame_number"] < 9], axis=0) for step in play(env, 60)]
    assert len(np.unique(np.concatenate(seen), axis=0)) > 4


def test_send_and_recv_equal_step_and_arrays_belong_to_the_caller() -> None:
    env, other = make(), make()
    env.reset(seed=0)
    other.reset(seed=0)
    draws, sent, stepped = np.random.default_rng(0), [], []
    for _ in range(30):
        actions = draws.integers(0, 4, 4)
        stepped.append(other.step(actions))
        env.send(actions)
        actions[:] = 0
        sent.append(env.recv())
    assert_same(sent, stepped)
    with pytest.raises(RuntimeError, match="recv: no step has begun"):
        env.recv()


def test_tensors_share_memory_with_the_games() -> None:
    env, expected = make(array="torch", grayscale=False), make(grayscale=False)
    first, _ = env.reset(seed=0)
    expected.reset(seed=0)
    found, other = play(env, 20)[-1], play(expected, 20)[-1]
    assert found[0].data_ptr() == first.data_ptr()
    assert all(isinstance(each, torch.Tensor) for each in found[:4])
    np.testing.assert_array_equal(found[0], other[0])
    np.testing.assert_array_equal(np.from_dlpack(found[0]), other[0])
    assert other[0].shape == (4, 4, 84, 84, 3)


@pytest.mark.parametrize("keywords", [{}, {"preset": "standard"}, {"obs_type": "ram"}, {"autoreset_mode": "SameStep"}])
def test_a_saved_state_goes_on_bit_for_bit(keywords: dict[str, Any]) -> None:
    env, other = (make(max_num_frames_per_episode=300, **keywords) for _ in range(2))
    env.reset(seed=0)
    play(env, 60)
    other.load_state(env.save_state())
    assert_same(play(other, 100, 1), play(env, 100, 1))


def test_ram_is_observed_in_stacks() -> None:
    env = make(obs_type="ram", stack_num=3)
    first, _ = env.reset(seed=0)
    assert first.shape == env.observation_space.shape == (4, 3, 128) and not first[:, :2].any()
    steps = play(env, 2)
    np.testing.assert_array_equal(steps[1][0][:, :2], steps[0][0][:, 1:])
    np.testing.assert_array_equal(steps[1][0][:, 2], env.consoles.ram())
    unmoved, _ = env.reset(options={"reset_mask": np.zeros(4, bool)})
    np.testing.assert_array_equal(unmoved, steps[1][0])


def test_points_are_in_info_where_rewards_are_clipped() -> None:
    env, unclipped = make("space_invaders"), make("space_invaders", reward_clipping=False)
    env.reset(seed=0)
    unclipped.reset(seed=0)
    for clipped, whole in zip(play(env, 300), play(unclipped, 300), strict=True):
        np.testing.assert_array_equal(clipped[4]["unclipped_reward"], whole[1])
        np.testing.assert_array_equal(clipped[1], np.sign(whole[1]))
        np.testing.assert_array_equal(whole[4]["unclipped_reward"], whole[1])


def test_gymnasium_makes_it_with_the_defaults_of_ale_or_of_a_preset() -> None:
    name = "AtariWarp/Breakout-v5"
    default = gymnasium.make_vec(name, num_envs=2, vectorization_mode="vector_entry_point", compile_rom=False)
    standard = gymnasium.make_vec(name, num_envs=2, preset="standard", compile_rom=False)
    options = [env.unwrapped.consoles.preprocessing for env in (default, standard)]
    assert [each.repeat_action_probability for each in options] == [0.25, 0.0]
    assert options[1].episodic_life and make(preset="machado", noop_max=7).consoles.preprocessing.noop_max == 7
    assert make(preset="machado").single_action_space.n == 18


def test_statistics_wrapper_counts_whole_episodes() -> None:
    env = RecordEpisodeStatistics(make(num_envs=2, max_num_frames_per_episode=100))
    env.reset(seed=0)
    lengths = []
    for _ in range(60):
        *_, info = env.step(np.array([1, 2]))
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
    assert lengths == [25, 25, 25, 25]


def test_pictures_are_rendered_and_actions_named() -> None:
    env = make(num_envs=2, render_mode="rgb_array", frameskip=4, tap_frames=1)
    env.reset(seed=0)
    pictures = env.render()
    assert pictures is not None and len(pictures) == 2 and pictures[0].shape == (210, 160, 3) and pictures[0].any()
    assert env.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT", "FIRE TAP", "RIGHT TAP", "LEFT TAP"]
    assert env.single_action_space.n == 7 and make().render() is None


@pytest.mark.parametrize(
    ("keywords", "kind", "message"),
    [
        ({"game": "pongg"}, EmulatorError, r"game=pongg: unknown game\. Did you mean pong"),
        ({"num_envs": 0}, EmulatorError, "num_envs=0: must be an integer of at least 1"),
        ({"batch_size": 2}, EmulatorError, "batch_size=2: only num_envs is supported"),
        ({"thread_affinity_offset": 0}, EmulatorError, "thread_affinity_offset=0: is not supported"),
        ({"continuous": True}, EmulatorError, "continuous=True: continuous actions are not supported"),
        ({"frameskip": 0}, gymnasium.error.Error, "frameskip=0"),
        ({"frameskip": (2, 5)}, gymnasium.error.Error, r"frameskip=\(2, 5\)"),
        (
            {"autoreset_mode": "Never"},
            EmulatorError,
            "autoreset_mode=Never: must be one of NextStep, SameStep",
        ),
        ({"preset": "fast"}, EmulatorError, "preset=fast: must be None or standard or machado"),
        ({"mode": 99}, EmulatorError, "mode=99: "),
        ({"img_heigth": 64}, TypeError, "img_heigth: unknown keyword. Did you mean img_height"),
        ({"stack_num": 0}, EmulatorError, "stack_num=0: must be an integer from 1"),
        ({"num_threads": -1}, EmulatorError, "num_threads=-1: must be an integer of at least 0"),
        ({"crop": (0, 300, 0, 160)}, EmulatorError, "crop=.*: pictures of this game have 210 rows"),
    ],
)
def test_bad_keywords_are_refused(keywords: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make(**keywords)


@pytest.mark.parametrize(
    ("act", "kind", "message"),
    [
        (lambda env: env.step(np.zeros(3, int)), AssertionError, r"actions: have shape \(3,\) and dtype int64"),
        (lambda env: env.step(np.zeros(2)), AssertionError, "dtype float64"),
        (lambda env: env.step(np.array([0, 4])), AssertionError, r"actions=\[0 4\]: must be from 0 to 3"),
        (lambda env: env.step(np.array([-1, 0])), AssertionError, r"actions=\[-1  0\]: must be from 0 to 3"),
        (lambda env: env.reset(seed="a"), TypeError, "seed=a: must be an integer"),
        (lambda env: env.reset(seed=[1]), ValueError, "seed: has 1 numbers, expected 2"),
        (lambda env: env.reset(seed=-1), ValueError, "seed=-1: must be from 0"),
        (lambda env: env.reset(options={"reset_mask": [True, False]}), TypeError, "reset_mask=.*: must be a boolean"),
        (lambda env: env.reset(options={"reset_mask": np.ones(3, bool)}), ValueError, "reset_mask: has shape"),
        (lambda env: copy.deepcopy(env), TypeError, "AtariVectorEnv: cannot be copied or pickled"),
        (lambda env: pickle.dumps(env), TypeError, "AtariVectorEnv: cannot be copied or pickled"),
        (lambda env: env.load_state(make("pong", 2).save_state()), EmulatorError, "state: has 2 consoles with pong"),
        (lambda env: env.load_state(make(num_envs=3).save_state()), EmulatorError, "state: has 3 consoles with break"),
        (lambda env: env.load_state(b"x"), EmulatorError, "state: must be a result of save_state"),
        (lambda env: (env.send(np.zeros(2, int)), env.save_state()), RuntimeError, "send: its step has not been"),
        (lambda env: make("combat"), EmulatorError, "game=combat: is a game for two players"),
        (lambda env: make(device="cuda:7"), EmulatorError, "device=cuda:7: not available. Choose one of"),
        (lambda env: (env.send(np.zeros(2, int)), env.send(np.zeros(2, int))), RuntimeError, "send: its step has not"),
    ],
)  # fmt: skip
def test_bad_calls_get_one_sentence(act: Any, kind: type[Exception], message: str) -> None:
    env = make(num_envs=2)
    env.reset(seed=0)
    with pytest.raises(kind, match=message):
        act(env)


def test_steps_before_a_reset_and_use_after_close_are_refused() -> None:
    env = make(num_envs=2)
    with pytest.raises(RuntimeError, match="step: no game has started"):
        env.step(np.zeros(2, int))
    with pytest.raises(RuntimeError, match="the first reset must reset all"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="was closed"):
        env.reset()


def test_a_forked_child_is_told_to_make_its_own() -> None:
    env = make(num_envs=2, num_threads=2)
    env.reset(seed=0)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def use() -> None:
        try:
            env.step(np.zeros(2, int))
        except RuntimeError as error:
            theirs.send(str(error))

    child = context.Process(target=use)
    child.start()
    assert ours.poll(30) and "belongs to the parent process" in ours.recv()
    child.join()
