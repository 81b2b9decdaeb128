"""Published agents: their files, playing them, starting from them, the zoo, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import yaml
from conftest import TOY, Command, environment
from safetensors.numpy import load_file, save_file

import dqnspeed
from dqnspeed.cli import resume
from dqnspeed.cli.compose import from_hydra
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.protocol import protocol_of
from dqnspeed.play import command as play_command
from dqnspeed.play.card import beside_card
from dqnspeed.publish import command as publish_command
from dqnspeed.publish.command import COMMAND_LINE, publish
from dqnspeed.tracking import published
from dqnspeed.training import state_file

QUIET = ["execution.threads=1", "tracking=local", "tracking.progress=off", "tracking.report_every_s=0.2"]
BREAKOUT = ["env=breakout", "experiment=ppo", "model=small", "num_envs=4", "env.max_episode_frames=200",
            "backend=ale", *QUIET]  # fmt: skip
CATCH = ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=mlp", "model.hidden=[8]", "algo.learning_starts=90",
         "algo.batch_size=8", *QUIET]  # fmt: skip
FILES = {"README.md", "config.json", "run.json", "evaluation.json", "curve.csv", "curve.png",
         "checkpoints/best.safetensors"}  # fmt: skip


def make(run: Path, to: Path, *more: str) -> Path:
    line = [f"run={run}", f"to={to}", "episodes=2", "video=false", *more]
    return publish(COMMAND_LINE.read(line)[0])


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with short runs, and with published agents that are not to be changed."""
    folder = tmp_path_factory.mktemp("runs")
    dqnspeed.train([*BREAKOUT, "stop.max_steps=1600"], folder=folder / "breakout")
    dqnspeed.train([*CATCH, "stop.max_steps=300"], folder=folder / "catch")
    make(folder / "breakout", folder / "of_breakout", "half=true")
    make(folder / "catch", folder / "of_catch", "video=true", "episodes=60")
    return folder


