"""Options that other packages bring: the example, its documentation, and plugins that fail."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import forked
import numpy as np
import pytest
import torch
from conftest import TESTS, environment, make_run, make_toy
from omegaconf import OmegaConf

import dqnspeed
from dqnspeed.algorithms import make_learner
from dqnspeed.buffers import Batch, Transitions
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.config import registry
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import EnvSpec, describe, make_vector_env
from dqnspeed.execution.optimizers import Adam
from dqnspeed.exploration.cuda_graph import GraphedPolicy

REPOSITORY = TESTS.parent
EXAMPLE = REPOSITORY / "examples" / "plugin"
GUIDE = REPOSITORY / "docs" / "how-to" / "plugins.md"
NONE = OmegaConf.load(f"{CONF_DIR}/wrappers/none.yaml")
FEW = ["env=cartpole", "algo.learning_starts=60", "tracking=local", "tracking.progress=off",
       "tracking.report_every_s=0.1", "execution.threads=1", "stop.max_steps=150"]  # fmt: skip
OWN = [
    "algo=expected_sarsa",
    "replay=recent",
    "replay.draws=3",
    "exploration=cosine",
    "model=fourier",
    "optimizer=nadam",
    "tracking.trackers=[status]",
    "backend=thread_pool",
    "wrappers=flicker",  # the numbers of standard are replaced by the numbers of none
    *(f"wrappers.{key}={json.dumps(NONE[key])}" for key in NONE if key not in ("defaults", "name")),
]
EVERY = [*OWN, "parallelism=paced", "parallelism.steps_per_second=5000"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the example package is installed in."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", f"--target={folder}", str(EXAMPLE)], check=True)
    return folder


def call(
    *words: str, cwd: Path, path: Path | str = "", plugins: str = "", forks: bool = True
) -> subprocess.CompletedProcess[str]:
    """``python ...`` in ``cwd`` with the packages installed in ``path`` and ``DQNSPEED_PLUGINS=plugins``.

    Args:
        forks: run a module in a copy of a process that has its imports; a copy prints no warnings about plugins.
    """
    env = {**environment(), "DQNSPEED_PLUGINS": plugins}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), env["PYTHONPATH"])))
    if forks and words[0] == "-m":
        return forked.run(*words[1:], cwd=cwd, env=env, timeout=240)
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def trained(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds ``run``, trained with every option of the example."""
    folder = tmp_path_factory.mktemp("trained")
    done = call("-m", "dqnspeed.train", *FEW, *EVERY, "hydra.run.dir=run", cwd=folder, path=site)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example package, imported here and forgotten again."""
    for known in registry.GROUPS.values():
        monkeypatch.setattr(known, "options", dict(known.options))
    monkeypatch.setattr(registry, "FOLDERS", [])
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("dqnspeed_example")
    for name in [name for name in sys.modules if name.partition(".")[0] == "dqnspeed_example"]:
        del sys.modules[name]


def test_a_run_with_an_option_of_each_kind_trains_and_tells_them(trained: Path) -> None:
    summary = json.loads((trained / "run" / "summary.json").read_text())
    assert summary["stopped_by"] == "max_steps" and summary["updates"] > 0
    assert summary["algo"] == "expected_sarsa" and "replay=recent replay.draws=3" in summary["label"]
    assert (trained / "run" / "status.txt").read_text().endswith("ended by max_steps\n")
    chosen = json.loads((trained / "run" / "config.json").read_text())
    names = {group: chosen[group]["name"] for group in registry.GROUPS}
    assert names == dict(word.split("=") for word in EVERY if "." not in word)
    assert chosen["wrappers"]["blank"] == 0.5 and chosen["exploration"]["decay_steps"] == 100_000


def test_such_a_run_is_resumed_and_played(trained: Path, site: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    done = call("-m", "dqnspeed.train", "resume=run", "stop.max_steps=180", cwd=tmp_path, path=site)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["agent_steps"] == 180
    done = call("-m", "dqnspeed.play", "run=run", "episodes=2", cwd=tmp_path, path=site)
    assert done.returncode == 0 and "over 2 games" in done.stdout, done.stderr


def test_an_algorithm_of_a_plugin_learns_cartpole_with_its_own_numbers_or_is_warned(site: Path, tmp_path: Path) -> None:
    line = ["-m", "dqnspeed.train", "experiment=cartpole", "sweep.dry_run=true"]
    done = call(*line, "algo=expected_sarsa", cwd=tmp_path, path=site)
    assert "an update per 16 agent steps (batch size 128)" in done.stdout and "numbers" not in done.stderr, done.stderr
    done = call(*line, "algo=smooth_double", cwd=tmp_path, path=site)
    assert "an update per agent step (batch size 32)" in done.stdout, done.stderr
    assert "experiment=cartpole: has no numbers for algo=smooth_double" in done.stdout + done.stderr


def test_without_its_plugin_a_run_is_refused_and_its_report_is_not(trained: Path, tmp_path: Path) -> None:
    kept = sorted(path.stat().st_mtime_ns for path in (trained / "run").rglob("*"))
    resumed = ["dqnspeed.train", "resume=run", "stop.max_steps=500"]
    for words in (resumed, ["dqnspeed.play", "run=run"], ["dqnspeed.train", "algo=expected_sarsa"]):
        done = call("-m", *words, cwd=trained)
        assert done.returncode == 2 and re.fullmatch(r"dqnspeed: algo=expected_sarsa: .+\.\n", done.stderr), done.stderr
    done = call("-m", "dqnspeed.report", "run", f"out={tmp_path / 'report'}", cwd=trained)
    assert done.returncode == 0 and "algo=expected_sarsa" in done.stdout, done.stderr
    assert sorted(path.stat().st_mtime_ns for path in (trained / "run").rglob("*")) == kept


def test_help_lists_what_a_plugin_brings_and_no_schemas(site: Path, tmp_path: Path) -> None:
    told = call("-m", "dqnspeed.train", "--help", cwd=tmp_path, path=site).stdout
    options = dict(line.split(": ") for line in told.splitlines() if re.match(r"[a-z]+: ", line))
    for word in (word for word in EVERY if "." not in word):
        group, name = word.split("=")
        assert name in options[group].split(", ")
    assert set(options) == {path.name for path in Path(CONF_DIR).iterdir() if path.is_dir()} - {"hydra"}
    assert "convolutional" not in options["model"].split(", ") and "standard" not in options["tracking"].split(", ")


def test_a_mistake_with_a_plugin_s_option_is_one_sentence(site: Path, tmp_path: Path) -> None:
    done = call("-m", "dqnspeed.train", *FEW, "replay.draws=2", cwd=tmp_path, path=site)
    told = "dqnspeed: replay.draws=2: there is no such option of replay=uniform; it belongs to replay=recent.\n"
    assert (done.returncode, done.stderr) == (2, told) and not any(tmp_path.iterdir())


HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from dqnspeed.config.options import option
from dqnspeed.config.registry import add_folder, register
from dqnspeed.buffers import Replay, UniformSampler
from dqnspeed.networks.convolutional import Convolutional
"""
MINE = """
@register("replay", "mine")
@dataclass(frozen=True)
class Mine(Replay):
    extra: int = option("one more number", ge=1, default=3)

    def make(self, storage, seed):
        return UniformSampler(storage, seed)
"""


