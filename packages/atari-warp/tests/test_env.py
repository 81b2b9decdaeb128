"""Gymnasium environment of one game: equal to ALE's, and used as ALE's is."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from ale_py.env import AtariEnv as TheirEnv
from atari_warp import AtariEnv, EmulatorError, known_games
from devices import mostly_integration
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import AtariPreprocessing, RecordEpisodeStatistics, TimeLimit

gymnasium.register_envs(ale_py)


def make_env(game: str = "pong", **options: Any) -> AtariEnv:
    """An environment whose code is interpreted, as compiling takes longer than a test."""
    return AtariEnv(game, **{"compile_rom": False, "repeat_action_probability": 0.0, **options})


def make_pong(**options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("AtariWarp/Pong-v5", compile_rom=False, **options)


def assert_equal(ours: Any, theirs: Any, message: str) -> None:
    """Compare results of a reset or a step with their types."""
    for mine, expected in zip(ours, theirs, strict=True):
        assert type(mine) is type(expected), message
        if isinstance(expected, np.ndarray):
            assert mine.dtype == expected.dtype, message
            np.testing.assert_array_equal(mine, expected, err_msg=message)
        else:
            assert mine == expected, message


# Each pair of values of two keywords occurs in one case or more.
KEYWORDS: list[dict[str, Any]] = [
    {},
    {"obs_type": "grayscale", "frameskip": 1, "full_action_space": True},
    {"obs_type": "ram", "frameskip": (2, 5), "full_action_space": True, "max_num_frames_per_episode": 400},
    {"obs_type": "rgb", "frameskip": (2, 5), "mode": 1, "difficulty": 1},
    {"obs_type": "grayscale", "frameskip": 7, "mode": 1, "max_num_frames_per_episode": 400},
    {"obs_type": "ram", "frameskip": 7, "difficulty": 1},
    {"obs_type": "rgb", "frameskip": 1, "mode": 1, "difficulty": 1, "max_num_frames_per_episode": 90},
    {"obs_type": "grayscale", "frameskip": (2, 5), "full_action_space": True, "difficulty": 1},
    {"obs_type": "rgb", "frameskip": 7, "full_action_space": True, "max_num_frames_per_episode": 400},
]
GAMES = ["pong", "air_raid", "breakout", "name_this_game", "qbert", "skiing", "solaris", "tetris"]
CASES = [(game, number) for game in GAMES for number in range(len(KEYWORDS))]


@pytest.mark.parametrize("case", mostly_integration(CASES, 4))
def test_observations_rewards_and_ends_equal_ale(case: tuple[str, int]) -> None:
    game, number = case
    options = dict(KEYWORDS[number])
    facts = known_games()[game]
    for name, known in (("mode", list(facts.modes)), ("difficulty", list(facts.difficulties))):
        if name in options:
            options[name] = known[-1]
    ours, theirs = make_env(game, **options), TheirEnv(game, repeat_action_probability=0.0, **options)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert ours.get_action_meanings() == theirs.get_action_meanings()
    assert ours.get_keys_to_action() == theirs.get_keys_to_action()
    draws, ended = np.random.default_rng(number), 0
    for step in range(250):
        if step in (0, 100, 180) or ended > 2:
            seed = None if step == 100 else step
            assert_equal(ours.reset(seed=seed), theirs.reset(seed=seed), f"{case}, reset at step {step}")
            ended = 0
        action = int(draws.integers(ours.action_space.n))
        mine, expected = ours.step(action), theirs.step(action)
        assert_equal(mine, expected, f"{case}, step {step}")
        ended += expected[2] or expected[3]  # two more steps, which play nothing
    ours.close()
    theirs.close()


def test_a_new_environment_can_step_before_a_reset_as_in_ale() -> None:
    ours, theirs = make_env("seaquest"), TheirEnv("seaquest", repeat_action_probability=0.0)
    for action in range(20):
        assert_equal(ours.step(action % 18), theirs.step(action % 18), f"step {action}")
    assert_equal(ours.reset(), theirs.reset(), "reset")


@pytest.mark.parametrize("game", ["pong", "air_raid", "qbert"])
def test_preprocessed_observations_equal_ale(game: str) -> None:
    options: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
    id_ = game.title().replace("_", "")
    ours = AtariPreprocessing(gymnasium.make(f"AtariWarp/{id_}-v5", compile_rom=False, **options))
    theirs = AtariPreprocessing(gymnasium.make(f"ALE/{id_}-v5", **options))
    assert_equal(ours.reset(seed=3), theirs.reset(seed=3), "reset")
    for step in range(150):
        assert_equal(ours.step(step % 5), theirs.step(step % 5), f"step {step}")


@pytest.mark.slow
def test_compiled_code_takes_over_in_the_middle_of_a_game() -> None:
    env, interpreted = make_env(compile_rom=True), make_env()
    assert_equal(env.reset(seed=1), interpreted.reset(seed=1), "reset")
    for step in range(60):
        if step == 20:
            env.ale.wait_until_compiled()
        assert_equal(env.step(step % 6), interpreted.step(step % 6), f"step {step}")


def test_all_ids_of_ale_have_a_counterpart_with_its_defaults() -> None:
    theirs = [id_ for id_ in gymnasium.registry if id_.startswith("ALE/") or id_.endswith("NoFrameskip-v4")]
    expected = {f"AtariWarp/{id_.removeprefix('ALE/')}" for id_ in theirs if not id_.startswith("AtariWarp/")}
    ours = {id_ for id_ in gymnasium.registry if id_.startswith("AtariWarp/")}
    assert ours == expected and len(ours) == 104 + 62
    assert {gymnasium.spec(id_).kwargs["game"] for id_ in ours} == set(known_games())


@pytest.mark.parametrize(
    ("id_", "frames", "chance"), [("AtariWarp/Pong-v5", 4, 0.25), ("AtariWarp/PongNoFrameskip-v4", 1, 0.0)]
)
def test_ids_have_the_defaults_of_ale(id_: str, frames: int, chance: float) -> None:
    theirs = gymnasium.spec(id_.removeprefix("AtariWarp/") if frames == 1 else "ALE/Pong-v5").kwargs
    assert (theirs["frameskip"], theirs["repeat_action_probability"]) == (frames, chance)
    env: Any = gymnasium.make(id_, compile_rom=False).unwrapped
    assert env.ale.getFloat("repeat_action_probability") == chance
    assert env.ale.getInt("max_num_frames_per_episode") == theirs["max_num_frames_per_episode"]
    assert env.step(0)[4]["frame_number"] == frames
    assert gymnasium.make(id_, compile_rom=False, frameskip=3).unwrapped.step(0)[4]["frame_number"] == 3


def test_an_id_with_the_name_of_the_module_needs_no_import() -> None:
    code = (
        "import gymnasium; env = gymnasium.make('atari_warp:AtariWarp/PongNoFrameskip-v4', compile_rom=False);"
        "env.reset(seed=0); print(env.step(0)[4]['frame_number'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize("obs_type", ["rgb", "grayscale", "ram"])
def test_gymnasium_finds_nothing_wrong(obs_type: str) -> None:
    env = make_pong(render_mode="rgb_array", obs_type=obs_type)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_statistics_and_time_limits_of_gymnasium_work() -> None:
    env = RecordEpisodeStatistics(TimeLimit(make_pong(), 20))
    env.reset(seed=0)
    *_, truncated, info = [env.step(0) for _ in range(20)][-1]
    assert truncated and info["episode"]["l"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_environments_play_in_processes_of_gymnasium(context: str) -> None:
    make_pong().close()  # Warp runs before the processes start
    played = []
    for asynchronous in (True, False):
        makers = [make_pong] * 2
        if asynchronous:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                envs: Any = gymnasium.vector.AsyncVectorEnv(makers, context=context)
        else:
            envs = gymnasium.vector.SyncVectorEnv(makers)
        envs.reset(seed=[1, 2])
        played.append([envs.step(np.array([step % 6, 2]))[0].copy() for step in range(30)])
        envs.close()
    np.testing.assert_array_equal(*played)


# --- states ----------------------------------------------------------------------------------------------------------


def test_copies_and_pickles_of_an_environment_are_made_anew() -> None:
    env = make_env("breakout", obs_type="ram", frameskip=3, max_num_frames_per_episode=50)
    expected = [env.reset(seed=4), *[env.step(1) for _ in range(20)]]
    for again in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        found = [again.reset(seed=4), *[again.step(1) for _ in range(20)]]
        for mine, theirs in zip(found, expected, strict=True):
            assert_equal(mine, theirs, "copy")
    env.close()
    assert pickle.loads(pickle.dumps(env)).reset(seed=4)[1] == expected[0][1]


def test_a_restored_state_goes_on_as_it_did() -> None:
    env = make_env("assault", repeat_action_probability=0.5, frameskip=2)
    env.reset(seed=1)
    for step in range(40):
        env.step(step % 7)
    state = pickle.loads(pickle.dumps(env.clone_state(include_rng=True)))
    shown = env.ale.getScreenRGB()

    def play(env: AtariEnv) -> list[Any]:
        return [*(env.step(step % 7) for step in range(30)), env.reset()]  # a start depends on those before it

    expected = play(env)
    for other in (env, make_env("assault", repeat_action_probability=0.5, frameskip=2)):
        other.restore_state(state)
        np.testing.assert_array_equal(other.ale.getScreenRGB(), shown)
        assert other.clone_state(include_rng=True) == state
        for mine, theirs in zip(play(other), expected, strict=True):
            assert_equal(mine, theirs, "restored")


def test_a_state_without_random_numbers_goes_on_in_other_ways() -> None:
    env = make_env("breakout", repeat_action_probability=0.5)
    env.reset(seed=1)
    env.step(1)
    state, played = env.clone_state(), []
    assert state == env.clone_state() and state != env.clone_state(include_rng=True)
    for _ in range(2):
        env.restore_state(state)
        played.append([env.step(step % 4)[0].copy() for step in range(60)])
    assert not np.array_equal(*played)


def test_a_state_has_the_mode_of_its_game() -> None:
    env = make_env("breakout", mode=4, difficulty=1)
    env.reset(seed=1)
    state = env.clone_state()
    assert (state.getCurrentMode(), state.getDifficulty()) == (4, 1)
    assert (state.getFrameNumber(), state.getEpisodeFrameNumber()) == (4, 4)  # SELECT counts
    plain = make_env("breakout")
    plain.reset(seed=1)
    plain.restore_state(state)
    assert_equal(plain.reset(), env.reset(), "reset")


# --- repeated actions ------------------------------------------------------------------------------------------------


def test_actions_are_repeated_with_the_given_probability() -> None:
    sticky, plain = (make_env("breakout", repeat_action_probability=chance, frameskip=1) for chance in (0.25, 0.0))
    sticky.reset(seed=1)
    draws, before, repeated, changes = np.random.default_rng(1), 0, 0, 0
    for _ in range(1500):
        action = int(draws.integers(2, 4))  # RIGHT and LEFT, each of which turns the paddle in every frame
        plain.restore_state(sticky.clone_state())
        plain.step(action)
        sticky.step(action)
        if action != before:
            changes += 1
            turned = plain.clone_state().console == sticky.clone_state().console
            repeated += not turned
            before = action if turned else before
    assert 0.2 < repeated / changes < 0.3


def test_the_same_seed_repeats_the_same_actions() -> None:
    def play(seed: int) -> list[bytes]:
        env = make_env("breakout", repeat_action_probability=0.25, obs_type="ram")
        env.reset(seed=seed)
        return [env.step(step % 4)[0].tobytes() for step in range(100)]

    assert play(1) == play(1) != play(2)


def test_a_probability_of_one_repeats_the_first_action_for_good() -> None:
    sticky, still = make_env(repeat_action_probability=1.0, obs_type="ram"), make_env(obs_type="ram")
    sticky.reset(seed=1)
    still.reset(seed=1)
    for _ in range(50):
        np.testing.assert_array_equal(sticky.step(2)[0], still.step(0)[0])


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "options", "kind", "message"),
    [
        ("pogn", {}, TypeError, r"game=pogn: unknown game\. Did you mean pong"),
        ("Pong", {}, EmulatorError, r"game=Pong: unknown game\. Did you mean pong"),
        ("combat", {}, TypeError, r"game=combat: the emulator cannot play this game\. Use ale_py"),
        ("pong", {"mode": 9}, RuntimeError, r"mode=9: pong has mode 0, 1 here\."),
        ("pong", {"difficulty": 9}, RuntimeError, r"difficulty=9: pong has difficulty 0, 1, 2, 3"),
        ("pong", {"mode": "a"}, TypeError, r"mode='a': must be an integer\."),
        ("pong", {"obs_type": "grey"}, gymnasium.error.Error, r"obs_type=grey: must be rgb, grayscale or ram\."),
        ("pong", {"render_mode": "ansi"}, gymnasium.error.Error, r"render_mode=ansi: must be rgb_array, human or None"),
        ("pong", {"frameskip": 0}, gymnasium.error.Error, r"frameskip=0: must be positive"),
        ("pong", {"frameskip": 4.0}, gymnasium.error.Error, r"frameskip=4\.0: must be an integer, or a tuple"),
        ("pong", {"frameskip": (3, 3)}, gymnasium.error.Error, r"frameskip=\(3, 3\): must be positive, and in a tuple"),
        ("pong", {"frameskip": (1, 2, 3)}, gymnasium.error.Error, r"frameskip=\(1, 2, 3\): must be an integer, or a"),
        ("pong", {"repeat_action_probability": 2}, gymnasium.error.Error, r"=2: must be a number from 0 to 1\."),
        ("pong", {"max_num_frames_per_episode": -1}, gymnasium.error.Error, r"=-1: must be from 0, which means no"),
        ("pong", {"max_num_frames_per_episode": 1.5}, TypeError, r"=1\.5: must be an integer or None\."),
        ("pong", {"continuous": True}, gymnasium.error.Error, r"continuous=True: continuous actions are not supported"),
        ("pong", {"sound_obs": True}, gymnasium.error.Error, r"sound_obs=True: the emulator has no sound\. Use ale_py"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(game: str, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_env(game, **options)


@pytest.mark.parametrize(
    ("action", "kind"), [(6, IndexError), (-7, IndexError), (1.0, TypeError), ("a", TypeError), (None, TypeError)]
)
def test_bad_actions_are_refused_and_play_nothing(action: Any, kind: type[Exception]) -> None:
    env = make_env()
    env.reset()
    with pytest.raises(kind, match=r"action=.*: must be an integer from 0 to 5\."):
        env.step(action)
    assert env.ale.getFrameNumber() == 0


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_bad_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(gymnasium.error.Error):
        make_env().reset(seed=seed)


def test_nothing_is_rendered_without_a_render_mode() -> None:
    with pytest.raises(gymnasium.error.Error, match="render_mode=None: nothing is rendered"):
        make_env().render()


def test_a_closed_environment_says_so() -> None:
    env = make_env()
    env.close()
    env.close()
    for use in (lambda: env.step(0), env.reset, env.clone_state, env.ale.lives):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="The environment is closed"):
            use()


def test_a_forked_child_cannot_use_the_environment_of_its_parent() -> None:
    code = """
