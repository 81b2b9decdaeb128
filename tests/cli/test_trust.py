"""Code that a received folder names is never imported unless the command line asks for it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import forked
import pytest
from conftest import TOY, environment

import dqnspeed
from dqnspeed.cli import plugins, trust
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.sweep_record import Job, Line, Record
from dqnspeed.config.options import ConfigError
from dqnspeed.system import signing
from dqnspeed.tracking.run_folder import BEGUN, CONFIG, SWEEP_JOBS
from dqnspeed.training import state_file

EVIL = "open({marker!r}, 'w').close()\nfrom toy_envs import Counter\nclass Env(Counter):\n    pass\n"
SMALL = [*TOY, "stop.max_steps=100"]


def rename(folder: Path, env_id: str, before: str = "toy_envs:Counter-v0") -> None:
    """Give the run in ``folder`` another environment, in all of its files."""
    for name in (CONFIG, BEGUN):
        path = folder / name
        path.write_text(path.read_text().replace(before, env_id))
    for path in (folder / "checkpoints").iterdir():
        state = state_file.load(path)
        state["config"]["env"]["id"] = env_id
        state_file.save(path, state)


def laid(at: Path, marker: Path) -> None:
    """Write a module that makes the file ``marker`` when it is imported."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(EVIL.format(marker=str(marker)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two runs, the second of which has not begun."""
    folder = tmp_path_factory.mktemp("made")
    result = forked.run(
        "dqnspeed.train", "-m", *SMALL, "seed=1", "hydra.sweep.dir=sweep",
        cwd=folder, env=environment(), timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder / "sweep"


@pytest.fixture
def received(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of somebody else's, and the file that its code writes."""
    shutil.copytree(made / "0", tmp_path / "received")
    rename(tmp_path / "received", "received.evil:Env")
    laid(tmp_path / "received" / "evil.py", tmp_path / "marker")
    return tmp_path / "received", tmp_path / "marker"


@pytest.fixture
def received_sweep(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A sweep of somebody else's, and the file that its code writes."""
    folder, marker = tmp_path / "received", tmp_path / "marker"
    shutil.copytree(made, folder)
    laid(folder / "evil.py", marker)
    rename(folder / "0", "received.evil:Env")
    return folder, marker


def start(module: str, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(f"dqnspeed.{module}", *arguments, cwd=cwd, env=environment(), timeout=120)


REFUSED = (
    "env.id=received.evil:Env: runs code that received names, which was not made here. Add trust=true if you trust "
    "its author."
)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("play", ["run=received/checkpoints/best.safetensors", "episodes=1"]),
        ("train", ["resume=received", "stop.max_steps=200"]),
    ],
)
def test_a_namespace_package_needs_trust(module: str, arguments: list[str], received: tuple[Path, Path]) -> None:
    folder, marker = received
    result = start(module, folder.parent, *arguments)
    assert result.returncode == 2 and not marker.exists()
    assert result.stderr.startswith("dqnspeed: env.id=received.evil:Env: runs code that ")
    assert "Add trust=true" in result.stderr and result.stderr.count("\n") == 1
    result = start(module, folder.parent, *arguments, "trust=true")
    assert result.returncode == 0 and marker.exists(), result.stderr
    marker.unlink()
    result = start("play", folder.parent, "run=received", "episodes=1")  # a run resumed here counts as made here
    assert (result.returncode == 0) == marker.exists() == (module == "train")


def test_the_newest_run_is_played_with_trust_alone(received: tuple[Path, Path]) -> None:
    folder, marker = received
    (folder.parent / "outputs").mkdir()
    folder.rename(folder.parent / "outputs" / "received")
    laid(folder.parent / "received" / "evil.py", marker)  # a module in the working folder
    result = start("play", folder.parent, "episodes=1")
    assert result.returncode == 2 and "env.id=received.evil:Env: runs code" in result.stderr and not marker.exists()
    assert start("play", folder.parent, "episodes=1", "trust=true").returncode == 0 and marker.exists()


@pytest.mark.parametrize("how", ["a link", "beside"])
def test_a_module_beside_the_folder_and_a_linked_folder_run_no_code(how: str, received: tuple[Path, Path]) -> None:
    folder, marker = received
    renamed_id = "evil:Env" if how == "beside" else "link.evil:Env"
    path = folder / CONFIG
    path.write_text(path.read_text().replace("received.evil:Env", renamed_id))
    for path in (folder / "checkpoints").iterdir():
        state = state_file.load(path)
        state["config"]["env"]["id"] = renamed_id
        state_file.save(path, state)
    laid(folder.parent / "evil.py", marker)
    (folder.parent / "link").symlink_to(folder)
    for module, arguments in (("play", ["run=link"]), ("train", ["resume=link", "stop.max_steps=200"])):
        result = start(module, folder.parent, *arguments)
        assert result.returncode == 2 and f"env.id={renamed_id}: runs code that link names" in result.stderr
    assert not marker.exists()


def test_a_checkpoint_is_looked_at_before_anything_is_imported(made: Path, tmp_path: Path) -> None:
    """Also of a run that may import what it names."""
    shutil.copytree(made / "0", tmp_path / "run")
    rename(tmp_path / "run", "evil:Env")
    laid(tmp_path / "evil.py", tmp_path / "marker")
    (tmp_path / "run" / "checkpoints" / "best.safetensors").write_bytes(b"none")
    result = start("play", tmp_path, "run=run", "trust=true")
    assert result.returncode == 2 and "is damaged or no checkpoint" in result.stderr
    assert not (tmp_path / "marker").exists()


def test_the_python_api_needs_trust(received: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, marker = received
    monkeypatch.chdir(folder.parent)
    monkeypatch.syspath_prepend(str(folder.parent))
    for call in (lambda: dqnspeed.load("received"), lambda: dqnspeed.train(["resume=received", "stop.max_steps=200"])):
        with pytest.raises(ConfigError, match=r"^env\.id=received\.evil:Env: runs code that received names"):
            call()
    assert start("report", folder.parent, "received").returncode == 0 and not marker.exists()
    assert dqnspeed.load("received", trust=True).config.env.id == "received.evil:Env" and marker.exists()


def test_a_run_that_was_made_here_needs_no_trust_wherever_it_lies(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "0", tmp_path / "copied")
    for line in (["play", "run=copied", "episodes=1"], ["train", "resume=copied", "stop.max_steps=150"]):
        result = start(line[0], tmp_path, *line[1:])
        assert result.returncode == 0, result.stderr
    assert resuming.prepare([f"resume={tmp_path / 'copied'}", "stop.max_steps=200"]).config.stop.max_steps == 200
    config = tmp_path / "copied" / CONFIG
    signature = config.with_name("config.json.hmac")
    assert len(signature.read_text().split()[0]) == 64
    config.write_text(config.read_text() + " ")  # any change is somebody else's
    assert start("play", tmp_path, "run=copied").returncode == 2


def test_a_checkpoint_plays_by_itself(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "0", tmp_path / "run")
    shutil.copy(made / "0" / "checkpoints" / "best.safetensors", tmp_path / "it.safetensors")
    result = start("play", tmp_path, "run=run/checkpoints/final.safetensors", "episodes=1")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "play.jsonl").read_text())["checkpoint"] == "final.safetensors"
    result = start("play", tmp_path, "run=it.safetensors", "episodes=1")
    assert result.returncode == 2 and "env.id=toy_envs:Counter-v0: runs code" in result.stderr
    result = start("play", tmp_path, "run=it.safetensors", "episodes=1", "trust=true")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "play.jsonl").read_text())["games"]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"env": {"id": "a.b:Env"}}, ["env.id=a.b:Env"]),
        ({"env": {"id": "evil:CartPole-v1"}}, ["env.id=evil:CartPole-v1"]),  # which Gymnasium would import
        ({"env": {"id": "ALE/Pong-v5"}}, []),
        ({"env": {"id": "ale_py:ALE/Pong-v5"}}, []),
        ({"env": {"id": "plugin.envs:Env"}}, []),  # of an installed package
        ({"env": {"id": "plugin:Env"}}, ["env.id=plugin:Env"]),
        ({"env": {"id": "CartPole-v1", "kwargs": {"env_id": "evil:Env-v0"}}}, ["env.kwargs={'env_id': 'evil:Env-v0'}"]),
        ({"env": {"id": "CartPole-v1", "kwargs": {"at": ["12:30"]}}}, []),
        ({"env": {"id": "CartPole-v1", "kwargs": {"at": "evil: b"}}}, ["env.kwargs={'at': 'evil: b'}"]),
        ({"parallelism": {"name": "ray", "address": "host:6379"}}, ["parallelism.address=host:6379"]),
        ({"parallelism": {"name": "ray", "address": "auto"}}, []),
    ],
)
def test_code_in_a_configuration(config: dict[str, Any], named: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("it", "plugin.envs", plugins.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "installed", lambda: EntryPoints([point]))
    assert trust.code_in(config) == named


def test_what_is_typed_is_trusted_and_nothing_else(tmp_path: Path) -> None:
    config = {"parallelism": {"name": "ray", "address": "host:6379"}}
    trust.check_code(config, tmp_path, trusted=False, typed=["parallelism.address=host:6379"])
    with pytest.raises(ConfigError, match=r"^parallelism\.address=host:6379: runs code"):
        trust.check_code(config, tmp_path, trusted=False, typed=["parallelism.address=host:6380"])
    signing.write(tmp_path / CONFIG, config)
    trust.check_code(config, tmp_path, trusted=False)
    with pytest.raises(ConfigError, match=r"^env\.id=a:B: runs code"):  # as a checkpoint of another run says
        trust.check_code({"env": {"id": "a:B"}}, tmp_path, trusted=False)


@pytest.mark.parametrize(
    "text",
    [
        "env.id=evil:Env",
        "+hydra.callbacks.x._target_=os.system",
        "~hydra.callbacks.preflight",
        "hydra.searchpath=[received]",
        "hydra/launcher=ray",
        "+experiment@hydra.callbacks=evil",
        "experiment=../../received/evil",
        "env.id=${oc.env:HOME}",
    ],
)
def test_the_record_of_a_received_sweep_runs_no_code(text: str, tmp_path: Path) -> None:
    for line, job in (([*SMALL[1:], text], []), (SMALL[1:], [text])):
        record = {"line": {"overrides": line}, "jobs": [{"folder": "0", "overrides": job}]}
        (tmp_path / SWEEP_JOBS).write_text(json.dumps(record))
        with pytest.raises(ConfigError, match=r": may run code, and .*sweep\.json, .*, was not made here\."):
            Record(Line(line), [Job("0", job)]).check(tmp_path)
    signing.write(tmp_path / SWEEP_JOBS, record)
    Record(Line(line), [Job("0", job)]).check(tmp_path)


def test_a_received_sweep_goes_on_with_trust_alone(received_sweep: tuple[Path, Path], tmp_path: Path) -> None:
    folder, marker = received_sweep
    record = json.loads((folder / SWEEP_JOBS).read_text())
    missing = {"folder": "1", "overrides": [*record["jobs"][0]["overrides"], "seed=2"]}
    record["jobs"].append(missing)
    evil = json.loads(json.dumps(record).replace("toy_envs:Counter-v0", "received.evil:Env"))
    (folder / SWEEP_JOBS).write_text(json.dumps(evil))
    result = start("train", tmp_path, "sweep.resume=received")
    assert (result.returncode, result.stderr) == (2, (
        "dqnspeed: env.id=received.evil:Env: may run code, and received/sweep.json, which names it, was not made here. "
        "Give sweep.resume=received trust=true if you trust its author.\n"
    ))  # fmt: skip
    assert not marker.exists()
    result = start("train", tmp_path, "sweep.resume=received", "trust=true")
    assert result.returncode == 0 and marker.exists() and (folder / "1" / "summary.json").exists(), result.stderr
    result = start("train", tmp_path, "sweep.resume=received")  # which is made here now
    assert result.returncode == 0, result.stderr


def test_a_job_of_a_received_sweep_that_names_other_code_fails(
    received_sweep: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, marker = received_sweep
    (folder / "0" / "summary.json").unlink()  # so that it is resumed
    text = (folder / SWEEP_JOBS).read_text().replace("toy_envs:Counter-v0", "CartPole-v1")
    (folder / SWEEP_JOBS).write_text(text)
    result = start("train", tmp_path, "sweep.resume=received")
    assert result.returncode == 1 and "env.id=received.evil:Env: runs code that received/0 names" in result.stderr
    assert not marker.exists()


@pytest.mark.parametrize("name", ["/x", "0/../../x", ".", "link"])
def test_a_job_that_is_not_below_its_sweep_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "link").symlink_to(tmp_path)
    record = {"line": {"overrides": []}, "jobs": [{"folder": name, "overrides": []}]}
    (tmp_path / "sweep" / SWEEP_JOBS).write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"sweep\.json: has a job in .*, which is not below .*/sweep; delete"):
        Record.read(tmp_path / "sweep")


