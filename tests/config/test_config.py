from __future__ import annotations

import itertools
import math
import re
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import get_type_hints

import hydra
import pytest
import yaml
from conftest import TOY, Cli, compose, composed_config, make_run, mostly_integration
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
QUICK_OPTIONS = [option for option in OPTIONS if not option.startswith(("env=", "experiment=")) or "pong" in option]


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted({path.stem for path in (CONF / "algo").glob("*.yaml")} - {"q_learning"}))
def test_cartpole_takes_every_algorithm_but_a_table(algo: str) -> None:
    line = ["experiment=cartpole", f"algo={algo}"]
    run, given = make_run(*line), make_run(*line, "algo.gamma=0.5", "optimizer.lr=3e-5")
    assert preflight(*line) is None
    assert (run.algo.name, run.env.id, run.model.name, run.stop.reward_bound) == (algo, "CartPole-v1", "mlp", 475)
    assert run.optimizer.lr > make_run(f"algo={algo}").optimizer.lr
    assert (given.algo.gamma, given.optimizer.lr) == (0.5, 3e-5)  # typed values win


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
    with pytest.raises(options.ConfigError, match=r"numbers=cartpole/pp0: there is no such option \(nearest: "):
        dqnspeed.compose(["experiment=cartpole", "algo=ppo", "numbers=cartpole/pp0"])


@pytest.mark.slow
@pytest.mark.parametrize("option", mostly_integration(OPTIONS, *QUICK_OPTIONS))
def test_every_option_composes_and_has_every_number_of_its_kind(option: str) -> None:
    group = option.partition("=")[0]
    config, run = composed_config(option), make_run(option)
    if group == "experiment":
        assert option == f"experiment={run.experiment.name}"
        assert run.experiment.kind and set(run.experiment.kind) <= set(KINDS)
        return
    node = config[group]
    kind = class_of(group, node.name) if group in registry.GROUPS else get_type_hints(RunConfig)[group]
    assert OmegaConf.get_type(node) is kind
    assert {key for key in node if not OmegaConf.is_missing(node, key)} == {f.name for f in fields(kind)}


@pytest.mark.parametrize(("group", "option"), [("model", "nature"), ("exploration", "linear"), ("wrappers", "none")])
def test_an_option_of_the_user_s_own_need_not_name_its_schema(group: str, option: str, tmp_path: Path) -> None:
    (tmp_path / group).mkdir()
    numbers = (CONF / group / f"{option}.yaml").read_text().partition("name: ")[2]
    (tmp_path / group / "mine.yaml").write_text(f"name: {numbers}")
    assert make_run(f"hydra.searchpath=[file://{tmp_path}]", f"{group}=mine") == make_run(f"{group}={option}")


def test_no_override_gives_the_baseline_of_the_book() -> None:
    run = make_run()
    assert run == make_run("experiment=baseline")
    assert (run.env.id, run.num_envs, run.parallelism.name) == ("PongNoFrameskip-v4", 1, "serial")
    assert (run.algo.batch_size, run.algo.steps_per_update, run.algo.n_step) == (32, 1, 1)
    assert (run.algo.learning_starts, run.algo.target_update_every, run.algo.gamma) == (10_000, 1_000, 0.99)
    assert (run.replay.buffer_size, run.optimizer.name, run.optimizer.lr) == (100_000, "adam", 1e-4)
    assert (run.exploration.start, run.exploration.final, run.exploration.decay_steps) == (1.0, 0.02, 100_000)
    assert (run.stop.reward_bound, run.stop.window, run.algo.loss) == (17, 100, "mse")
    more = make_run("num_envs=3")
    assert (more.algo.batch_size, more.samples_per_step) == (96, 32)


def cells_of(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.split("|")[1:-1]]