import os
from atari_warp import AtariEnv
env = AtariEnv("pong", compile_rom=False)
env.reset()
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for use in (lambda: env.step(0), env.reset):
    try:
        use()
    except RuntimeError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert (
        ended.stdout.splitlines()
        == ["The environment belongs to the parent of this process. Make another one here."] * 2
    )


def test_states_of_other_games_are_refused() -> None:
    env = make_env()
    with pytest.raises(EmulatorError, match="state: is of another game, ROM or version of the emulator"):
        env.restore_state(make_env("breakout").clone_state())
    with pytest.raises(EmulatorError, match="state: is of another game"):
        env.restore_state(type(env.clone_state())())
    with pytest.raises(EmulatorError, match="serialized: is not a state of atari_warp"):
        type(env.clone_state())(b"abc")
    with pytest.raises(TypeError, match="state: has type int"):
        env.restore_state(3)  # type: ignore[arg-type]


def test_a_window_shows_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setitem(os.environ, "SDL_VIDEODRIVER", "dummy")
    env = make_env(render_mode="human", frameskip=2)
    env.reset()
    env.step(0)
    shown = pygame.surfarray.array3d(pygame.display.get_surface())[::4, ::3].swapaxes(0, 1)
    np.testing.assert_array_equal(shown, env.ale.getScreenRGB())
    assert env.render() is None
    env.close()