def test_a_module_of_the_working_folder_is_a_plugin_if_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "my_options.py").write_text(HEAD + MINE)
    script = tmp_path / "bin" / "dqnspeed-train"  # as pip writes it
    script.parent.mkdir()
    script.write_text("from dqnspeed.train import main\nif __name__ == '__main__':\n    main()\n")
    given = ["model=mlp", "replay=mine", "parallelism=process", "hydra.run.dir=run"]
    done = call(str(script), *FEW, *given, cwd=tmp_path, plugins="my_options", forks=False)
    assert done.returncode == 0 and "dqnspeed:" not in done.stderr, done.stderr
    replay = json.loads((tmp_path / "run" / "config.json").read_text())["replay"]
    assert replay == {"name": "mine", "buffer_size": 100_000, "device": "auto", "extra": 3}


def test_actors_find_plugins_beside_a_broken_one(site: Path, tmp_path: Path) -> None:
    about = tmp_path / "site" / "broken-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[dqnspeed.plugins]\nit = broken_options\n")
    (tmp_path / "site" / "broken_options.py").write_text("raise RuntimeError('on purpose\\nwith more')\n")
    path = f"{site}{os.pathsep}{tmp_path / 'site'}"
    done = call("-m", "dqnspeed.train", *FEW, *OWN, "parallelism=process", cwd=tmp_path, path=path, forks=False)
    assert done.returncode == 0, done.stderr
    told = "dqnspeed: plugin broken_options: could not be imported (RuntimeError: on purpose)."
    assert [line for line in done.stderr.splitlines() if "plugin" in line or "dqnspeed:" in line] == [told]


def composed(*words: str, cwd: Path, plugins: str, forks: bool = False) -> tuple[Any, list[str]]:
    """The configuration that a command line composes to, and its warnings."""
    done = call("-m", "dqnspeed.train", *FEW, *words, "--cfg", "job", cwd=cwd, plugins=plugins, forks=forks)
    assert done.returncode == 0, done.stderr
    return OmegaConf.create(done.stdout), done.stderr.splitlines()


