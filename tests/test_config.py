from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import make_run
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from dqnspeed import options
from dqnspeed.cli import USER_ERRORS, check_run, explain
from dqnspeed.combinations import unused
from dqnspeed.compose import CONF_DIR
from dqnspeed.config import KINDS

CONF = Path(CONF_DIR)
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())
OPTIONS = [f"{group}={path.stem}" for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]


def test_the_groups_are_the_agreed_ones() -> None:
    agreed = "algo env wrappers parallelism model optimizer replay exploration execution tracking checkpoint experiment"
    assert sorted(agreed.split()) == GROUPS


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option: str) -> None:
    make_run(option)


@pytest.mark.parametrize("group", [g for g in GROUPS if g != "experiment"])
def test_all_options_of_a_group_have_the_same_keys(group: str) -> None:
    keys = {}
    for path in (CONF / group).glob("*.yaml"):
        GlobalHydra.instance().clear()
        with initialize_config_dir(CONF_DIR, version_base="1.3"):
            node = compose("config", overrides=[f"{group}={path.stem}"])[group]
            keys[path.stem] = {key for key in node if not OmegaConf.is_missing(node, key)}
    assert len(set(map(frozenset, keys.values()))) == 1, keys


def test_no_override_gives_the_baseline_of_the_book() -> None:
    run = make_run()
    assert run == make_run("experiment=baseline")
    assert (run.env.id, run.num_envs, run.parallelism.name) == ("PongNoFrameskip-v4", 1, "serial")
    assert (run.algo.batch_size, run.algo.steps_per_update, run.algo.n_step) == (32, 1, 1)
    assert (run.algo.learning_starts, run.algo.target_sync, run.algo.gamma) == (10_000, 1_000, 0.99)
    assert (run.replay.capacity, run.optimizer.name, run.optimizer.lr) == (100_000, "adam", 1e-4)
    assert (run.exploration.start, run.exploration.final, run.exploration.decay_steps) == (1.0, 0.02, 100_000)
    assert (run.stop.reward_bound, run.stop.window, run.algo.loss) == (17, 100, "mse")


@pytest.mark.parametrize("num_envs", [1, 3, 6])
def test_n_environments_keep_the_replay_ratio_of_the_baseline(num_envs: int) -> None:
    run = make_run(f"num_envs={num_envs}")
    assert run.algo.batch_size == 32 * num_envs
    assert run.replay_ratio == 32


def test_rungs_differ_from_the_baseline_in_what_they_name() -> None:
    assert not make_run("experiment=no_torch_no_grad").execution.no_grad
    assert make_run("experiment=n_envs").num_envs == 3
    process = make_run("experiment=process")
    assert (process.algo.batch_size, process.replay_ratio) == (128, None)
    tweaked = make_run("experiment=tweaked_n_envs").wrappers
    assert (tweaked.resizer, tweaked.noop_max, tweaked.max_pool, tweaked.stack) == ("pillow", 0, False, 2)
    assert make_run("experiment=tweaked_process").wrappers == tweaked
    chapter6 = make_run("experiment=chapter6_dqn")
    assert (chapter6.replay.capacity, chapter6.exploration.final, chapter6.stop.reward_bound) == (
        10_000,
        0.01,
        19,
    )


def test_every_rung_states_its_kind() -> None:
    for path in (CONF / "experiment").glob("*.yaml"):
        experiment = make_run(f"experiment={path.stem}").experiment
        assert experiment.name == path.stem
        assert experiment.kind and set(experiment.kind) <= set(KINDS)


def preflight(*overrides: str) -> str | None:
    """The sentence a user would read, or None where nothing is wrong."""
    try:
        check_run(make_run(*overrides))
    except USER_ERRORS as error:
        return explain(error)
    return None