@pytest.fixture
def zoo(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with an agent for Breakout, in an empty working folder."""
    shutil.copytree(runs / "of_breakout", tmp_path / "zoo" / "breakout")
    monkeypatch.setattr(published, "ZOO", tmp_path / "zoo")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "zoo"


def test_a_published_folder_has_all_that_is_promised(runs: Path) -> None:
    folder = runs / "of_catch"
    assert names_in(folder) == FILES | {"index.json", "replay.mp4"}
    assert names_in(runs / "of_breakout") == FILES | {"index.json"}
    index = json.loads((folder / "index.json").read_text())["files"]
    assert index == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names_in(folder) - {"index.json"}
    }
    assert (folder / "replay.mp4").stat().st_size > 500
    with (folder / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and float(rows[-1]["step"]) <= 310 and math.isfinite(float(rows[-1]["episode/return_mean_100"]))
    assert not list(runs.glob("*.partial")), "unfinished folders"


def test_the_card_has_metadata_and_says_how_the_score_came_about(runs: Path) -> None:
    card = (runs / "of_breakout" / "README.md").read_text()
    _, head, text = card.split("---\n", 2)
    metadata, evaluation = yaml.safe_load(head), json.loads((runs / "of_breakout" / "evaluation.json").read_text())
    assert metadata["library_name"] == "dqnspeed" and {"ppo", "reinforcement-learning"} <= set(metadata["tags"])
    [result] = metadata["model-index"][0]["results"]
    score = f"{evaluation['return_mean']:.2f} +/- {evaluation['return_std']:.2f}"
    assert result["metrics"][0]["value"] == score and result["dataset"]["name"] == metadata["tags"][0]
    config, facts = (json.loads((runs / "of_breakout" / f"{name}.json").read_text()) for name in ("config", "run"))
    assert config["env"]["id"] == metadata["tags"][0]
    for fact in (
        f"| protocol | {facts['protocol']} |", facts["machine"]["cpu"], f"torch {facts['versions']['torch']}",
        "python -m dqnspeed.train env=breakout experiment=ppo", "floats of 16 bits", "over 2 games", "## Limits",
        "cannot be compared with scores of the literature",  # max_episode_frames=200
    ):  # fmt: skip
        assert fact in text, fact


def test_weights_in_16_bits_are_stored_and_played(runs: Path) -> None:
    stored = load_file(runs / "of_breakout" / "checkpoints" / "best.safetensors")
    agents = [dqnspeed.load(runs / name, trust=True) for name in ("breakout", "of_breakout")]
    own, half = (agent.network.state_dict() for agent in agents)
    for name, weights in own.items():
        assert stored[f"learner/network/{name}"].dtype == np.float16
        np.testing.assert_array_equal(half[name].numpy(), weights.numpy().astype(np.float16).astype(np.float32))
    with agents[1].make_env() as env:
        observation, _ = env.reset(seed=0)
        np.testing.assert_allclose(*(agent.probabilities(observation) for agent in agents), atol=0.01)


def test_passwords_of_trackers_are_not_published(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "catch", tmp_path / "run")
    config, begun = tmp_path / "run" / "config.json", tmp_path / "run" / "run.json"
    plain, facts = json.loads(config.read_text()), json.loads(begun.read_text())
    plain["tracking"]["kwargs"] = {"mine": {"password": "hunter2"}}
    facts["overrides"].append("+tracking.kwargs.mine.password=hunter2")
    config.write_text(json.dumps(plain))
    begun.write_text(json.dumps(facts))
    folder = make(tmp_path / "run", tmp_path / "to", "trust=true")
    assert not any(b"hunter2" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_number_beyond_16_bits_is_refused(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "catch", tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "final.safetensors"
    state = state_file.load(path)
    weights = state["learner"]["network"]
    name = next(iter(weights))
    weights[name] = np.full_like(weights[name], 1e6)
    state_file.save(path, state)
    with pytest.raises(ConfigError, match=rf"^half=true: {name} has a number beyond 16 bits\. Use half=false\.$"):
        make(tmp_path / "run", tmp_path / "to", "half=true", "checkpoint=final")
    assert not (tmp_path / "to").exists() and not list(tmp_path.glob("*.partial"))


def test_a_published_agent_is_played_and_stays_as_it_is(
    runs: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = runs / "of_catch"
    before = {name: (folder / name).read_bytes() for name in names_in(folder)}
    line = [f"run={folder}", "screen=none", "trust=true"]
    code, shown, errors = run_here(play_command, *line, "episodes=3", "record=true")
    assert (code, errors) == (0, "") and "the card says " in shown and "results are in outputs/play/of_catch" in shown
    assert len(list((tmp_path / "outputs/play/of_catch/videos").glob("*.mp4"))) == 3
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == before
    # The games of the evaluation, played again, have the mean of the card.
    code, shown, _ = run_here(play_command, *line, "episodes=60", "num_envs=8")
    played = json.loads((tmp_path / "outputs/play/of_catch/play.jsonl").read_text().splitlines()[-1])
    assert played["return_mean"] == json.loads(before["evaluation.json"])["return_mean"]
    assert "; the mean here lies within two standard errors (" in shown
    code, shown, _ = run_here(play_command, *line, "episodes=2", "epsilon=0.5")
    assert "played with another epsilon" in shown


@pytest.mark.parametrize(("mean", "place"), [(12.7, "within"), (12.9, "outside"), (7.1, "outside")])
def test_a_mean_is_compared_by_two_standard_errors(mean: float, place: str) -> None:
    settings = {"epsilon": 0.0, "deterministic": True, "noop_max": 30}
    card = {**settings, "return_mean": 10.0, "return_std": 10.0, "games": [{}] * 100}
    assert f" mean here lies {place} two standard errors (2.83) of it" in beside_card(
        {**settings, "return_mean": mean, "games": [{}] * 100}, card
    )


def test_several_games_at_once_are_whole_games_and_not_shown(
    runs: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs / "breakout", runs / "copy", dirs_exist_ok=True)
    line = [f"run={runs / 'copy'}", "episodes=6"]
    code, shown, _ = run_here(play_command, *line, "num_envs=4")
    assert code == 0 and shown.count("\ngame ") + shown.startswith("game ") == 6
    [kept] = [json.loads(line) for line in (runs / "copy" / "play.jsonl").read_text().splitlines()]
    assert all(game["length"] <= 51 for game in kept["games"]) and len(kept["games"]) == 6
    for shown in ("screen=window", "record=true"):
        code, _, errors = run_here(play_command, *line, "num_envs=2", shown)
        assert code == 2 and errors.startswith(f"dqnspeed: num_envs=2: does not go with {shown}")


ZOO = {"battle_zone", "breakout", "double_dunk", "name_this_game", "phoenix", "pong", "qbert", "space_invaders"}


@pytest.mark.parametrize("game", sorted(ZOO | {*published.zoo()}))
def test_an_agent_that_ships_is_small_standard_and_plays(game: str) -> None:
    folder = published.folder_at(f"zoo:{game}")
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 1.5e6
    weights = load_file(folder / "checkpoints" / "best.safetensors").values()
    assert {array.dtype for array in weights if array.dtype.kind == "f"} == {np.dtype(np.float16)}
    facts, evaluation = (json.loads((folder / f"{name}.json").read_text()) for name in ("run", "evaluation"))
    agent = dqnspeed.load(f"zoo:{game}", device="cpu")
    trained = from_hydra(resume.load_run(folder))
    assert protocol_of(trained) == facts["protocol"] == "standard" and len(evaluation["games"]) == 100
    with agent.make_env() as env:
        observation, _ = env.reset(seed=0)
        assert env.action_space.contains(agent.act(observation))
    assert f"run=zoo:{game}\n" in (folder / "README.md").read_text()


def test_the_zoo_is_listed_played_loaded_and_started_from(zoo: Path, run_here: Command) -> None:
    code, shown, _ = run_here(play_command, "zoo=list")
    row = shown.splitlines()[1]
    evaluation = json.loads((zoo / "breakout" / "evaluation.json").read_text())
    assert code == 0 and row.split()[:4] == [
        "zoo:breakout", f"{evaluation['return_mean']:.2f}", f"{evaluation['return_std']:.2f}", "2",
    ]  # fmt: skip
    assert row.endswith("custom (env.max_episode_frames=200)")
    before = names_in(zoo)
    code, shown, errors = run_here(play_command, "run=zoo:breakout", "screen=none", "episodes=2")
    assert (code, errors) == (0, "") and Path("outputs/play/breakout/play.jsonl").exists() and names_in(zoo) == before
    assert dqnspeed.load("zoo:breakout").config.env.id == dqnspeed.load(zoo / "breakout").config.env.id
    line = [*BREAKOUT, "init=zoo:breakout", "stop.max_steps=8", "checkpoint.every_minutes=0"]
    results = dqnspeed.train(line, folder="tuned")
    assert results.config["init"] == "zoo:breakout" and "init=zoo:breakout" in results.summary["label"]
    assert "changes the algorithm" in results.summary["kind"]


def test_an_empty_zoo_says_so(tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ZOO", tmp_path)
    assert run_here(play_command, "zoo=list")[:2] == (0, "The zoo of this version is empty.\n")
    code, _, errors = run_here(play_command, "run=zoo:pong")
    assert (code, errors) == (2, "dqnspeed: zoo:pong: there is no such agent. The zoo of this version is empty.\n")


class Weights(dqnspeed.Callback):
    """Keeps the weights that a training starts with."""

    def on_training_start(self, training: Any) -> None:
        self.kept = {name: array.clone().numpy() for name, array in training.network.state_dict().items()}


def assert_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("algo", ["dqn", "ppo", "sac_discrete"])
def test_a_run_starts_from_weights_and_a_resumed_one_does_not(algo: str, tmp_path: Path) -> None:
    line = [*TOY, f"algo={algo}", "num_envs=2", "optimizer.lr=0.01"]
    dqnspeed.train([*line, "stop.max_steps=400"], folder=tmp_path / "first")
    best = dqnspeed.load(tmp_path / "first", trust=True).network.state_dict()
    weights = Weights()
    line += [f"init={tmp_path / 'first'}", "seed=5"]
    dqnspeed.train([*line, "stop.max_steps=600"], folder=tmp_path / "second", callbacks=[weights])
    assert_equal(weights.kept, {name: array.numpy() for name, array in best.items()})
    final = dqnspeed.load(tmp_path / "second", "final", trust=True).network.state_dict()
    assert any((final[name] != best[name]).any() for name in best), "nothing was learnt"
    shutil.rmtree(tmp_path / "first")  # which a resumed run does not need
    dqnspeed.train([f"resume={tmp_path / 'second'}", "stop.max_steps=700"], callbacks=[weights])
    assert_equal(weights.kept, {name: array.numpy() for name, array in final.items()})


def test_the_target_network_starts_from_the_weights_too(tmp_path: Path) -> None:
    dqnspeed.train([*TOY, "stop.max_steps=400"], folder=tmp_path / "first")
    line = [*TOY, f"init={tmp_path / 'first'}", "stop.max_steps=60", "algo.target_update_every=100000"]
    dqnspeed.train(line, folder=tmp_path / "second")
    learner = state_file.load(tmp_path / "second" / "checkpoints" / "final.safetensors")["learner"]
    assert_equal(
        learner["target"],
        {
            name: array.numpy()
            for name, array in dqnspeed.load(tmp_path / "first", trust=True).network.state_dict().items()
        },
    )


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["model.hidden=[16]"], r"its network differs; \S+ is \S+ there and \S+ here\. Use its env, algo and model\."),
        (
            ["algo=dqn", "num_envs=1"],
            r"its network differs; \S+ is \S+ there and \S+ here\. Use its env, algo and model\.",
        ),
        (
            ["wrappers.noop_max=0"],
            r"was trained by the protocol custom \(env\.max_episode_frames=200\), and this run has custom "
            r"\(wrappers\.noop_max=0, env\.max_episode_frames=200\)\. Use its wrappers and env\.",
        ),
        (["model.input_scale=64"], r"was trained with another input scale\. Use model\.input_scale=null\."),
    ],
    ids=["model", "algo", "protocol", "scale"],
)
def test_weights_of_another_network_or_protocol_are_refused_with_what_differs(
    overrides: list[str], sentence: str, zoo: Path
) -> None:
    with pytest.raises(ConfigError, match=f"^init=zoo:breakout: {sentence}$"):
        dqnspeed.train([*BREAKOUT, "init=zoo:breakout", *overrides], folder="new")
    assert not Path("new").exists()


def test_other_mistakes_with_init_are_one_sentence_each(zoo: Path, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for init, sentence in (
        ("zoo:brekout", "zoo:brekout: there is no such agent (nearest: breakout). Choose one of breakout."),
        ("zoo:../zoo/breakout", "zoo:../zoo/breakout: there is no such agent"),
        (str(tmp_path / "none"), f"init={tmp_path / 'none'}: holds no checkpoint. Name the folder of a run, or zoo:G"),
        (str(tmp_path / "empty"), f"init={tmp_path / 'empty'}: holds no checkpoint. "),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
            dqnspeed.compose([*BREAKOUT, f"init='{init}'"])
    with pytest.raises(ConfigError, match=r"^init: cannot be changed in a resumed run; "):
        dqnspeed.train([f"resume={runs / 'catch'}", "init=zoo:breakout"])
    for address in (runs / "of_catch", "zoo:breakout"):
        with pytest.raises(ConfigError, match=r"is a published agent, which has no state to resume\. Use init="):
            dqnspeed.train([f"resume={address}", "trust=true"])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def forge(path: Path) -> None:
    """Cut the file, with an index that knows the rest."""
    cut(path)
    published.write_index(path.parents[1])


def hostile(facts: str) -> Callable[[Path], None]:
    """Replaces all but the arrays of a file, with a checksum and an index that are right."""

    def damage(path: Path) -> None:
        arrays = load_file(path)
        save_file(arrays, path, metadata={"facts": facts, "sha256": state_file._checksum(facts, arrays)})
        published.write_index(path.parents[1])

    return damage


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("checkpoints/best.safetensors", hostile("[]"), "best.safetensors is damaged or no checkpoint (KeyError"),
        ("checkpoints/best.safetensors", hostile('{"learner": 1}'), "is damaged or no checkpoint (TypeError"),
        ("checkpoints/best.safetensors", hostile("[" * 200_000), "is damaged or no checkpoint (RecursionError"),
        ("checkpoints/best.safetensors", cut, "best.safetensors: does not match its SHA-256 in index.json. Get the fo"),
        ("checkpoints/best.safetensors", forge, "best.safetensors is damaged or no checkpoint ("),
        ("config.json", cut, "config.json: does not match its SHA-256"),
        ("curve.csv", Path.unlink, "curve.csv: is missing, and listed in index.json. Get the folder again."),
        ("index.json", cut, "index.json: is damaged (JSONDecodeError). Get the folder again."),
        ("index.json", lambda path: path.write_text('{"files": {"../../x": ""}}'), "names ../../x, which is outside"),
        ("index.json", lambda path: path.write_text("[]"), "index.json: is damaged (TypeError)."),
    ],
)
def test_a_damaged_file_is_one_sentence(
    name: str, damage: Callable[[Path], Any], sentence: str, zoo: Path, run_here: Command
) -> None:
    damage(zoo / "breakout" / name)
    code, _, errors = run_here(play_command, "run=zoo:breakout", "screen=none", "episodes=1")
    assert code == 2 and errors.startswith("dqnspeed: ") and sentence in errors and errors.count("\n") == 1
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        dqnspeed.compose([*BREAKOUT, "init=zoo:breakout"])


def test_a_card_may_be_edited(zoo: Path) -> None:
    (zoo / "breakout" / "README.md").write_text("my agent")
    assert dqnspeed.load("zoo:breakout").agent_steps > 0


def test_foreign_code_of_a_published_agent_needs_trust(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^env\.id=toy_envs:Catch-v0: runs code that .* Add trust=true"):
        dqnspeed.load(runs / "of_catch")
    received = tmp_path / "received"
    shutil.copytree(runs / "catch", received)
    (received / "config.json.hmac").unlink()
    with pytest.raises(ConfigError, match=r"^env\.id=toy_envs:Catch-v0: runs code that .* Add trust=true"):
        make(received, tmp_path / "to")
    assert make(received, tmp_path / "to", "trust=true").is_dir()


def test_mistakes_of_publish_are_one_sentence_each(
    runs: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dqnspeed.train([*TOY, "stop.max_steps=60", "checkpoint=none"], folder="unsaved")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    before = names_in(runs / "of_catch")
    for line, sentence in (
        ([f"run={runs / 'catch'}", f"to={runs / 'of_catch'}"], f"to={runs / 'of_catch'}: a published agent is there"),
        ([f"run={runs / 'catch'}", "to=full"], "to=full: something else is there already. Name a new folder."),
        ([f"run={runs / 'catch'}", "to=file/below", "video=false"], f"to={tmp_path}/file/below: cannot be written ("),
        ([f"run={runs / 'of_catch'}", "to=new"], f"run={runs / 'of_catch'}: is published already. Copy its folder."),
        (["run=unsaved", "to=new", "video=false"], "checkpoint=best: is not in unsaved/checkpoints. The run has saved"),
        (["run=unsaved", "to=new", "video=maybe"], "video=maybe: must be true or false."),
        (["run=nowhere", "to=new", "video=false"], "nowhere: there is no such folder."),
        (["run=unsaved"], "to: is missing; give to=VALUE, new folder to give away; or "),
    ):
        code, _, errors = run_here(publish_command, *line)
        assert code == 2 and errors.startswith(f"dqnspeed: {sentence}") and errors.count("\n") == 1, errors
    assert names_in(runs / "of_catch") == before and names_in(tmp_path / "full") == {"file"}
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob("*.partial"))


def test_a_game_without_images_is_published_without_a_film(tmp_path: Path) -> None:
    dqnspeed.train([*TOY, "stop.max_steps=100"], folder=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^video=true: .*Leave the film out with video=false\.$"):
        make(tmp_path / "run", tmp_path / "to", "video=true")
    assert (make(tmp_path / "run", tmp_path / "to") / "README.md").exists()


def test_a_publish_that_is_terminated_leaves_nothing(runs: Path, tmp_path: Path) -> None:
    line = [f"run={runs / 'breakout'}", "to=new", "episodes=100000", "video=false"]
    with forked.Forked("dqnspeed.publish", *line, cwd=tmp_path, env=environment()) as run:
        run.wait_for(lambda: list(tmp_path.glob("new.*.partial/curve.csv")))
        run.terminate()
        _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (128 + signal.SIGTERM, "") and list(tmp_path.iterdir()) == []