def test_what_plugins_must_not_do_is_one_sentence_each(tmp_path: Path) -> None:
    files = {
        "first": MINE,
        "second": MINE,
        "typed": MINE.replace("extra: int", "extra: complex").replace('"mine"', '"typed"'),
        "plain": MINE.replace("@dataclass(frozen=True)\n", "").replace('"mine"', '"plain"'),
        "bare": MINE.replace('option("one more number", ge=1, default=3)', "3").replace('"mine"', '"bare"'),
        "other": MINE.replace("(Replay)", "(Convolutional)").replace('"mine"', '"other"'),
        "usurper": '@register("model", "nature")\n@dataclass(frozen=True)\nclass Nature(Convolutional):\n    pass\n',
        "halfway": MINE.replace('"mine"', '"halfway"') + "\nraise RuntimeError('halfway')\n",
        "hides": MINE.replace("extra: int", "check: int").replace('"mine"', '"hides"'),
        "nowhere": 'add_folder("no_such_folder")\n',
        "shadow": 'add_folder(Path(__file__).parent / "shadow_conf")\n',
        "leaves": "raise SystemExit(3)\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(HEAD + text)
    folder = tmp_path / "shadow_conf" / "replay"
    folder.mkdir(parents=True)
    (folder / "uniform.yaml").write_text("name: uniform\nbuffer_size: 1\n")
    config, told = composed(cwd=tmp_path, plugins=",".join(files))
    assert (config.replay.buffer_size, config.model.name) == (100_000, "mlp")
    patterns = [
        r"plugin second: replay=mine: is registered twice, by first\.Mine and second\.Mine\.",
        r"plugin plain: replay=plain: plain\.Mine must be a dataclass itself, under register\(\)\.",
        r"plugin bare: replay=bare: bare\.Mine\.extra must be made by option\(\.\.\.\)\.",
        r"plugin other: replay=other: other\.Mine must be a subclass of dqnspeed\.buffers\.replay\.Replay\.",
        r"plugin halfway: could not be imported \(RuntimeError: halfway\)\.",
        r"plugin hides: replay=hides: hides\.Mine\.check hides what its base has; rename it\.",
        r"plugin nowhere: add_folder: .*no_such_folder is no folder\.",
        r"plugin leaves: could not be imported \(SystemExit: 3\)\.",
        r"plugin usurper: model=nature is left out: dqnspeed has a file of this name\.",
        r"plugin typed: replay=typed is left out: .*complex.*",
    ]
    assert len(told) == len(patterns), told
    for pattern in patterns:
        assert any(re.fullmatch(f"dqnspeed: {pattern}", line) for line in told), (pattern, told)


@dataclass(frozen=True)
class PlainSgd(Adam):
    def make(self, parameters: Any, device: torch.device) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, self.lr)


def test_an_optimizer_that_cannot_be_captured_is_refused() -> None:
    run = make_toy()
    optimizer = PlainSgd(**{**vars(run.optimizer), "name": "plain"})
    with pytest.raises(ConfigError, match=r"^execution\.graph=true: optimizer=plain has no capturable form; use adam"):
        optimizer.check(replace(run, execution=replace(run.execution, graph=True)))


def test_option_files_of_a_users_own_stand_beside_those_of_plugins(tmp_path: Path) -> None:
    files = {
        "conf_of_plugin": ("large", "defaults: [mine, _self_]\nbuffer_size: 7000\n"),
        "searched": ("larger", "defaults: [large, _self_]\nextra: 8\n"),
        "given": ("largest", "defaults: [larger, _self_]\nbuffer_size: 9000\n"),
    }
    for folder, (name, text) in files.items():
        (tmp_path / folder / "replay").mkdir(parents=True)
        (tmp_path / folder / "replay" / f"{name}.yaml").write_text(text)
    (tmp_path / "my_options.py").write_text(f'{HEAD}{MINE}\nadd_folder(Path(__file__).parent / "conf_of_plugin")\n')
    folders = [f"hydra.searchpath=[file://{tmp_path / 'searched'}]", "--config-dir=given"]
    config, told = composed("replay=largest", *folders, cwd=tmp_path, plugins="my_options")
    assert config.replay == {"name": "mine", "buffer_size": 9000, "device": "auto", "extra": 8} and not told