def algorithms_documented() -> dict[str, dict[str, object]]:
    """The values under `here` in tables of the documentation: of each command line, which heads its table, by key."""
    rows: dict[str, dict[str, object]] = {}
    command = None
    for line in (CONF.parent / "docs" / "reference" / "algorithms.md").read_text().splitlines():
        cells = cells_of(line)
        if len(cells) != 4:
            command = None
        elif cells[2] == "here":
            command = cells[0]
            rows[command] = {}
        elif command is not None and cells[0] != "---":
            rows[command][cells[0]] = yaml.safe_load(cells[2])
    return rows


def rungs_documented() -> dict[str, dict[str, object]]:
    """The values in the table of rungs, a column each; an empty cell has the value of the baseline, the first."""
    page = (CONF.parent / "docs" / "explanation" / "ladder.md").read_text()
    [(head, lines)] = re.findall(r"^(\| option \|.*)\n\|-.*\n((?:\|.*\n)+)", page, re.M)
    rows: dict[str, dict[str, object]] = {f"experiment={rung}": {} for rung in cells_of(head)[1:]}
    for key, usual, *others in map(cells_of, lines.splitlines()):
        for values, value in zip(rows.values(), [usual, *others], strict=True):
            values[key] = yaml.safe_load(value or usual)
    return rows


NUMBERS = {**rungs_documented(), **algorithms_documented()}
RUNGS_OF_THE_BOOK = ["no_torch_no_grad", "n_envs", "process", "tweaked_n_envs", "tweaked_process", "chapter6_dqn"]


@cache
def values_of(overrides: str) -> dict[str, object]:
    return {key: value for key, value, _ in options.leaves(make_run(*overrides.split()))}


@pytest.mark.parametrize("overrides", NUMBERS)
def test_the_numbers_of_the_documentation_are_those_of_the_configuration(overrides: str) -> None:
    expected = NUMBERS[overrides]
    assert expected == {key: values_of(overrides)[key] for key in expected}


@pytest.mark.parametrize("rung", RUNGS_OF_THE_BOOK)
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


def test_epsilon_of_the_process_rung_passes_the_points_of_the_book_s_curve() -> None:
    run = make_run("experiment=process")
    points = {0: 1.0, 60_000: 0.85, 110_000: 0.725, 210_000: 0.475, 392_000: 0.02, 400_000: 0.02}
    assert {step: epsilon_at(step, run) for step in points} == pytest.approx(points)


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("stop.max_steps=null", 1_000_000),
        ("stop.max_steps=2000000", 200_000),
        ("exploration.decay_steps=77", 77),
    ],
)
def test_epsilon_of_pqn_falls_over_a_tenth_of_the_run(line: str, steps: int) -> None:
    assert make_run("algo=pqn", line).exploration.decay_steps == steps


