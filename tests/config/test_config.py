from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from conftest import TOY, make_run, make_toy
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import dqnspeed
from dqnspeed.algorithms import epsilon_at
from dqnspeed.cli.compose import changed, from_hydra
from dqnspeed.cli.config_store import bound_of
from dqnspeed.cli.errors import explain, is_user_error
from dqnspeed.cli.preflight import check_jobs, check_run, emulated, unbounded
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.cli.sweep_record import Job
from dqnspeed.config import changes, options, registry
from dqnspeed.config.combinations import untuned, unused
from dqnspeed.config.registry import class_of
from dqnspeed.config.schema import KINDS, RunConfig
from dqnspeed.envs.games import rom_of
from dqnspeed.system import machine

CONF = Path(CONF_DIR)
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
OF_RUNS = [group for group in GROUPS if group != "sweep"]
OPTIONS = [f"{group}={path.stem}" for group in OF_RUNS for path in sorted((CONF / group).glob("*.yaml"))]


def test_the_groups_are_the_agreed_ones() -> None:
    agreed = "algo env wrappers backend parallelism model optimizer replay exploration execution tracking checkpoint"
    assert sorted([*agreed.split(), "experiment", "numbers"]) == OF_RUNS and "sweep" in GROUPS


ALGORITHMS = sorted(path.stem for path in (CONF / "algo").glob("*.yaml"))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_cartpole_takes_every_algorithm_but_a_table(algo: str) -> None:
    line = ["experiment=cartpole", f"algo={algo}"]
    if algo == "q_learning":
        with pytest.raises(options.ConfigError, match="algo=q_learning: needs numbered states, and CartPole-v1 shows"):
            dqnspeed.compose(line)
        return
    run, given = dqnspeed.compose(line), dqnspeed.compose([*line, "algo.gamma=0.5", "optimizer.lr=3e-5"])
    assert (run.algo.name, run.env.id, run.model.name, run.stop.reward_bound) == (algo, "CartPole-v1", "mlp", 475)
    assert run.optimizer.lr > make_run(f"algo={algo}").optimizer.lr
    assert (given.algo.gamma, given.optimizer.lr) == (0.5, 3e-5)  # what is typed wins


