"""dqnspeed from Python: what its functions give and refuse, and what they leave alone."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import hydra
import numpy as np
import pytest
import torch
from conftest import TOY, environment, make_run, once_reported
from gymnasium.utils.env_checker import check_env
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from omegaconf import OmegaConf

import dqnspeed
from dqnspeed.agents.agent import Agent
from dqnspeed.agents.environment import AgentEnv
from dqnspeed.envs import Step, describe, make_vector_env
from dqnspeed.system import machine
from dqnspeed.tracking.run_folder import METRICS, SUMMARY, read_metrics
from dqnspeed.training import evaluation
from dqnspeed.training.evaluation import play_games

MISTAKES = {
    "env.id=ALE/Pnog-v5": "env.id=ALE/Pnog-v5: no ALE game and no registered Gymnasium environment has this name "
    "(nearest: ALE/Pong-v5, ALE/KingKong-v5, ALE/Skiing-v5).",
    "optimizer.lrr=1": "optimizer.lrr=1: there is no such option (nearest: optimizer.lr, optimizer, optimizer.alpha).",
    "num_envs=-1": "num_envs=-1: must be at least 0.",
    "algo=5": "algo=5: a group takes the name of one of its options.",
}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Check that the block changes nothing that a process may have set."""

    def state() -> list[Any]:
        drawn = [random.random(), np.random.random(), torch.rand(()).item()]  # noqa: NPY002
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        return [drawn, handlers, torch.get_num_threads(), Path.cwd(), [*logging.root.handlers], logging.root.level]

    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    before = state()
    random.setstate(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002
    torch.set_rng_state(kept[2])
    yield
    assert state() == before


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as the examples in the docstrings train it, which do what they say."""
    folder = tmp_path_factory.mktemp("documented")
    nodes = ast.parse(Path(dqnspeed.__file__).read_text()).body
    docs = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.FunctionDef)]
    examples = doctest.DocTestParser().get_doctest("\n\n".join(docs), {"dqnspeed": dqnspeed}, "api", None, 0)
    assert len(examples.examples) > 10
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with undisturbed():
            assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples).failed == 0
    return folder / "outputs" / "cartpole"


def test_importing_dqnspeed_is_quick() -> None:
    code = "import sys, dqnspeed; print({'torch', 'hydra', 'numpy', 'gymnasium'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert result.stdout == "set()\n"


def test_what_is_promised_is_there() -> None:
    assert all(getattr(dqnspeed, name) for name in dqnspeed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        dqnspeed.tarin  # noqa: B018


def test_the_submodule_of_the_same_name_takes_calls_and_commands() -> None:
    module = importlib.import_module("dqnspeed.train")
    assert dqnspeed.train is module and callable(module.main)
    with pytest.raises(dqnspeed.ConfigError, match="num_envs=-1"):
        dqnspeed.train(["num_envs=-1"])


def test_a_configuration_is_composed_and_checked() -> None:
    run = dqnspeed.compose(["experiment=cartpole", "seed=7"])
    assert run == make_run("experiment=cartpole", "seed=7")
    with pytest.raises(dqnspeed.ConfigError, match="takes a list of texts, as in"):
        dqnspeed.compose("env=pong")
    for given, sentence in (
        (5, r"overrides=\[5\]: takes a list of texts"),
        ("", r"overrides=\[''\]: takes a list of texts"),
        ("-m", "-m: cannot be read"),
        ("resume=it", "resume: there is no such option"),
        ("env=[pong,breakout]", r"env=\[pong,breakout\]: takes one option; several are a sweep"),
        ("hydra.sweep.dir=it", r"hydra\.sweep\.dir=it: is for sweeps"),
    ):
        with pytest.raises(dqnspeed.ConfigError, match=f"^{sentence}"):
            dqnspeed.compose([given])  # type: ignore[list-item]


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for function in (dqnspeed.compose, dqnspeed.train):
        with pytest.raises(dqnspeed.ConfigError) as raised:
            function([override])
        assert str(raised.value).startswith(MISTAKES[override]) and "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", [5, "a\0b"])
def test_a_folder_is_a_path(folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    importlib.import_module("dqnspeed.train")  # takes the place of the function
    for call in (lambda: dqnspeed.train(TOY, folder), lambda: dqnspeed.read(folder), lambda: dqnspeed.load(folder)):
        with pytest.raises(dqnspeed.ConfigError, match="takes the path of a folder"):
            call()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(dqnspeed.ConfigError, match=r"^checkpoint=5: takes a text, as in "):
        dqnspeed.load("one", checkpoint=5)  # type: ignore[arg-type]


def test_a_hydra_of_the_process_own_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("experiment: mine\nproduct: ${mul:2,3}\n")
    GlobalHydra.instance().clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omegaconf.basecontainer.BaseContainer._resolvers", {})
        OmegaConf.register_new_resolver("mul", lambda a, b: f"{a} by {b}")
        with hydra.initialize_config_dir(str(tmp_path), version_base="1.2"):
            HydraConfig.instance().cfg = None
            JobRuntime.instance().set("name", "mine")
            for _ in range(2):
                assert dqnspeed.compose(["env=pong", "num_envs=2"]).algo.batch_size == 64
            assert JobRuntime.instance().get("name") == "mine"
            mine = hydra.compose("config")
            assert hydra.version.getbase() == hydra.version.Version("1.2") and HydraConfig.instance().cfg is None
            assert OmegaConf.to_container(mine, resolve=True) == {"experiment": "mine", "product": "2 by 3"}


def write_run(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    (folder / METRICS).write_text('{"step": 8, "time": 0.5, "train/loss": 0.25}\n{"step": 16, "time": 1.0}\n')
    (folder / "episodes.csv").write_text(
        f"episode,begun,return,length,env,agent_step,time,video\n1,1,{seed},7,0,7,0.4,\n"
    )
    (folder / SUMMARY).write_text(json.dumps({"seed": seed, "solved": seed > 2}))
    (folder / "config.json").write_text(json.dumps({"num_envs": seed, "optimizer": {"lr": 0.5}}))


def test_a_run_is_read_into_tables(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seed=3)
    results = dqnspeed.read(str(tmp_path / "run"))
    assert (results.folder, results.runs, results.summary) == (tmp_path / "run", (), {"seed": 3, "solved": True})
    assert repr(results) == f"Results(folder={tmp_path / 'run'!r})"
    assert list(results.metrics.columns) == ["step", "time", "train/loss"]
    assert results.metrics["train/loss"].isna().tolist() == [False, True]
    assert results.episodes["return"].tolist() == [3] and len(results.episodes.columns) == 8
    (tmp_path / "run" / METRICS).write_text("")
    assert list(dqnspeed.read(tmp_path / "run").metrics.columns) == ["step", "time"]


@pytest.mark.parametrize("with_pandas", [True, False])
def test_a_sweep_is_read_in_order(with_pandas: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    for name in (10, 2):
        write_run(tmp_path / str(name), seed=name)
    results = dqnspeed.read(tmp_path)

    def rows(table: Any) -> list[dict[str, Any]]:
        return table.to_dict("records") if with_pandas else table

    assert rows(results.summary) == [
        {"run": "2", "seed": 2, "solved": False, "config.num_envs": 2, "config.optimizer.lr": 0.5},
        {"run": "10", "seed": 10, "solved": True, "config.num_envs": 10, "config.optimizer.lr": 0.5},
    ]
    assert results.config == {}
    assert [run.config for run in results.runs] == [{"num_envs": n, "optimizer": {"lr": 0.5}} for n in (2, 10)]
    assert [(row["run"], row["step"]) for row in rows(results.metrics)] == [("2", 8), ("2", 16), ("10", 8), ("10", 16)]
    assert [(row["run"], row["return"]) for row in rows(results.episodes)] == [("2", 2), ("10", 10)]
    assert [rows(run.episodes)[0]["return"] for run in results.runs] == [2, 10]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, sentence in (("none", "there is no such folder."), ("", "holds no run (no metrics.jsonl).")):
        with pytest.raises(dqnspeed.ConfigError) as raised:
            dqnspeed.read(tmp_path / name)
        assert str(raised.value) == f"{tmp_path / name}: {sentence}"
    write_run(tmp_path / "0", seed=1)
    (tmp_path / "0" / METRICS).write_text('{"step": 8, "time": 0.5}\n{"ste')
    (tmp_path / "0" / SUMMARY).unlink()
    with pytest.warns(UserWarning) as told:
        results = dqnspeed.read(tmp_path / "0")
    running, damaged = (str(warning.message) for warning in told)
    assert "is running still or was killed (no summary.json)" in running
    assert "is damaged; 1 of its 2 lines cannot be read" in damaged
    assert {warning.filename for warning in told} == {__file__}
    assert results.summary == {} and len(results.metrics) == 1


@pytest.mark.slow
def test_an_environment_gives_what_the_agent_is_shown_in_play() -> None:
    run = make_run("env=breakout", "env.max_episode_frames=1000", "wrappers.clip_reward=false")
    spec = describe(run)

    def act(observation: np.ndarray) -> int:
        return int(observation.sum(dtype=np.int64) % spec.num_actions)

    shown = list[tuple[bytes, float]]()

    def watch(observations: np.ndarray, actions: np.ndarray, step: Step) -> None:
        if not step.first[0]:  # else the action was ignored
            shown.append((observations.tobytes(), float(step.rewards[0])))

    vector = make_vector_env(run)
    [game] = play_games(vector, spec, lambda seen: np.array([act(seen[0])]), [5], 1, watch)
    vector.close()
    env, given, over = AgentEnv(run, spec), list[tuple[bytes, float]](), False
    observation, info = env.reset(seed=5)
    while not over:
        before, action = observation.tobytes(), act(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        given.append((before, reward))
        over = terminated or truncated
    env.close()
    assert given == shown and len(given) > 100 and observation.shape == (4, 84, 84)
    assert info == {"episode": {"r": game.episode_return, "l": game.length}}
    assert sum(reward for _, reward in given) == game.episode_return


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Box observation space:UserWarning")
def test_an_agents_environment_is_one_of_gymnasium(trained: Path) -> None:
    agent = dqnspeed.load(trained)
    env = agent.make_env("rgb_array")
    check_env(env, skip_render_check=True)
    assert (env.observation_space, env.action_space) == (agent.observation_space, agent.action_space)
    env.reset(seed=1)
    assert env.render().shape == (400, 600, 3)
    first, second = (env.reset()[0] for _ in range(2))
    assert not np.array_equal(first, second)
    for action in (-1, 2, 1.0):
        with pytest.raises(ValueError, match=f"^action: is {action!r}, and this game takes whole numbers from 0 to 1"):
            env.step(action)  # type: ignore[arg-type]
    while not env.step(0)[2]:
        pass
    with pytest.raises(ValueError, match=r"^step: no game is being played. Start one by reset\(\)"):
        env.step(0)
    env.close()
    with pytest.raises(ValueError, match=r"^render: needs make_env\(render_mode="):
        agent.make_env().render()
    with pytest.raises(ValueError, match=r"^render_mode='human': takes 'rgb_array' or None"):
        agent.make_env("human")


@pytest.mark.slow
def test_an_agent_takes_the_observations_it_was_trained_on_and_no_others(trained: Path) -> None:
    before = torch.get_rng_state()
    agent = dqnspeed.load(str(trained), checkpoint="final", device="cpu")
    assert torch.equal(before, torch.get_rng_state()) and agent.checkpoint.name == "final.safetensors"
    assert agent.agent_steps == dqnspeed.read(trained).summary["agent_steps"] >= 2000
    assert (agent.outputs, agent.config.env.id) == ("action values", "CartPole-v1")
    batch = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    values = agent.values(batch)
    assert values.shape == (5, 2) and values.dtype == np.float32
    np.testing.assert_allclose(agent.values(batch[2]), values[2], rtol=1e-5)
    assert [agent.act(one) for one in batch] == values.argmax(axis=1).tolist()
    for wrong, shown in ((batch[0].astype(float), "float64"), (batch, r"\(5, 4\) float32"), (None, r"\(\) object")):
        with pytest.raises(ValueError, match=rf"^observation: is {shown}, and this agent takes \(4,\) float32\. "):
            agent.act(wrong)
    with pytest.raises(ValueError, match=r"is \(1, 5, 4\) float32, and this agent takes a batch of \(4,\) float32"):
        agent.values(batch[None])


@pytest.mark.parametrize("best", ["bf16", "fp32"])
def test_an_agent_computes_in_bf16_only_where_the_machine_does(best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "best_precision", lambda device: best)
    in_bf16, in_fp32 = (
        Agent(make_run(*TOY, f"execution.precision={precision}"), device="cpu") for precision in ("bf16", "fp32")
    )
    in_bf16.network.load_state_dict(in_fp32.network.state_dict())
    batch = np.random.default_rng(1).normal(size=(5, *in_fp32.observation_space.shape)).astype(np.float32)
    assert np.array_equal(in_bf16.values(batch), in_fp32.values(batch)) == (best == "fp32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "outputs"),
    {
        "ppo": "logits of the policy",
        "sac_discrete": "logits of the policy",
        "c51": "action values",
        "q_learning": "action values",
    }.items(),
)
def test_an_agent_of_any_algorithm_looks_at_a_game(algo: str, outputs: str, tmp_path: Path) -> None:
    game = (
        ["env=frozen_lake", "eval.every_steps=100"]
        if algo == "q_learning"
        else ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=board"]
    )
    results = dqnspeed.train(
        [*TOY[5:], *game, f"algo={algo}", "stop.reward_bound=null", "stop.max_steps=200"], folder=tmp_path
    )
    agent = dqnspeed.load(results.folder)
    assert dqnspeed.load(results.folder, checkpoint=agent.checkpoint.stem).checkpoint == agent.checkpoint
    env = agent.make_env()
    observation, _ = env.reset(seed=1)
    assert agent.outputs == outputs
    check_what_is_learnt(agent, observation)
    assert agent.action_names == [str(action) for action in range(agent.action_space.n)]
    assert env.step(agent.act(observation))[0].dtype == agent.observation_space.dtype
    env.close()
    if algo != "q_learning":
        with pytest.raises(ValueError, match="Put the channels first"):
            agent.act(observation.transpose(1, 2, 0))


def check_what_is_learnt(agent: dqnspeed.Agent, observation: np.ndarray) -> None:
    """Check action values, or the policy and the value of the state; what the algorithm does not learn is refused."""
    network, batch = agent.network, np.stack([observation, observation])
    algo, policy = agent.config.algo.name, agent.outputs == "logits of the policy"
    with torch.inference_mode():
        given = network(torch.from_numpy(batch))
    learnt = agent.probabilities if policy else agent.values
    wanted = given.softmax(dim=1) if policy else given
    np.testing.assert_allclose(learnt(batch), wanted, rtol=1e-5)
    np.testing.assert_allclose(learnt(observation), wanted[0], rtol=1e-5)
    assert learnt(observation).dtype == np.float32 and agent.act(observation) == int(wanted[0].argmax())
    refused = ["values"] if policy else ["probabilities", "value"]
    if algo == "ppo":
        with torch.inference_mode():
            state_values = network.policy_and_value(torch.from_numpy(batch))[1]
        np.testing.assert_allclose(agent.value(batch), state_values, rtol=1e-5)
        np.testing.assert_allclose(agent.value(observation), state_values[0], rtol=1e-5)
    for name in refused:
        with pytest.raises(ValueError, match=rf"^{name}: algo={algo} learns no .*\. Use "):
            getattr(agent, name)(observation)


def toy(*overrides: str) -> list[str]:
    return [*TOY, "algo.batch_size=2000", *overrides]


@pytest.mark.slow
def test_an_interrupted_training_is_saved_returned_and_resumed(tmp_path: Path) -> None:
    with undisturbed(), once_reported(tmp_path, lambda: os.kill(os.getpid(), signal.SIGINT)):
        cv2.setNumThreads(2)
        results = dqnspeed.train(toy("parallelism=process"), folder=tmp_path)
    assert cv2.getNumThreads() == 2
    steps = results.summary["agent_steps"]
    assert results.summary["stopped_by"] == "SIGINT" and len(results.metrics) >= 3
    overrides = [f"resume={tmp_path}", f"stop.max_steps={steps + 50}"]
    with pytest.raises(dqnspeed.ConfigError, match="does not go with resume="):
        dqnspeed.train(overrides, folder=tmp_path)
    summary = dqnspeed.train(overrides).summary
    assert summary["stopped_by"] == "max_steps" and summary["resumed_at"] == [steps]


@pytest.mark.slow
def test_an_interrupted_evaluation_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = "tracking.report_every_s=0.0001"  # a report holds the newest evaluation alone
    overrides = [*TOY, often, "eval.every_steps=100", "eval.episodes=2", "stop.max_steps=350", "checkpoint.replay=true"]
    dqnspeed.train(overrides, folder=tmp_path / "whole")
    played, calls = evaluation.play_games, []

    def interrupted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return played(*arguments, **named)

    monkeypatch.setattr(evaluation, "play_games", interrupted)
    assert dqnspeed.train(overrides, folder=tmp_path / "cut").summary["stopped_by"] == "SIGINT"
    dqnspeed.train([f"resume={tmp_path / 'cut'}"])
    whole, cut = (
        [report["eval/return_mean"] for report in read_metrics(tmp_path / name)[0] if "eval/return_mean" in report]
        for name in ("whole", "cut")
    )
    assert whole == cut and len(whole) == 3


@pytest.mark.slow
def test_sigterm_is_handled_as_before_once_the_run_is_saved(tmp_path: Path) -> None:
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append((tmp_path / SUMMARY).exists()))
    try:
        with once_reported(tmp_path, lambda: os.kill(os.getpid(), signal.SIGTERM)):
            results = dqnspeed.train(toy(), folder=tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [True] and results.summary["stopped_by"] == "SIGTERM"


@pytest.mark.slow
def test_a_thread_trains_into_a_new_folder_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = list[dqnspeed.Results]()

    def trainings() -> None:
        for _ in range(2):
            found.append(dqnspeed.train([*TOY, "stop.max_steps=100"]))

    thread = threading.Thread(target=trainings)
    thread.start()
    thread.join()
    assert [results.summary["agent_steps"] for results in found] == [100, 100]
    assert len({results.folder for results in found}) == 2
    assert all(results.folder.parts[0] == "outputs" for results in found)
    with pytest.raises(dqnspeed.ConfigError, match=r"^hydra\.run\.dir: .* holds another run already; name a new"):
        dqnspeed.train(TOY, folder=found[0].folder)


@pytest.mark.slow
def test_a_run_that_breaks_raises_and_says_how(tmp_path: Path) -> None:
    with undisturbed(), pytest.raises(dqnspeed.RunError, match="is not finite"):
        dqnspeed.train([*TOY, "optimizer.lr=1e30"], folder=tmp_path)
    assert dqnspeed.read(tmp_path).summary["stopped_by"] == "error"


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["if __name__ == '__main__': ", ""])
def test_a_script_with_actor_processes_needs_a_guard(guard: str, tmp_path: Path) -> None:
    overrides = [*TOY, "parallelism=process", "stop.max_steps=100"]
    (tmp_path / "script.py").write_text(f"import dqnspeed\n{guard}dqnspeed.train({overrides!r}, folder='run')\n")
    result = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    sentence = "dqnspeed.train: call it under if __name__ == '__main__', since its processes import this."
    assert (result.returncode == 0) == bool(guard), result.stderr
    assert (sentence in result.stderr) != bool(guard)