def test_an_option_without_a_file_takes_numbers_of_the_class_above_it_and_its_own(tmp_path: Path) -> None:
    (tmp_path / "my_options.py").write_text(
        HEAD
        + MINE
        + """
from dqnspeed.algorithms.dqn import DeepQ
from dqnspeed.exploration.noisy import Noisy

@register("exploration", "noisier")
@dataclass(frozen=True)
class Noisier(Noisy):
    sigma0: float = option("more of it", gt=0, default=2.0)

@register("replay", "heir")
@dataclass(frozen=True)
class Heir(Mine):
    pass

@register("algo", "cousin")
@dataclass(frozen=True)
class Cousin(DeepQ):
    loss: str = option("another", choices=("huber",), default="huber")
    own: float = option("a number of its own", default=2.5)
"""
    )
    chosen = ["env=pong", "exploration=noisier", "replay=heir", "algo=cousin"]
    config, _ = composed(*chosen, cwd=tmp_path, plugins="my_options", forks=True)
    assert (config.exploration.start, config.exploration.sigma0) == (0.0, 2.0)  # noisy's, and its own
    assert config.replay == {"name": "heir", "buffer_size": 100_000, "device": "auto", "extra": 3}
    usual = OmegaConf.to_container(OmegaConf.load(f"{CONF_DIR}/algo/dqn.yaml"))["algo"]
    brought = {"name": "cousin", "loss": "huber", "own": 2.5, "learning_starts": 60}
    shared = {key: usual[key] for key in usual if key not in ("double", *brought)}
    assert OmegaConf.to_container(config.algo) == {**shared, **brought}