def test_an_experiment_keeps_its_numbers_above_those_of_the_algorithm(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("""# @package _global_
defaults:
  - cartpole
experiment:
  name: mine
num_envs: 3
""")
    line = [f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine", "algo=c51"]
    run, known = make_run(*line), make_run("experiment=cartpole", "algo=c51")
    assert (run.num_envs, run.algo) == (3, known.algo)


def test_numbers_that_do_not_exist_are_refused() -> None:
    with pytest.raises(
        options.ConfigError, match=r"numbers=cartpole/pp0: there is no such option \(nearest: cartpole/"
    ):
        dqnspeed.compose(["experiment=cartpole", "algo=ppo", "numbers=cartpole/pp0"])


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_and_has_every_number_of_its_kind(option: str) -> None:
    group = option.partition("=")[0]
    GlobalHydra.instance().clear()
    with initialize_config_dir(CONF_DIR, version_base="1.3"):
        config = compose("config", overrides=[option])
        run = from_hydra(config)
    if group == "experiment":
        assert option == f"experiment={run.experiment.name}"
        assert run.experiment.kind and set(run.experiment.kind) <= set(KINDS)
        return
    node = config[group]
    kind = class_of(group, node.name) if group in registry.GROUPS else get_type_hints(RunConfig)[group]
    assert OmegaConf.get_type(node) is kind
    assert {key for key in node if not OmegaConf.is_missing(node, key)} == {f.name for f in fields(kind)}


@pytest.mark.parametrize(
    ("group", "option"), [("model", "nature"), ("exploration", "linear"), ("optimizer", "adam"), ("wrappers", "none")]
)
def test_an_option_of_the_user_s_own_need_not_name_its_schema(group: str, option: str, tmp_path: Path) -> None:
    (tmp_path / group).mkdir()
    numbers = (CONF / group / f"{option}.yaml").read_text().partition("name: ")[2]
    (tmp_path / group / "mine.yaml").write_text(f"name: {numbers}")
    assert make_run(f"hydra.searchpath=[file://{tmp_path}]", f"{group}=mine") == make_run(f"{group}={option}")


def test_a_label_may_be_left_out_of_one(tmp_path: Path) -> None:
    (tmp_path / "wrappers").mkdir()
    (tmp_path / "wrappers" / "mine.yaml").write_text(
        (CONF / "wrappers" / "none.yaml").read_text().partition("name: none\n")[2]
    )
    run = make_run(f"hydra.searchpath=[file://{tmp_path}]", "wrappers=mine")
    assert run.wrappers == replace(make_run("wrappers=none").wrappers, name="standard")


def test_rainbow_takes_another_replay() -> None:
    """An ablation of its paper (Hessel et al. 2018, figure 3)."""
    assert make_run("algo=rainbow", "replay=uniform").replay == make_run("replay.buffer_size=1000000").replay
    assert make_run("algo=rainbow").replay == make_run("replay=rainbow", "replay.buffer_size=1000000").replay


def test_no_override_gives_the_baseline_of_the_book() -> None:
    run = make_run()
    assert run == make_run("experiment=baseline")
    assert (run.env.id, run.num_envs, run.parallelism.name) == ("PongNoFrameskip-v4", 1, "serial")
    assert (run.algo.batch_size, run.algo.steps_per_update, run.algo.n_step) == (32, 1, 1)
    assert (run.algo.learning_starts, run.algo.target_update_every, run.algo.gamma) == (10_000, 1_000, 0.99)
    assert (run.replay.buffer_size, run.optimizer.name, run.optimizer.lr) == (100_000, "adam", 1e-4)
    assert (run.exploration.start, run.exploration.final, run.exploration.decay_steps) == (1.0, 0.02, 100_000)
    assert (run.stop.reward_bound, run.stop.window, run.algo.loss) == (17, 100, "mse")


@pytest.mark.parametrize("num_envs", [1, 3, 6])
def test_n_environments_keep_the_samples_per_step_of_the_baseline(num_envs: int) -> None:
    run = make_run(f"num_envs={num_envs}")
    assert run.algo.batch_size == 32 * num_envs
    assert run.samples_per_step == 32


@pytest.mark.slow
def test_rungs_differ_from_the_baseline_in_what_they_name() -> None:
    assert not make_run("experiment=no_torch_no_grad").execution.no_grad
    assert make_run("experiment=n_envs").num_envs == 3
    process = make_run("experiment=process")
    assert (process.algo.batch_size, process.samples_per_step) == (128, None)
    tweaked = make_run("experiment=tweaked_n_envs").wrappers
    assert (tweaked.resizer, tweaked.noop_max, tweaked.max_pool, tweaked.stack) == ("pillow", 0, False, 2)
    assert make_run("experiment=tweaked_process").wrappers == tweaked
    chapter6 = make_run("experiment=chapter6_dqn")
    assert (chapter6.replay.buffer_size, chapter6.exploration.final, chapter6.stop.reward_bound) == (
        10_000,
        0.01,
        19,
    )


def documented() -> dict[str, dict[str, object]]:
    """The values under `here` in tables of the documentation: of each command line, which heads its table, by key."""
    rows: dict[str, dict[str, object]] = {}
    for page in ("ladder", "family"):
        command = None
        for line in (CONF.parent / "docs" / f"{page}.md").read_text().splitlines():
            cells = [cell.strip().strip("`") for cell in line.split("|")]
            if len(cells) != 6:
                command = None
            elif cells[3] == "here":
                command = cells[1]
                rows[command] = {}
            elif command is not None and cells[1] != "---":
                rows[command][cells[1]] = yaml.safe_load(cells[3])
    return rows


NUMBERS = documented()
LADDER = ["no_torch_no_grad", "n_envs", "process", "tweaked_n_envs", "tweaked_process", "chapter6_dqn"]


@cache
def values_of(overrides: str) -> dict[str, object]:
    return {key: value for key, value, _ in options.leaves(make_run(*overrides.split()))}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", NUMBERS)
def test_the_numbers_of_the_documentation_are_those_of_the_configuration(overrides: str) -> None:
    expected = NUMBERS[overrides]
    assert expected == {key: values_of(overrides)[key] for key in expected}


@pytest.mark.slow
@pytest.mark.parametrize("rung", LADDER)
def test_the_documentation_names_every_number_in_which_a_rung_differs_from_the_baseline(rung: str) -> None:
    baseline, values = values_of("experiment=baseline"), values_of(f"experiment={rung}")
    differs = {key for key in values if values[key] != baseline[key] and not key.startswith("experiment.")}
    differs -= {"env.reward_bound", "wrappers.name"}  # stop.reward_bound follows the one, the other is a label
    assert differs <= set(NUMBERS[f"experiment={rung}"])


@pytest.mark.parametrize("path", sorted((CONF / "algo").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_documentation_names_every_number_that_an_algorithm_brings(path: Path) -> None:
    brought = set()
    for name, node in yaml.safe_load(path.read_text()).items():
        if isinstance(node, dict):
            brought |= {f"{name}.{key}" for key, value in node.items() if value is not None}
        elif name != "defaults":
            brought.add(name)
    assert brought - {"algo.name"} <= set(NUMBERS[f"algo={path.stem}"])


@pytest.mark.parametrize("rung", ["process", "tweaked_process"])
def test_epsilon_of_the_process_rungs_passes_the_points_of_the_book_s_curves(rung: str) -> None:
    run = make_run(f"experiment={rung}")
    points = {0: 1.0, 60_000: 0.85, 110_000: 0.725, 210_000: 0.475, 392_000: 0.02, 400_000: 0.02}
    assert {step: epsilon_at(step, run) for step in points} == pytest.approx(points)


@pytest.mark.parametrize(
    ("stop", "steps"),
    [("stop.max_steps=null", 1_000_000), ("stop.max_steps=2000000", 200_000), ("stop.max_steps=5", 1)],
)
def test_epsilon_of_pqn_falls_over_a_tenth_of_the_run(stop: str, steps: int) -> None:
    assert make_run("algo=pqn", stop).exploration.decay_steps == steps
    assert make_run("algo=pqn", stop, "exploration.decay_steps=77").exploration.decay_steps == 77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "updates"),
    [
        ("experiment=speedrun", 6400),  # 819,200 steps, two epochs, 256 for an update
        ("experiment=speedrun algo.batch_size=128", 12800),
        ("experiment=speedrun algo.epochs=1", 3200),
        ("experiment=speedrun num_envs=32", 6400),
        ("experiment=speedrun algo.batch_size=1000", 3200),  # the 1024 of a rollout are two batches
        ("experiment=ppo", 156_250),
        ("num_envs=4 optimizer.lr_decay_steps=1000", 250),
        ("parallelism=process parallelism.samples_per_step=8 optimizer.lr_decay_steps=1000", 250),
        ("algo=a2c optimizer.lr_decay_steps=2400", 10),
        ("", 100_000),
    ],
)
def test_a_learning_rate_falls_over_agent_steps_whatever_the_batch_and_the_epochs(overrides: str, updates: int) -> None:
    assert make_run(*overrides.split()).decay_updates == pytest.approx(updates)


def preflight(*overrides: str) -> str | None:
    """The sentence a user would read, or None where nothing is wrong."""
    try:
        check_run(make_run(*overrides))
    except Exception as error:
        if is_user_error(error):
            return explain(error)
        raise
    return None


BAD = {
    "num_env=3": "num_env: there is no such option (nearest: num_envs, env).",
    "num_envs=-1": "num_envs=-1: must be at least 0.",
    "device=gpu experiment=speedrun": "device=gpu: choose one of auto, cpu, cuda, mps.",
    "device=tpu num_envs=0": "device=tpu: choose one of auto, cpu, cuda, mps.",
    "device=cpu execution=graph": "execution.graph=true: needs a CUDA device, and device=cpu is cpu here; use",
    "execution=graph algo=a3c parallelism=process": "the batches of algo=a3c are chosen on the host; those of algo=",
    "execution=graph replay.device=cpu": "execution.graph=true: draws batches on the GPU; use replay.device=auto",
    "device=cpu replay.device=cuda": "replay.device=cuda: device=cpu is cpu here, and experience is kept on the",
    "device=cpu execution.precision=tf32": "execution.precision=tf32: is arithmetic of a CUDA device; use fp32",
    "num_envs=abc": "num_envs=abc: must be a whole number.",
    "stop.max_steps=1.5": "stop.max_steps=1.5: must be a whole number or null.",
    "stop.max_steps=1e6.5": "stop.max_steps=1e6.5: must be a whole number or null.",
    "seed=true": "seed=true: must be a whole number.",
    "optimizer.lr=abc": "optimizer.lr=abc: must be a number.",
    "tracking.group=[a]": "tracking.group: must be text or null.",
    "model.hidden=3": "model.hidden: must be a list, as in [a,b].",
    "model.hidden=[1.5]": "model.hidden[0]=1.5: must be a whole number.",
    "parallelism.samples_per_step=[1]": "samples_per_step=[1]: must be a whole number or a number or text or null.",
    "env.kwargs=3": "env.kwargs: must be a mapping, as in {a: 1}.",
    "+num_envs=3": "+num_envs: is an option already; drop the +.",
    "seed=-1": "seed=-1: must be at least 0.",
    f"stop.window={10**19}": f"stop.window={10**19}: must be between -1000000000000 and 1000000000000.",
    f"algo.learning_starts={10**19}": "must be between -1000000000000 and 1000000000000.",
    "env=pongg": "env=pongg: there is no such option (nearest: pong); choose one of ",
    "env.id=ALE/Pnog-v5": "no registered Gymnasium environment has this name (nearest: ALE/Pong-v5,",
    "env.id=joust": "env.id=joust: no ALE game and no registered Gymnasium environment has this name",
    "env.id=nobody:Env-v0 wrappers=none": "env.id=nobody:Env-v0: could not be made (ModuleNotFoundError",
    "env=cartpole wrappers=standard": "wrappers.noop_max=30: needs an ALE game, and CartPole-v1 is not one",
    "env=cartpole backend=ale": "backend=ale: needs an ALE game, and CartPole-v1 is not one. Use backend=auto.",
    "env=cartpole backend=atari_warp": "backend=atari_warp: needs an ALE game, and CartPole-v1 is not one.",
    "backend=atari_warp wrappers.resize=200": "resizes to at most 160 here, and wrappers.resize=200 is larger",
    "backend=atari_warp wrappers.interpolation=bicubic": "atari_warp: resizes with wrappers.interpolation=area only,",
    "backend=atari_warp wrappers.resizer=pillow": "atari_warp: resizes with wrappers.resizer=cv2 only, not pillow. Use",
    "wrappers.crop=[] env.id=pnog": "env.id=pnog: no ALE game and no registered Gymnasium environment has this name",
    "env=cartpole wrappers=standard wrappers.crop=[]": "wrappers.noop_max=30: needs an ALE game",
    "wrappers.crop=[] wrappers.frame_skip=0": "wrappers.frame_skip=0: ",
    "wrappers.crop=[35]": "wrappers.crop=[35]: takes [top, bottom, left, right], the first row and that after the",
    "wrappers.crop=[35,35,0,160]": "wrappers.crop=[35, 35, 0, 160]: takes [top, bottom, left, right]",
    "wrappers.crop=[35,211,0,160]": "wrappers.crop=[35, 211, 0, 160]: images here have 210 rows and 160 columns.",
    "backend=atari_warp wrappers.crop=[0,251,0,160]": "wrappers.crop=[0, 251, 0, 160]: images here have 210 rows",
    "backend=atari_warp wrappers.crop=[0,80,0,90]": "resizes to at most 80 here, and wrappers.resize=84 is larger",
    "backend=ale wrappers.crop=[34,194,0,160]": "backend=ale: takes whole images, and wrappers.crop=[34, 194, 0, 160]",
    "env=cartpole wrappers=none model=mlp wrappers.crop=[0,9,0,9]": "wrappers.crop=[0, 9, 0, 9]: crops images, and",
    "wrappers.tap_frames=4": "wrappers.tap_frames=4: must be less than wrappers.frame_skip=4, the frames an",
    "wrappers.tap_frames=-1": "wrappers.tap_frames=-1: must be at least 0.",
    "backend=ale wrappers.tap_frames=2": "backend=ale: holds an action for all its frames, and wrappers.tap_frames=2",
    "env=cartpole wrappers.frame_skip=4 wrappers.tap_frames=2": "needs an ALE game, and CartPole-v1 is not",
    "algo=ppo algo.adaptive_kl_target_final=0.01": "algo.adaptive_kl_target=null, algo.adaptive_kl_target_final=0.01: ",
    "algo=ppo num_envs=2 algo.num_steps=32 algo.batch_size=64 algo.epochs=1 algo.adaptive_kl_target=0.01 "
    "algo.adaptive_kl_target_final=0.01": "algo.adaptive_kl_target=0.01: the one update of a rollout is measured",
    "algo=ppo parallelism=overlap num_envs=2 algo.num_steps=32 algo.batch_size=64 algo.epochs=1 "
    "algo.adaptive_kl_target=0.01 algo.adaptive_kl_target_final=0.01": "algo.adaptive_kl_target=0.01: the one update",
    "wrappers.stack=257": "wrappers.stack=257: must be at most 256.",
    "algo=ppo algo.target_kl=0": "algo.target_kl=0.0: must be more than 0.",
    "algo=ppo algo.adaptive_kl_target=0": "algo.adaptive_kl_target=0.0: must be more than 0.",
    "env=cartpole model=nature": "model=nature: takes images, and observations here are 4; use model=mlp.",
    "env=cartpole wrappers=none env.sticky_actions=0.1": "env.sticky_actions=0.1: CartPole-v1 is not an ALE game.",
    "env=cartpole wrappers=none env.mode=1": "env.mode=1: CartPole-v1 is not an ALE game.",
    "env.mode=2": "env.mode=2: ALE has no such mode of pong; it has 0, 1.",
    "env.difficulty=4": "env.difficulty=4: ALE has no such difficulty of pong; it has 0, 1, 2, 3.",
    "env.mode=1 backend=ale": "backend=ale: plays the usual mode of a game, and env.mode=1 asks for one. Use backend=",
    "env.id=adventure env.mode=1 backend=atari_warp": (
        "backend=atari_warp: mode=1: adventure does not support it. Choose one of 0. Use backend=auto."
    ),
    "env.id=name_this_game env.max_episode_frames=100 backend=atari_warp": "and env.max_episode_frames=100 ends it",
    "env.kwargs={a: 1}": "env.kwargs={'a': 1}: ALE games take env.sticky_actions",
    "env.id=MountainCarContinuous-v0 wrappers=none model=mlp": "only Discrete ones can be learnt",
    "algo=ppo algo.double=true": "algo.double=True: there is no such option of algo=ppo; it belongs to algo=dqn",
    "algo.clip_range=0.2": "algo.clip_range=0.2: there is no such option of algo=dqn; it belongs to algo=ppo.",
    "algo=ppo algo.clip_range=null": "algo.clip_range=null: needs a value.",
    "algo=ppo parallelism=process parallelism.transport=queue": "parallelism.transport=queue: carries single",
    "algo=pqn parallelism=process parallelism.samples_per_step=4": "samples_per_step=4: belongs to algorithms with",
    "algo=ppo num_envs=1": "algo.batch_size=256: must be at most 128",
    "algo=ppo parallelism=overlap num_envs=3": "num_envs=3: must be even",
    "algo=a2c model.dueling=true": "model.dueling=true: belongs to action values",
    "algo=a2c parallelism=process": "parallelism=process: algo=a2c learns in one process; use parallelism=serial, or ",
    "algo=a3c parallelism=serial": "parallelism=serial: algo=a3c needs parallelism=process; algo=a2c learns in one",
    "algo=q_learning": "algo=q_learning: needs numbered states, and PongNoFrameskip-v4 shows 1x84x84 values",
    "algo=q_learning env=cartpole": "algo=q_learning: needs numbered states, and CartPole-v1 shows 4 values",
    "algo=q_learning env=taxi num_envs=2": "algo=q_learning: takes one transition at a time, on the CPU",
    "algo=q_learning env=taxi parallelism=process": "algo=q_learning: takes one transition at a time, on the CPU",
    "algo=q_learning env=taxi wrappers.stack=2": "shows 500 values in stacks of 2",
    "algo=q_learning env=taxi algo.n_step=4": "there is no such option of algo=q_learning; it belongs",
    "algo=q_learning env=taxi device=auto": "algo=q_learning: takes one transition at a time, on the CPU",
    "parallelism.restart_actors=true": "parallelism.restart_actors=true: belongs to parallelism=process",
    "algo=ppo model.background=true": "algo.learning_starts=0: model.background=true is measured over these",
    "algo=ppo algo.batch_size=1": "algo.batch_size=1: algo.normalize_advantage=true needs at least 2.",
    "experiment=own_env algo=ppo": "(experiment=own_env may bring it): there is no such option of algo=ppo; it",
    "optimizer.lr=nan": "optimizer.lr=nan: must be a finite number.",
    "optimizer.lr=0": "optimizer.lr=0.0: must be more than 0.",
    "experiment=ppo stop.max_steps=20000000": "lr_decay_steps=10000000 agent steps nothing would be learnt, and stop",
    "algo=ppo optimizer.lr_final=0 stop.max_steps=9000000": "learnt, and stop.max_steps=9000000 brings more; raise",
    "optimizer.lr_decay_steps=0": "optimizer.lr_decay_steps=0: must be at least 1.",
    "experiment=process optimizer.lr_final=1e-5": "lr_final=1e-05: parallelism.samples_per_step=free leaves open how",
    "optimizer.lr_final=0": "lr_decay_steps=100000 agent steps nothing would be learnt, and stop.max_steps=null may",
    "optimizer=adamm": "optimizer=adamm: there is no such option (nearest: adam, radam, adamw)",
    "algo.loss=mae": "algo.loss=mae: choose one of mse, huber.",
    "algo.batch_size=200000": "algo.batch_size=200000: must be at most replay.buffer_size=100000.",
    "algo.learning_starts=200000": "algo.learning_starts=200000: must be at most replay.buffer_size=100000.",
    "algo.learning_starts=3": "algo.learning_starts=3: must be at least 7 for 1 environments, 4 frames and 1 steps.",
    "replay.buffer_size=10 algo.batch_size=5 algo.learning_starts=9": "replay.buffer_size=10: must be at least 14",
    "replay.buffer_size=100000000": "Use a smaller number.",
    "algo=a2c algo.batch_size=128": "algo.batch_size=128: algo=a2c makes one update of a whole rollout, ",
    "algo=a3c algo.batch_size=1000000000": "algo.batch_size=1000000000: needs ",
    "algo=pqn num_envs=4096 wrappers.resize=1024": "num_envs=4096: needs ",
    "execution.threads=100000": "execution.threads=100000: must be at most ",
    "backend=ale parallelism=overlap backend.threads=5000": "backend.threads=5000: must be at most ",
    "parallelism.samples_per_step=4": "parallelism.samples_per_step=4: belongs to parallelism=process",
    "parallelism=process parallelism.samples_per_step=none": "must be 'free' or a positive number.",
    "parallelism=process parallelism.samples_per_step=-1": "must be 'free' or a positive number.",
    "parallelism.num_actors=2": "parallelism.num_actors=2: belongs to parallelism=process",
    "parallelism=process device=mps": "device=mps: parallelism=process shares weights on cpu or cuda only.",
    "backend=ale wrappers.resizer=pillow": "backend=ale: resizes with wrappers.resizer=cv2 only, not pillow.",
    "backend=ale wrappers.resize=null": "backend=ale: resizes every image, and wrappers.resize=null keeps",
    "wrappers.resize=9": "model=nature: its convolutions do not fit observations of 4x9x9",
    "model.conv=[[1,2]]": "model.conv=[[1, 2]]: each layer is [filters, kernel, stride]",
    "stop.reward_bond=3": "stop.reward_bond: there is no such option (nearest: stop.reward_bound",
    "env=cartpole wrappers=none model=mlp wrappers.resize=84": "wrappers.resize=84: resizes images, and observations",
    "parallelism=process num_envs=16 replay.buffer_size=200 algo.learning_starts=150 algo.batch_size=8": "200: must be",
    "num_envs==3": "num_envs==3: cannot be read; give GROUP=OPTION or KEY=VALUE",
    "env.id=Ünïcode": "env.id=Ünïcode: cannot be read; give GROUP=OPTION or KEY=VALUE",
    "+foo=1": "foo: there is no such option.",
    "++foo=1": "foo: there is no such option.",
    "+algo.tau=0.03": "algo.tau=0.03: there is no such option (nearest: algo.name",
    "stop={max_steps:3,foo:1}": "stop.foo: there is no such option",
    "num_envs=1,2": "num_envs=1,2: a sweep over several values needs dqnspeed.train -m",
    "experiment=baseline,process": "experiment=baseline,process: a sweep over several values needs dqnspeed.train -m",
    "~env": "env.id: has no value. Give one: env.id=VALUE.",
    "model.hidden=[[1]]": "model.hidden=[[1]]: every layer needs at least 1 unit.",
    "hydra.searchpath=[file://CONF] env=odd": "env.idd: there is no such option, in the option file env/odd",
    "hydra.searchpath=[file://CONF] env=typed": "env.reward_bound=abc: must be a number or null, in the",
    "hydra.searchpath=[file://CONF] env=latin": "an option file: cannot be read ('utf-8' codec can't decode byte 0xff",
    "hydra.searchpath=[file://CONF] env=nul": "an option file: cannot be read (unacceptable character #x0000",
    "hydra.searchpath=[file://CONF] env=itself": "an option file: leads back to itself.",
    "hydra.searchpath=[file://CONF] env=to": "an option file: leads back to itself.",
    "hydra.searchpath=[file://CONF] env=anchor": "an option file: leads back to itself.",
    "hydra.searchpath=[file://CONF] env=list": "env/list: Merge error: list is not a subclass of EnvConfig",
    "hydra.searchpath=[file://CONF] env=broken": "/env/broken.yaml, line 4: expected ',' or ']'",
}


OWN_OPTIONS = {"odd": "idd: x", "typed": "reward_bound: abc", "broken": "id: [x", "list": ""}
OWN_FILES = {
    "latin": b"defaults:\n  - pong\nid: x #\xff\n",
    "nul": b"id: \0\n",
    "itself": b"defaults:\n  - itself\n",
    "to": b"defaults:\n  - fro\n",
    "fro": b"defaults:\n  - to\n",
    "anchor": b"id: &id [*id]\n",
}


@pytest.fixture(scope="module")
def own_options(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of option files with mistakes."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "env").mkdir()
    for name, line in OWN_OPTIONS.items():
        (folder / "env" / f"{name}.yaml").write_text(f"defaults:\n  - pong\n{line}\n" if line else "- a\n")
    for name, content in OWN_FILES.items():
        (folder / "env" / f"{name}.yaml").write_bytes(content)
    return str(folder)


@pytest.mark.parametrize("overrides", BAD)
def test_bad_input_gets_one_sentence(overrides: str, own_options: str) -> None:
    given = [overrides] if "kwargs" in overrides else overrides.replace("CONF", own_options).split(" ")
    sentence = preflight(*given)
    assert sentence is not None and BAD[overrides] in sentence
    assert "\n" not in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "bound"),
    [
        ("env=breakout", 31.8),
        ("env.id=ALE/Breakout-v5", 31.8),
        ("env.id=Breakout-v4", 31.8),
        ("env.id=breakout", 31.8),
        ("env=breakout env.id=ALE/Alien-v5", 6875),
        ("env=breakout env.id=ALE/Pong-v5", 17),
        ("env.id=CartPole-v1 wrappers=none model=mlp", 475),
        ("env.id=ALE/VideoPinball-v5", None),
        ("env.id=Acrobot-v1 wrappers=none model=mlp", None),
        ("env.id=ALE/VideoPinball-v5 env.reward_bound=9", 9),
        ("env=breakout stop.reward_bound=9", 9),
        ("env=breakout env.reward_bound=null", None),
        ("experiment=a3c", 18),
        ("experiment=a2c env.id=ALE/Pong-v5", 18),
        ("experiment=chapter6_dqn", 19),
        ("experiment=a3c env=breakout", 31.8),
        ("experiment=chapter6_dqn env.id=ALE/VideoPinball-v5", None),
        ("experiment=a3c env.reward_bound=5", 5),
        ("experiment=a3c stop.reward_bound=5", 5),
        ("experiment=own_env", None),
    ],
)
def test_a_bound_belongs_to_its_game(overrides: str, bound: float | None) -> None:
    assert make_run(*overrides.split(" ")).stop.reward_bound == bound


@pytest.mark.slow
def test_every_game_of_env_has_a_bound_and_every_bound_its_game() -> None:
    ids = re.findall(r"^ *id: (\S+)", "\n".join(path.read_text() for path in (CONF / "env").glob("*.yaml")), re.M)
    assert len(ids) == len(list((CONF / "env").glob("*.yaml")))
    assert {rom_of(env_id) or env_id for env_id in ids} == set(OmegaConf.load(CONF / "reward_bounds.yaml"))
    assert all(bound_of(env_id) is not None for env_id in ids)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "env.id=VideoPinball-v4 stop.max_steps=9",
            "for VideoPinball-v4; the run ends at stop.max_steps=9; stop.rewar",
        ),
        ("env.id=VideoPinball-v4", "the run ends when it is interrupted; stop.reward_bound=NUMBER sets one."),
        ("env.id=VideoPinball-v4 stop.reward_bound=null", ""),
        ("env.id=VideoPinball-v4 env.reward_bound=3", ""),
        ("env=breakout", ""),
    ],
)
def test_a_game_without_a_known_bound_is_reported(overrides: str, expected: str) -> None:
    given = overrides.split(" ")
    assert [expected in sentence for sentence in unbounded(make_run(*given), given)] == [True] * bool(expected)