@pytest.mark.parametrize(
    ("overrides", "updates"),
    [
        ("experiment=speedrun", 6400),  # 819,200 steps, two epochs, 256 for an update
        ("experiment=speedrun num_envs=32", 6400),
        ("experiment=speedrun algo.batch_size=1000", 3200),  # the 1024 of a rollout are two batches
        ("parallelism=process parallelism.samples_per_step=8 optimizer.lr_decay_steps=1000", 250),
        ("algo=a2c optimizer.lr_decay_steps=2400", 10),
        ("algo=a2c optimizer.lr_decay_steps=null stop.max_steps=2400", 10),
        ("algo=a2c optimizer.lr_decay_steps=null stop.max_minutes=1", math.inf),  # by the clock
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
    "env.max_episode_frames=10000000000": "env.max_episode_frames=10000000000: must be at most 2147483647.",
    "eval.noop_max=2000000": "eval.noop_max=2000000: must be at most 1048576.",
    "~replay": "replay: has no option; a configuration of your own begins with defaults: [config, _self_]",
    "num_env=3": "num_env: there is no such option (nearest: num_envs, env).",
    "num_envs=-1": "num_envs=-1: must be at least 0.",
    "device=gpu experiment=speedrun": "device=gpu: choose one of auto, cpu, cuda, mps.",
    "device=cpu execution=graph": "execution.graph=true: needs a CUDA device, and device=cpu is cpu here; use",
    "execution=graph algo=a3c parallelism=process": "the batches of algo=a3c are chosen on the host; those of algo=",
    "execution=graph replay.device=cpu": "execution.graph=true: draws batches on the GPU; use replay.device=auto",
    "device=cpu replay.device=cuda": "replay.device=cuda: device=cpu is cpu here, and experience is kept on the",
    "device=cpu execution.precision=tf32": "execution.precision=tf32: is arithmetic of a CUDA device; use fp32",
    "stop.max_steps=1.5": "stop.max_steps=1.5: must be a whole number or null.",
    "env.kwargs=3": "env.kwargs: must be a mapping, as in {a: 1}.",
    "+num_envs=3": "+num_envs: is an option already; drop the +.",
    f"stop.window={10**19}": f"stop.window={10**19}: must be between -1000000000000 and 1000000000000.",
    "env=cartpole wrappers=none model=mlp tracking.video_every=5": "tracking.video_every=5: records what the agent",
    "env=pongg": "env=pongg: there is no such option (nearest: pong); choose one of ",
    "env.id=ALE/Pnog-v5": "no registered Gymnasium environment has this name (nearest: ALE/Pong-v5,",
    "env.id=joust": "env.id=joust: no ALE game and no registered Gymnasium environment has this name",
    "env.id=nobody:Env-v0 wrappers=none": "env.id=nobody:Env-v0: could not be made (ModuleNotFoundError",
    "env=cartpole wrappers=standard": "wrappers.noop_max=30: needs an ALE game, and CartPole-v1 is not one",
    "env=cartpole wrappers=standard backend=auto": "wrappers.noop_max=30: needs an ALE game, and CartPole-v1 is not",
    "backend=atari_warp wrappers.resizer=pillow": "atari_warp: resizes with wrappers.resizer=cv2 only, not pillow. Use",
    "wrappers.crop=[35,211,0,160]": "wrappers.crop=[35, 211, 0, 160]: images here have 210 rows and 160 columns.",
    "backend=ale wrappers.crop=[34,194,0,160]": "backend=ale: takes whole images, and wrappers.crop=[34, 194, 0, 160]",
    "env=cartpole wrappers=none model=mlp wrappers.crop=[0,9,0,9]": "wrappers.crop=[0, 9, 0, 9]: crops images, and",
    "wrappers.tap_frames=4": "wrappers.tap_frames=4: must be less than wrappers.frame_skip=4, the frames an",
    "algo=ppo algo.adaptive_kl_target_final=0.01": "algo.adaptive_kl_target=null, algo.adaptive_kl_target_final=0.01: ",
    "env=cartpole model=nature": "model=nature: takes images, and observations here are 4; use model=mlp.",
    "env=cartpole wrappers=none env.sticky_actions=0.1": "env.sticky_actions=0.1: CartPole-v1 is not an ALE game.",
    "env.mode=2": "env.mode=2: ALE has no such mode of pong; it has 0, 1.",
    "env.id=adventure env.mode=1 backend=atari_warp": (
        "backend=atari_warp: mode=1: adventure has mode 0 here. Choose one, or use ale-py. Use backend=auto."
    ),
    "env.id=name_this_game env.max_episode_frames=100 backend=atari_warp": "and env.max_episode_frames=100 ends it",
    "env.kwargs={a: 1}": "env.kwargs={'a': 1}: ALE games take env.sticky_actions",
    "env.id=MountainCarContinuous-v0 wrappers=none model=mlp": "only Discrete ones can be learnt",
    "algo=ppo algo.double=true": "algo.double=True: there is no such option of algo=ppo; it belongs to algo=dqn",
    "algo=ppo algo.clip_range=null": "algo.clip_range=null: needs a value.",
    "algo=ppo parallelism=process parallelism.transport=queue": "parallelism.transport=queue: carries single",
    "algo=pqn parallelism=process parallelism.samples_per_step=4": "samples_per_step=4: belongs to algorithms with",
    "algo=ppo num_envs=1": "algo.batch_size=256: must be at most 128",
    "algo=ppo parallelism=overlap num_envs=3": "num_envs=3: must be even",
    "algo=a2c model.dueling=true": "model.dueling=true: belongs to action values",
    "algo=a2c parallelism=process": "parallelism=process: algo=a2c learns in one process; use parallelism=serial, or ",
    "algo=a3c parallelism=serial": "parallelism=serial: algo=a3c needs parallelism=process; algo=a2c learns in one",
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
    "algo=ppo optimizer.lr_final=0 stop.max_steps=9000000": "learnt, and stop.max_steps=9000000 brings more; raise",
    "experiment=process optimizer.lr_final=1e-5": "lr_final=1e-05: parallelism.samples_per_step=free leaves open how",
    "optimizer.lr_final=0": "lr_decay_steps=100000 agent steps nothing would be learnt, and stop.max_steps=null may",
    "algo.batch_size=200000": "algo.batch_size=200000: must be at most replay.buffer_size=100000.",
    "algo.learning_starts=3": "algo.learning_starts=3: must be at least 7 for 1 environments, 4 frames and 1 steps.",
    "replay.buffer_size=10 algo.batch_size=5 algo.learning_starts=9": "replay.buffer_size=10: must be at least 14",
    "replay.buffer_size=100000000": "Use a smaller number.",
    "algo=a2c algo.batch_size=128": "algo.batch_size=128: algo=a2c makes one update of a whole rollout, ",
    "algo=pqn num_envs=4096 wrappers.resize=1024": "num_envs=4096: needs ",
    "execution.threads=100000": "execution.threads=100000: must be at most ",
    "parallelism.samples_per_step=4": "parallelism.samples_per_step=4: belongs to parallelism=process",
    "parallelism=process parallelism.samples_per_step=none": "must be 'free' or a positive number.",
    "parallelism.num_actors=2": "parallelism.num_actors=2: belongs to parallelism=process",
    "parallelism=process device=mps": "device=mps: parallelism=process shares weights on cpu or cuda only.",
    "model.conv=[[1,2]]": "model.conv=[[1, 2]]: each layer is [filters, kernel, stride]",
    "env=cartpole wrappers=none model=mlp wrappers.resize=84": "wrappers.resize=84: resizes images, and observations",
    "num_envs==3": "num_envs==3: cannot be read; give GROUP=OPTION or KEY=VALUE",
    "+foo=1": "foo: there is no such option.",
    "num_envs=1,2": "num_envs=1,2: a sweep over several values needs dqnspeed.train -m",
    "~env": "env.id: has no value. Give one: env.id=VALUE.",
    "model.hidden=[[1]]": "model.hidden=[[1]]: every layer needs at least 1 unit.",
    "hydra.searchpath=[file://CONF] env=odd": "env.idd: there is no such option, in the option file env/odd",
    "hydra.searchpath=[file://CONF] env=typed": "env.reward_bound=abc: must be a number or null, in the",
    "hydra.searchpath=[file://CONF] env=latin": "an option file: cannot be read ('utf-8' codec can't decode byte 0xff",
    "hydra.searchpath=[file://CONF] env=nul": "an option file: cannot be read (unacceptable character #x0000",
    "hydra.searchpath=[file://CONF] env=itself": "an option file: leads back to itself.",
    "hydra.searchpath=[file://CONF] env=anchor": "an option file: leads back to itself.",
    "hydra.searchpath=[file://CONF] env=broken": "/env/broken.yaml, line 4: expected ',' or ']'",
}


OWN_FILES = {
    "odd": b"defaults:\n  - pong\nidd: x\n",
    "typed": b"defaults:\n  - pong\nreward_bound: abc\n",
    "broken": b"defaults:\n  - pong\nid: [x\n",
    "latin": b"defaults:\n  - pong\nid: x #\xff\n",
    "nul": b"id: \0\n",
    "itself": b"defaults:\n  - itself\n",
    "anchor": b"id: &id [*id]\n",
}


@pytest.fixture(scope="module")
def own_options(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of option files with mistakes."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "env").mkdir()
    for name, content in OWN_FILES.items():
        (folder / "env" / f"{name}.yaml").write_bytes(content)
    return str(folder)


@pytest.mark.parametrize("overrides", BAD)
def test_bad_input_gets_one_sentence(overrides: str, own_options: str) -> None:
    given = [overrides] if "kwargs" in overrides else overrides.replace("CONF", own_options).split(" ")
    sentence = preflight(*given)
    assert sentence is not None and BAD[overrides] in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("overrides", "bound"),
    [
        ("env=breakout", 31.8),
        ("env=breakout env.id=ALE/Alien-v5", 6875),
        ("env.id=CartPole-v1 wrappers=none model=mlp", 475),
        ("env.id=ALE/VideoPinball-v5", None),
        ("env.id=ALE/VideoPinball-v5 env.reward_bound=9", 9),
        ("env=breakout stop.reward_bound=9", 9),
        ("env=breakout env.reward_bound=null", None),
        ("experiment=a2c env.id=ALE/Pong-v5", 18),
        ("experiment=own_env", None),
    ],
)
def test_a_bound_belongs_to_its_game(overrides: str, bound: float | None) -> None:
    assert make_run(*overrides.split(" ")).stop.reward_bound == bound


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
        ("env=breakout", ""),
    ],
)
def test_a_game_without_a_known_bound_is_reported(overrides: str, expected: str) -> None:
    given = overrides.split(" ")
    assert [expected in sentence for sentence in unbounded(make_run(*given), given)] == [True] * bool(expected)