def test_where_no_key_can_be_kept_a_run_trains_and_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = {**environment(), "XDG_STATE_HOME": str(tmp_path / "file")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run("dqnspeed.train", *arguments, cwd=tmp_path, env=nowhere, timeout=120)

    result = run(*SMALL, "hydra.run.dir=run")
    assert result.returncode == 0, result.stdout
    result = run("resume=run", "stop.max_steps=150")
    assert result.returncode == 2 and "env.id=toy_envs:Counter-v0: runs code" in result.stderr
    assert run("resume=run", "stop.max_steps=150", "trust=true").returncode == 0
    result = run(*SMALL, "env.id=CartPole-v1", "hydra.run.dir=registered")
    assert result.returncode == 0
    assert run("resume=registered", "stop.max_steps=150").returncode == 0
    assert not (tmp_path / "run" / "config.json.hmac").exists()


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "episodes.csv", ".lock", "checkpoints", "videos", ".hydra", "train.log", "play.jsonl"]
)
def test_nothing_is_written_through_a_link(name: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "0", tmp_path / "run")
    kept, link = tmp_path / "kept", tmp_path / "run" / name
    if link.is_dir():
        link.rename(kept)
    else:
        link.unlink(missing_ok=True)
        kept.write_text("a line\n" * 400)
    link.symlink_to(kept)
    before = {path: path.read_bytes() for path in (kept, *kept.rglob("*")) if path.is_file()}
    if name in ("videos", "play.jsonl", ".lock"):
        result = start("play", tmp_path, "run=run", "episodes=1", "checkpoint=final")
    else:
        result = start("train", tmp_path, "resume=run", "stop.max_steps=200")
    assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith(f"dqnspeed: run/{name}: is a link") or name == ".lock", result.stderr
    assert {path: path.read_bytes() for path in (kept, *kept.rglob("*")) if path.is_file()} == before