BAD = {
    "num_env=3": "num_env: there is no such option (nearest: num_envs, env).",
    "num_envs=0": "num_envs=0: must be at least 1.",
    "num_envs=abc": "num_envs: Value 'abc' of type 'str' could not be converted to Integer.",
    "+num_envs=3": "+num_envs: is an option already; drop the +.",
    "seed=-1": "seed=-1: must be at least 0.",
    "env=pongg": "env=pongg: there is no such option (nearest: pong); choose one of ",
    "env.id=ALE/Pnog-v5": "no registered Gymnasium environment has this name; nearest: PongNoFrameskip-v4",
    "env.id=joust": "env.id=joust: no ALE game and no registered Gymnasium environment has this name",
    "env.id=nobody:Env-v0 wrappers=none": "env.id=nobody:Env-v0: could not be made (ModuleNotFoundError",
    "env=cartpole wrappers=deepmind": "wrappers.noop_max=30: needs an ALE game, and CartPole-v1 is not one",
    "env=cartpole wrappers=native": "wrappers=native: needs an ALE game, and CartPole-v1 is not one.",
    "env=cartpole model=nature": "model=nature: takes images, and observations here are 4; use model=mlp.",
    "env=cartpole wrappers=none env.sticky_actions=0.1": "env.sticky_actions=0.1: CartPole-v1 is not an ALE game.",
    "env.kwargs={a: 1}": "env.kwargs={'a': 1}: ALE games take env.sticky_actions",
    "env.id=MountainCarContinuous-v0 wrappers=none model=mlp": "only Discrete ones can be learnt",
    "algo=ppo algo.double=true": "algo.double=True: belongs to algo=dqn and not to algo=ppo.",
    "algo.clip=0.2": "algo.clip=0.2: belongs to algo=ppo and not to algo=dqn.",
    "algo=ppo algo.clip=null": "algo.clip=null: algo=ppo needs a value",
    "algo=ppo parallelism=process parallelism.transport=queue": "parallelism.transport=queue: carries single",
    "algo=pqn parallelism=process parallelism.replay_ratio=4": "parallelism.replay_ratio=4: belongs to algo=dqn",
    "algo=ppo num_envs=1": "algo.batch_size=256: must be at most 128",
    "algo=ppo parallelism=overlap num_envs=3": "num_envs=3: must be even",
    "algo=a2c model.dueling=true": "model.dueling=true: belongs to action values",
    "algo=a2c parallelism=process": "parallelism=process: algo=a2c learns in one process; algo=a3c is the same",
    "algo=a3c parallelism=serial": "parallelism=serial: algo=a3c needs parallelism=process; algo=a2c is the same",
    "algo=q_learning": "algo=q_learning: needs numbered states, and PongNoFrameskip-v4 shows 1x84x84 values",
    "algo=q_learning env=cartpole": "algo=q_learning: needs numbered states, and CartPole-v1 shows 4 values",
    "algo=q_learning env=taxi num_envs=2": "num_envs=2: algo=q_learning takes one transition at a time",
    "algo=q_learning env=taxi parallelism=process": "parallelism=process: algo=q_learning learns in one process",
    "algo=q_learning env=taxi wrappers.stack=2": "shows 500 values in stacks of 2",
    "algo=q_learning env=taxi algo.n_step=4": "algo.n_step=4: belongs to algo=dqn, a2c, a3c and not to algo=q_learning",
    "algo=q_learning env=taxi device=auto": "device=auto: algo=q_learning learns on the CPU",
    "algo=ppo parallelism=process parallelism.num_actors=2": "num_actors=2: algo=ppo takes its rollouts from one",
    "algo=ppo model.background=true": "algo.learning_starts=0: model.background=true is measured over these",
    "algo=ppo algo.batch_size=1": "algo.batch_size=1: algo.normalize_advantage=true needs at least 2.",
    "experiment=own_env algo=ppo": "algo.n_step=4 (experiment=own_env may bring it): belongs to algo=dqn, a2c,",
    "optimizer.lr=nan": "optimizer.lr=nan: must be a finite number.",
    "optimizer.lr=0": "optimizer.lr=0.0: must be more than 0.",
    "experiment=ppo algo.epochs=8": "updates nothing would be learnt, and stop.max_steps=10000000 brings 312500; raise",
    "optimizer.lr_final=0": "lr_decay_updates=100000 updates nothing would be learnt, and stop.max_steps=null may",
    "optimizer=adamm": "optimizer=adamm: there is no such option (nearest: adam, radam, adamw)",
    "algo.loss=mae": "algo.loss=mae: choose one of mse, huber.",
    "algo.batch_size=200000": "algo.batch_size=200000: must be at most replay.capacity=100000.",
    "algo.learning_starts=200000": "algo.learning_starts=200000: must be at most replay.capacity=100000.",
    "algo.learning_starts=3": "algo.learning_starts=3: must be at least 7 for 1 environments, 4 frames and 1 steps.",
    "replay.capacity=10 algo.batch_size=5 algo.learning_starts=9": "replay.capacity=10: must be at least 14",
    "replay.capacity=100000000": "transitions would fit.",
    "model.hidden=[1000000000]": "model=nature (model.hidden=[1000000000]): needs 62860.0 GB, and ",
    "algo=a2c algo.batch_size=1000000000": "algo.batch_size=1000000000: needs ",
    "algo=dqn algo.batch_size=90000 wrappers.resize=200 replay.capacity=90000": "algo.batch_size=90000: needs ",
    "algo=pqn num_envs=4096 wrappers.resize=1024": "num_envs=4096: needs ",
    "execution.threads=100000": "execution.threads=100000: must be at most ",
    "parallelism=overlap parallelism.env_threads=5000": "parallelism.env_threads=5000: must be at most ",
    "parallelism.replay_ratio=4": "parallelism.replay_ratio=4: belongs to parallelism=process",
    "parallelism=process parallelism.replay_ratio=none": "must be 'free' or a positive number.",
    "parallelism=process parallelism.replay_ratio=-1": "must be 'free' or a positive number.",
    "parallelism.num_actors=2": "parallelism.num_actors=2: belongs to parallelism=process",
    "parallelism=process device=mps": "device=mps: parallelism=process shares weights on cpu or cuda only.",
    "wrappers=native wrappers.resizer=pillow": "wrappers=native: ALE resizes by itself",
    "wrappers=native wrappers.resize=null": "wrappers=native: ALE resizes by itself",
    "wrappers.resize=9": "model=nature: its convolutions do not fit observations of 4x9x9",
    "model.conv=[[1,2]]": "model.conv=[[1, 2]]: each layer is [filters, kernel, stride]",
    "stop.reward_bond=3": "stop.reward_bond: there is no such option (nearest: stop.reward_bound",
    "env=cartpole wrappers=none model=mlp wrappers.resize=84": "wrappers.resize=84: resizes images, and observations",
    "parallelism=process num_envs=16 replay.capacity=512 algo.learning_starts=200": "replay.capacity=512: must be",
    "num_envs==3": "Error parsing override 'num_envs==3'.",
}