@pytest.mark.parametrize("native", ["bf16", "fp32"])
def test_auto_chooses_the_precision_that_the_device_computes_in(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "best_precision", lambda device: native)
    compose = make_run.__wrapped__  # what is composed otherwise is kept
    assert compose("execution=lean").execution.precision == native
    assert compose("experiment=speedrun").execution.precision == native
    assert not list(emulated(compose("execution=lean")))
    slow = list(emulated(compose("execution.precision=bf16")))
    assert [sentence.startswith("execution.precision=bf16: ") for sentence in slow] == [True] * (native == "fp32")


@pytest.mark.parametrize("chosen", ["auto", "ale"])
@pytest.mark.parametrize("installed", [True, False])
def test_auto_says_that_the_package_of_a_faster_backend_is_missing(
    installed: bool, chosen: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "atari_warp", None)
    with initialize_config_dir(CONF_DIR, version_base="1.3"):
        cfg = compose("config", overrides=[f"backend={chosen}"], return_hydra_config=True)
        [(_, run, _)] = check_jobs([(Job("", []), cfg)])
    assert run.backend.name == ("atari_warp" if installed and chosen == "auto" else "ale")
    said = [message.startswith("backend=auto: takes backend=ale, which is slower. ") for message in caplog.messages]
    assert said == [True] * (chosen == "auto" and not installed)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "Breakout-v4", "video_pinball", "BreakoutNoFrameskip-v4"])