def test_the_algorithm_of_the_documentation_trains_as_a_module_of_its_own(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    [whole] = [block for block in blocks if '@register("algo", "smooth_double")' in block]
    (tmp_path / "my_options.py").write_text(whole)
    given = ["algo=smooth_double", "model=mlp", "hydra.run.dir=run"]
    done = call("-m", "dqnspeed.train", *FEW, *given, cwd=tmp_path, plugins="my_options")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["updates"] > 0 and summary["algo"] == "smooth_double"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["algo"]["delta"] == 1


def test_the_code_of_the_documentation_is_that_of_the_example() -> None:
    text = GUIDE.read_text()
    files = [path for pattern in ("*.py", "*.yaml", "*.toml") for path in sorted(EXAMPLE.rglob(pattern))]
    for block in re.findall(r"```(?:python|yaml|toml)\n(.*?)```", text, re.S):
        assert any(block in path.read_text() for path in files), block
    for name in (*registry.GROUPS, *(path.name for path in files if path.suffix == ".py" and path.stem != "__init__")):
        assert f"`{name}`" in text


def learner_of(kind: type, **numbers: Any) -> tuple[Any, Any, EnvSpec]:
    """An algorithm of the example, its learner, and the shapes of the counting environment."""
    run = make_toy()
    shared = {key: value for key, value in vars(run.algo).items() if key not in ("double", "loss")}
    algo, spec = kind(**shared, **numbers), describe(run)
    return algo, make_learner(replace(run, algo=algo), spec, torch.device("cpu")), spec


def test_expected_sarsa_values_the_policy_that_is_random_now_and_then(example: ModuleType) -> None:
    algo, learner, spec = learner_of(example.algorithm.ExpectedSarsa, target_epsilon=0.2)
    observations = torch.rand(5, *spec.observation_shape)
    rewards, discounts = torch.arange(5.0), torch.full((5,), 0.5)
    q = learner.target.network(observations)
    chances = torch.full_like(q, 0.2 / q.shape[1]).scatter_add(1, q.argmax(1, keepdim=True), torch.full((5, 1), 0.8))
    wanted = rewards + 0.5 * (chances * q).sum(dim=1)
    none = torch.zeros(5, dtype=torch.int64)
    batch = Transitions(observations, none, rewards, observations, discounts)
    torch.testing.assert_close(algo.targets(learner.network, learner.target.network, batch), wanted)


def test_smooth_double_dqn_asks_the_online_network_and_has_its_own_loss(example: ModuleType) -> None:
    algo, learner, spec = learner_of(example.smooth_double.SmoothDouble)
    for parameter in list(learner.target.network.q.parameters())[-2:]:  # of the last layer
        parameter.data.neg_()  # its best action is the online network's worst
    observations, following = torch.rand(64, *spec.observation_shape), torch.rand(64, *spec.observation_shape)
    actions, rewards = torch.arange(64) % spec.num_actions, torch.arange(64.0) / 8
    best, valued = learner.network(following).argmax(dim=1), learner.target.network(following)
    targets = rewards + 0.5 * valued[range(64), best]
    assert (valued.argmax(dim=1) != best).all()
    batch = Transitions(observations, actions, rewards, following, torch.full((64,), 0.5))
    given = algo.targets(learner.network, learner.target.network, batch)
    losses, errors, taken = algo.losses(algo.predict(learner.network, batch), given)
    torch.testing.assert_close(taken, learner.network(observations)[range(64), actions])
    torch.testing.assert_close(errors, (taken - targets).abs())
    torch.testing.assert_close(losses, torch.sqrt(1 + (taken - targets) ** 2) - 1)


def test_qr_dqn_regresses_fixed_quantiles_on_those_of_the_best_next_action(example: ModuleType) -> None:
    """Equation 10 of Dabney et al. (2018), and its algorithm 1, written out."""
    _, learner, spec = learner_of(example.qr_dqn.QRDQN, quantiles=3)
    for parameter in learner.target.network.parameters():
        parameter.data += 0.1
    observations, following = torch.rand(8, *spec.observation_shape), torch.rand(8, *spec.observation_shape)
    actions, rewards = torch.arange(8) % spec.num_actions, torch.arange(8.0) / 8
    total = 0.0
    for i in range(8):
        next_quantiles = learner.target.network.quantiles(following[i : i + 1])[0]
        best = int(next_quantiles.mean(dim=1).argmax())
        predicted = learner.network.quantiles(observations[i : i + 1])[0, actions[i]].tolist()
        for tau, quantile in zip((1 / 6, 1 / 2, 5 / 6), predicted, strict=True):
            for target in (rewards[i] + 0.5 * next_quantiles[best]).tolist():
                error = target - quantile
                huber = error**2 / 2 if abs(error) <= 1 else abs(error) - 1 / 2
                total += abs(tau - (error < 0)) * huber / 3 / 8
    learner.update(Batch(observations, actions, rewards, following, torch.full((8,), 0.5)))
    assert learner.stats()["train/loss"] == pytest.approx(total, rel=1e-4)


def test_boltzmann_exploration_takes_actions_with_their_probabilities(example: ModuleType) -> None:
    run = make_toy()
    spec, cpu = describe(run), torch.device("cpu")
    network: Any = make_learner(run, spec, cpu).network
    exploration = example.exploration.Boltzmann(name="boltzmann", temperature=0.5)
    policy = exploration.policy(network, spec.num_actions, run.execution, cpu, np.random.default_rng(0))
    frames = np.random.default_rng(1).normal(size=(4000, *spec.frame_shape)).astype(spec.frame_dtype)
    frames[:] = frames[0]
    graphed = GraphedPolicy(policy, spec, len(frames), cpu, [1], lambda function, device: function)
    graphed.push(frames, np.ones(len(frames), bool))
    actions, _ = graphed(0.0)()
    with torch.no_grad():
        chances = torch.softmax(network(torch.from_numpy(frames[:1]))[0] / 0.5, dim=0)
    np.testing.assert_allclose(np.bincount(actions, minlength=spec.num_actions) / len(actions), chances, atol=0.03)
    assert chances.min() > 0.02 and chances.max() < 0.98


def test_a_thread_pool_plays_as_gymnasium_does_and_continues_saved_games(example: ModuleType) -> None:
    run = make_run("env=cartpole", "num_envs=3")
    pooled = replace(run, backend=example.backend.ThreadPool("thread_pool", threads=2))
    with contextlib.closing(make_vector_env(run)) as env, contextlib.closing(make_vector_env(pooled)) as pool:
        rng = np.random.default_rng(0)
        np.testing.assert_array_equal(env.reset([1, 2, 3]), pool.reset([1, 2, 3]))
        for number in range(60):
            actions, steps = rng.integers(2, size=3), []
            for each in (env, pool):
                each.send(actions)
                steps.append(each.recv())
            for part in ("frames", "rewards", "terminated", "truncated", "first"):
                np.testing.assert_array_equal(*[getattr(step, part) for step in steps], err_msg=part)
            if number % 7 == 0:
                state = pool.state_dict()
                pool.reset([4, 5, 6])
                assert pool.load_state_dict(state)


def test_auto_takes_the_backend_of_a_plugin_that_has_the_highest_priority(example: ModuleType) -> None:
    @registry.register("backend", "first")
    @dataclass(frozen=True)
    class First(example.backend.ThreadPool):
        priority = 30

    assert dqnspeed.compose(["backend=auto", "env=cartpole"]).backend == First("first")
    assert dqnspeed.compose(["backend=auto"]).backend.name == "atari_warp"  # the plugin's plays no ALE games
    with pytest.raises(ConfigError, match=r"^backend=thread_pool: does not count lives, .* Use backend=auto\.$"):
        example.backend.ThreadPool("thread_pool").check(make_run())