def test_a_link_that_stays_inside_and_one_that_a_run_does_not_write_are_left_alone(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "0", tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "newest.safetensors").symlink_to("final.safetensors")
    (tmp_path / "run" / "notes").symlink_to(tmp_path)
    assert start("train", tmp_path, "resume=run", "stop.max_steps=150").returncode == 0


def test_a_sweep_writes_through_no_link(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "sweep")
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "sweep" / "multirun.yaml").unlink()
    (tmp_path / "sweep" / "multirun.yaml").symlink_to(tmp_path / "kept")
    (tmp_path / "sweep" / "0" / "summary.json").unlink()
    result = start("train", tmp_path, "sweep.resume=sweep")
    assert result.returncode == 2 and "sweep/multirun.yaml: is a link that leads out" in result.stderr
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_configuration_that_refers_to_itself_is_not_read(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "0", tmp_path / "run")
    config = tmp_path / "run" / CONFIG
    config.write_text(config.read_text().replace('"toy_envs:Counter-v0"', '"${env.id}${env.id}"'))
    with pytest.raises(ConfigError, match="refers to other values"):
        resuming.load_run(tmp_path / "run")


def test_the_files_of_a_run_and_a_sweep_have_the_mode_of_the_umask(made: Path) -> None:
    umask = os.umask(0o022)
    os.umask(umask)
    files = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) > 10 and {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}