def test_any_ale_game_can_be_named_by_id_or_rom(game: str) -> None:
    assert preflight(f"env.id={game}", "stop.reward_bound=null") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["num_envs=-1"],
        ["backend=ale", "env.id=CartPole-v1"],
        ["-m", "num_envs=1,-1"],
        ["hydra.run.dir=/dev/null"],
        ["hydra.run.dir="],
        ["-m", "hydra.sweep.dir=/dev/null/x", "seed=0,1"],
        ["-m", "hydra.sweep.subdir=same", "seed=0,1"],
        ["-m", "seed=range(0)"],
        ["--foo"],
        ["--resolve"],
        ["--config-name", "mine"],
        ["env=null"],
    ],
)
def test_bad_input_leaves_nothing_behind(
    cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, overrides: list[str]
) -> None:
    result = cli(*overrides)
    assert result.returncode == 2
    assert result.stderr.startswith("dqnspeed: ") and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "algo=ppo exploration.final=0.1",
            "exploration.final=0.1: does nothing with algo=ppo; exploration is for algo=",
        ),
        ("algo=pqn replay=uniform", "replay=uniform: does nothing with algo=pqn; replay is for algo="),
        ("algo=q_learning env=taxi optimizer.lr=1", "optimizer.lr=1: does nothing with algo=q_learning; optimizer is"),
        ("algo=dqn exploration.final=0.1 replay=uniform optimizer.lr=1 model.dueling=true", ""),
        ("algo=a2c model=small optimizer=rmsprop num_envs=2", ""),
        ("algo.steps_per_update=2 num_envs=2", ""),
    ],
)
def test_options_that_the_algorithm_does_not_use_are_reported(overrides: str, expected: str) -> None:
    given = overrides.split(" ")
    sentences = list(unused(make_run(*given), given))
    assert [expected in sentence for sentence in sentences] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("env=frozen_lake", "FrozenLake-v1: the numbers of algo=dqn are those for Atari games, far too slow for this"),
        ("env=frozen_lake seed=1", "; algo=q_learning env=frozen_lake learns it."),
        ("env=taxi", "; algo=q_learning env=taxi eval.every_steps=5000 learns it."),
        ("env=cliff_walking", "; algo=q_learning env=cliff_walking eval.every_steps=5000 learns it."),
        ("env=cartpole", "; experiment=cartpole learns it."),
        ("env=cartpole env.id=LunarLander-v3", ""),
        ("env=cartpole optimizer.lr=1e-3", ""),
        ("env=breakout", ""),
        ("env=breakout algo=rainbow", ""),
        ("experiment=own_env", ""),
        (
            "env=cartpole env.id=LunarLander-v3 algo=c51",
            "algo=c51: returns below -10 and above 10 are taken for these, and rewards are",
        ),
        ("env=cartpole env.id=LunarLander-v3 algo=c51 algo.value_max=200", ""),
        ("experiment=cartpole algo=c51", ""),
        ("experiment=cartpole algo=rainbow env.id=LunarLander-v3", "returns below 0 and above 100 are taken for these"),
    ],
)
def test_a_game_that_is_not_ataris_gets_a_line_that_learns_it(overrides: str, expected: str) -> None:
    sentences = list(untuned(make_run(*overrides.split()), overrides.split()))
    assert [expected in sentence for sentence in sentences] == [True] * bool(expected)