@pytest.mark.parametrize("overrides", BAD)
def test_bad_input_gets_one_sentence(overrides: str) -> None:
    given = [overrides] if "kwargs" in overrides else overrides.split(" ")
    sentence = preflight(*given)
    assert sentence is not None and BAD[overrides] in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "Breakout-v4", "video_pinball", "BreakoutNoFrameskip-v4"])
def test_any_ale_game_can_be_named_by_id_or_rom(game: str) -> None:
    assert preflight(f"env.id={game}", "stop.reward_bound=null") is None


@pytest.mark.parametrize(
    "overrides", [["num_envs=0"], ["wrappers=native", "env.id=CartPole-v1"], ["-m", "num_envs=1,0"]]
)
def test_bad_input_leaves_nothing_behind(
    cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, overrides: list[str]
) -> None:
    result = cli(*overrides)
    assert result.returncode == 2
    assert result.stderr.startswith("dqnspeed: ") and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            "algo=ppo exploration.final=0.1",
            "exploration.final=0.1: does nothing with algo=ppo; exploration is for algo=",
        ),
        ("algo=pqn replay=uniform", "replay=uniform: does nothing with algo=pqn; replay is for algo=dqn."),
        ("algo=q_learning env=taxi optimizer.lr=1", "optimizer.lr=1: does nothing with algo=q_learning; optimizer is"),
        ("algo=dqn exploration.final=0.1 replay=uniform optimizer.lr=1 model.dueling=true", ""),
        ("algo=a2c model=small optimizer=rmsprop num_envs=2", ""),
    ],
)
def test_options_that_the_algorithm_does_not_look_at_are_told(overrides: str, told: str) -> None:
    given = overrides.split(" ")
    sentences = list(unused(make_run(*given), given))
    assert [told in sentence for sentence in sentences] == [True] * bool(told)


def test_help_explains_every_group_and_ten_overrides(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = cli("--help").stdout
    for group in GROUPS:
        assert f"\n  {group} " in shown, group
    ten = shown.split("ten overrides people use most")[1].split("Groups:")[0]
    assert len([line for line in ten.splitlines() if line.strip()]) == 10


def test_options_of_a_users_own_are_found(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    own = tmp_path / "mine" / "wrappers"
    own.mkdir(parents=True)
    (own / "six_frames.yaml").write_text("defaults:\n  - deepmind\nstack: 6\n")
    shown = cli("--config-dir", str(tmp_path / "mine"), "wrappers=six_frames", "--cfg", "job").stdout
    assert "stack: 6" in shown and "noop_max: 30" in shown


def test_every_option_of_the_schema_says_what_it_is() -> None:
    for key, _, meta in options.leaves(make_run()):
        assert meta["about"], key