@pytest.mark.parametrize("native", ["bf16", "fp32"])
def test_auto_chooses_the_precision_that_the_device_computes_in(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "best_precision", lambda device: native)

    def compose(line: str) -> RunConfig:
        return from_hydra(composed_config(line))  # make_run() would return an earlier answer

    assert compose("execution=lean").execution.precision == native
    assert not list(emulated(compose("execution=lean")))
    slow = list(emulated(compose("execution.precision=bf16")))
    assert [sentence.startswith("execution.precision=bf16: ") for sentence in slow] == [True] * (native == "fp32")


@pytest.mark.parametrize("found", [["g++"], []])
def test_updates_are_compiled_by_rule_if_there_is_a_compiler(found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "compilers", lambda kind: found)
    chosen = from_hydra(composed_config("execution.compile=null", "device=cpu"))  # make_run() would answer as before
    assert chosen.execution.compile is bool(found)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "Breakout-v4", "video_pinball", "BreakoutNoFrameskip-v4"])
def test_any_ale_game_can_be_named_by_id_or_rom(game: str) -> None:
    assert preflight(f"env.id={game}", "stop.reward_bound=null") is None


@pytest.mark.parametrize(
    "line",
    [
        "num_envs=-1",
        "-m num_envs=1,-1",
        "hydra.run.dir=/dev/null",
        "-m hydra.sweep.dir=/dev/null/x seed=0,1",
        "-m hydra.sweep.subdir=same seed=0,1",
        "--foo",
    ],
)
def test_bad_input_leaves_nothing_behind(line: str, cli: Cli, tmp_path: Path) -> None:
    result = cli(*line.split())
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
        ("env=cartpole", "; experiment=cartpole learns it."),
        ("env=cartpole env.id=LunarLander-v3", ""),
        ("env=breakout", ""),
        (
            "env=cartpole env.id=LunarLander-v3 algo=c51",
            "algo=c51: returns below -10 and above 10 are taken for these, and rewards are",
        ),
        ("experiment=cartpole algo=rainbow env.id=LunarLander-v3", "returns below 0 and above 100 are taken for these"),
    ],
)
def test_a_game_that_is_not_ataris_gets_a_line_that_learns_it(overrides: str, expected: str) -> None:
    sentences = list(untuned(make_run(*overrides.split()), overrides.split()))
    assert [expected in sentence for sentence in sentences] == [True] * bool(expected)