def test_that_line_is_printed_before_a_run_begins(caplog: pytest.LogCaptureFixture) -> None:
    with initialize_config_dir(CONF_DIR, version_base="1.3"):
        check_jobs([(Job("", ["env=frozen_lake"]), compose("config", overrides=["env=frozen_lake"]))])
    assert [message.endswith("algo=q_learning env=frozen_lake learns it.") for message in caplog.messages] == [True]


@pytest.mark.parametrize("preset", ["cartpole", "cliff_walking", "frozen_lake", "taxi"])
def test_the_line_that_a_preset_names_composes_to_its_game_with_other_numbers(preset: str) -> None:
    run = make_run(f"env={preset}")
    better = make_run(*run.env.recipe.split())
    assert better.env == run.env and better.algo != run.algo
    assert list(untuned(better, run.env.recipe.split())) == []


@pytest.mark.slow
def test_help_explains_every_group_and_ten_overrides(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = cli("--help").stdout
    for group in GROUPS:
        assert f"\n  {group} " in shown, group
    ten = shown.split("ten overrides people use most")[1].split("Groups:")[0]
    assert len([line for line in ten.splitlines() if line.strip()]) == 10


@pytest.mark.slow
def test_options_of_a_users_own_are_found(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    own = tmp_path / "mine" / "wrappers"
    own.mkdir(parents=True)
    (own / "six_frames.yaml").write_text("defaults:\n  - standard\nstack: 6\n")
    shown = cli("--config-dir", str(tmp_path / "mine"), "wrappers=six_frames", "--cfg", "job").stdout
    assert "stack: 6" in shown and "noop_max: 30" in shown


@pytest.mark.parametrize(
    ("overrides", "backend"),
    [
        ("env.id=pong", "atari_warp"),
        ("env.id=pong env.mode=1 env.difficulty=3", "atari_warp"),
        ("env.id=adventure env.mode=1", "gymnasium"),
        ("wrappers.resize=200", "ale"),
        ("wrappers=tweaked", "gymnasium"),
        ("env=cartpole model=mlp", "gymnasium"),
        ("env.id=pnog", "gymnasium"),  # refused later, with the nearest ids
    ],
)
def test_auto_takes_the_fastest_backend_that_can_play(overrides: str, backend: str) -> None:
    assert make_run("backend=auto", *overrides.split()).backend.name == backend


def test_auto_takes_ale_without_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "atari_warp", None)  # as if its extra was not installed
    assert dqnspeed.compose(["backend=auto"]).backend.name == "ale"


def test_every_backend_that_auto_considers_has_a_priority_of_its_own() -> None:
    found = [kind.priority for kind in registry.GROUPS["backend"].options.values() if kind.priority is not None]
    assert len(set(found)) == len(found) == 3


@pytest.mark.parametrize("key", ["threads=2", "device=cpu", "reset_pool=0", "compile_rom=false"])
def test_options_of_a_backend_are_refused_by_the_others(key: str) -> None:
    for backend in ("auto", "gymnasium"):
        refused = rf"backend\.{key.partition('=')[0]}=.*: there is no such option of backend={backend}; it belongs to"
        with pytest.raises(options.ConfigError, match=refused):
            make_run(f"backend={backend}", f"backend.{key}")


def test_cropping_by_the_rule_keeps_the_field_of_play_and_nothing_that_follows_the_score() -> None:
    top, bottom, left, right = make_run("wrappers.crop=[]").wrappers.crop or ()
    assert 23 < top < 34 and 194 < bottom <= 199 and left <= 12 and right >= 158  # below the score, with both paddles
    small = make_run("wrappers.crop=[]", "env=breakout", "wrappers.resize=160").wrappers.crop
    assert small is not None and small[2:] == [0, 160] and small[0] < 30
    assert make_run("wrappers.crop=[]", "env=cartpole", "wrappers=none", "model=mlp").wrappers.crop is None


def test_the_part_that_changes_is_looked_for_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = make_run("wrappers.crop=[]").wrappers.crop
    monkeypatch.setattr("dqnspeed.envs.crop.make_vector_env", None)
    assert dqnspeed.compose(["wrappers.crop=[]", "seed=7"]).wrappers.crop == found


def test_what_a_rule_chooses_by_the_game_is_no_change_of_the_rung() -> None:
    run = make_run("experiment=speedrun", "env=breakout", "num_envs=8")
    assert run.wrappers.crop and changed(run, []) == {"env.id", "env.reward_bound", "num_envs", "stop.reward_bound"}


def test_auto_takes_gymnasium_to_crop_or_tap_without_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "atari_warp", None)
    for line in ("wrappers.crop=[34,194,0,160]", "wrappers.tap_frames=2"):
        assert dqnspeed.compose(["backend=auto", line]).backend.name == "gymnasium"