def test_that_line_is_printed_before_a_run_begins(caplog: pytest.LogCaptureFixture) -> None:
    check_jobs([(Job("", ["env=frozen_lake"]), compose("env=frozen_lake"))])
    assert [message.endswith("algo=q_learning env=frozen_lake learns it.") for message in caplog.messages] == [True]


@pytest.mark.parametrize("preset", ["cartpole", "cliff_walking", "frozen_lake", "taxi"])
def test_the_line_that_a_preset_names_composes_to_its_game_with_other_numbers(preset: str) -> None:
    run = make_run(f"env={preset}")
    better = make_run(*run.env.recipe.split())
    assert better.env == run.env and better.algo != run.algo
    assert list(untuned(better, run.env.recipe.split())) == []


def test_help_explains_every_group_and_ten_overrides(cli: Cli) -> None:
    shown = cli("--help").stdout
    for group in GROUPS:
        assert f"\n  {group} " in shown, group
    ten = shown.split("ten overrides people use most")[1].split("Groups and")[0]
    assert len([line for line in ten.splitlines() if line.strip()]) == 10


@pytest.mark.parametrize(
    ("overrides", "backend"),
    [
        ("env.id=pong", "atari_warp"),
        ("env.id=adventure env.mode=1", "gymnasium"),
        ("wrappers.resize=200", "atari_warp"),
        ("wrappers=tweaked", "gymnasium"),
        ("env.id=pnog", "gymnasium"),  # refused later, with the nearest ids
    ],
)
def test_auto_takes_the_fastest_backend_that_can_play(overrides: str, backend: str) -> None:
    assert make_run("backend=auto", *overrides.split()).backend.name == backend


@pytest.mark.parametrize(
    ("overrides", "backend"),
    [
        ("backend=auto", "ale"),
        ("backend=auto wrappers.crop=[34,194,0,160]", "gymnasium"),
        ("backend=auto wrappers.tap_frames=2", "gymnasium"),
        ("backend=ale", "ale"),
    ],
)
def test_without_the_emulator_auto_takes_the_next_backend_and_says_so(
    overrides: str, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "atari_warp", None)
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        cfg = hydra.compose("config", overrides=overrides.split(), return_hydra_config=True)
        [(_, run, _)] = check_jobs([(Job("", []), cfg)])
    assert run.backend.name == backend
    said = [message.startswith(f"backend=auto: takes backend={backend}, which is") for message in caplog.messages]
    assert any(said) == overrides.startswith("backend=auto")


@pytest.mark.parametrize("backend", ["auto", "gymnasium"])
def test_options_of_a_backend_are_refused_by_the_others(backend: str) -> None:
    refused = rf"backend\.reset_pool=.*: there is no such option of backend={backend}; it belongs to"
    with pytest.raises(options.ConfigError, match=refused):
        make_run(f"backend={backend}", "backend.reset_pool=0")


def test_cropping_by_the_rule_keeps_the_field_of_play_and_nothing_that_follows_the_score() -> None:
    top, bottom, left, right = make_run("wrappers.crop=[]").wrappers.crop or ()
    assert 23 < top < 34 and 194 < bottom <= 199 and left <= 12 and right >= 158  # below the score, with both paddles
    assert make_run("wrappers.crop=[]", "env=cartpole", "wrappers=none", "model=mlp").wrappers.crop is None


def test_what_a_rule_chooses_by_the_game_is_no_change_of_the_rung() -> None:
    run = make_run("experiment=speedrun", "env=breakout", "num_envs=8")
    assert run.wrappers.crop and changed(run, []) == {"env.id", "env.reward_bound", "num_envs", "stop.reward_bound"}


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


def test_the_tests_compose_what_hydra_does() -> None:
    line = [*TOY, "algo=ppo", "wrappers=standard", "num_envs=2", "seed=4", "env.kwargs={length: 3}"]
    assert make_run(*line) == from_hydra(compose(*line))