LADDER = sorted(f"ladder/{path.stem}" for path in (CONF / "experiment" / "ladder").glob("*.yaml"))


def test_the_ladder_leads_from_the_baseline_to_the_speedrun() -> None:
    first, last = make_run(f"experiment={LADDER[0]}"), make_run(f"experiment={LADDER[-1]}")
    assert replace(first, experiment=make_run().experiment) == make_run()
    assert replace(last, experiment=make_run("experiment=speedrun").experiment) == make_run("experiment=speedrun")


@pytest.mark.parametrize(("below", "rung"), [*itertools.pairwise(LADDER)])
def test_a_rung_of_the_ladder_adds_a_trick_to_the_one_before(below: str, rung: str) -> None:
    before, run = make_run(f"experiment={below}"), make_run(f"experiment={rung}")
    assert run.experiment.name == rung and f"/experiment/{below}" in (CONF / f"experiment/{rung}.yaml").read_text()
    assert set(run.experiment.kind) == set(changes.kinds(before.experiment.kind, changes.differences(run, before)))


def test_a_toy_is_what_its_line_composes_to() -> None:
    line = ["algo=ppo", "wrappers=standard", "num_envs=2", "seed=4", "env.kwargs={length: 3}"]
    assert make_toy(*line) == make_run(*TOY, *line)
