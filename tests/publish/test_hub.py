"""``hub:USER/NAME``: uploads, downloads, and what is refused; the library talks to a server on this machine."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from conftest import environment
from hub_server import TOKEN, HubServer

import dqnspeed
from dqnspeed.config.options import ConfigError
from dqnspeed.publish.card import renamed
from dqnspeed.publish.command import COMMAND_LINE, publish
from dqnspeed.tracking.hub import name_in_cache, pinned, with_commits

Call = Callable[..., subprocess.CompletedProcess[str]]
CATCH = ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=mlp", "model.hidden=[8]", "algo.learning_starts=90",
         "algo.batch_size=8", "execution.threads=1", "tracking=local", "tracking.progress=off",
         "stop.max_steps=300"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and a published folder of it."""
    folder = tmp_path_factory.mktemp("runs")
    dqnspeed.train(CATCH, folder=folder / "catch")
    publish(COMMAND_LINE.read([f"run={folder / 'catch'}", f"to={folder / 'given'}", "episodes=2", "video=false"])[0])
    return folder


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with contextlib.closing(HubServer()) as server:
        yield server


@pytest.fixture
def call(hub: HubServer, tmp_path: Path) -> Call:
    """Runs a command of dqnspeed, whose Hub is the server."""

    def one(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_TOKEN": TOKEN,
               "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1"}  # fmt: skip
        env = {name: value for name, value in {**environment(), **own, **variables}.items() if value}
        return forked.run(f"dqnspeed.{name}", *arguments, cwd=tmp_path, env=env, timeout=120)

    return one


def serve(hub: HubServer, folder: Path, repo: str = "me/catch") -> str:
    """Put the files of ``folder`` into a repository; returns its address."""
    hub.repos[repo] = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return f"hub:{repo}"


def test_an_agent_is_uploaded_and_played_elsewhere(runs: Path, hub: HubServer, call: Call, tmp_path: Path) -> None:
    done = call("publish", f"run={runs / 'catch'}", "to=hub:me/catch", "episodes=20", "video=false")
    assert done.returncode == 0, done.stderr
    assert f"{hub.url}/me/catch\nplay it: " in done.stdout and "run=hub:me/catch" in done.stdout
    assert {"index.json", "config.json", "checkpoints/best.safetensors", "README.md"} <= hub.repos["me/catch"].keys()
    card = hub.repos["me/catch"]["README.md"].decode()
    assert "run=hub:me/catch\n" in card and 'dqnspeed.load("hub:me/catch")' in card
    assert not list((tmp_path / "outputs" / "publish").iterdir())

    play = ["episodes=10", "screen=none", "trust=true"]
    played = call("play", "run=hub:me/catch", *play, HF_TOKEN="")
    assert played.returncode == 0, played.stderr
    exact = f"hub:me/catch@{hub.commit('me/catch')}"
    assert f"hub:me/catch is {exact}\n" in played.stdout and "the card says" in played.stdout
    assert (tmp_path / "outputs" / "play" / "me_catch" / "play.jsonl").exists()

    hub.close()  # what was pinned is in the cache
    again = call("play", f"run={exact}", *play)
    assert again.returncode == 0 and "mean return" in again.stdout, again.stderr
    gone = call("play", "run=hub:me/catch", *play)
    assert gone.returncode == 2 and re.match(r"dqnspeed: hub:me/catch: http\S+ cannot be used \(", gone.stderr)


def test_a_published_folder_is_uploaded_as_it_is(runs: Path, hub: HubServer, call: Call) -> None:
    done = call("publish", f"run={runs / 'given'}", "to=hub:me/other")
    assert done.returncode == 0, done.stderr
    files = hub.repos["me/other"]
    assert files["evaluation.json"] == (runs / "given" / "evaluation.json").read_bytes()
    assert "run=hub:me/other\n" in files["README.md"].decode() and "run=given" not in files["README.md"].decode()
    assert call("play", "run=hub:me/other", "episodes=1", "screen=none", "trust=true").returncode == 0


def test_a_training_starts_from_the_hub_and_names_the_revision(
    runs: Path, hub: HubServer, call: Call, tmp_path: Path
) -> None:
    address = serve(hub, runs / "given")
    done = call("train", *CATCH, f"init={address}", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    exact = f"{address}@{hub.commit('me/catch')}"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["init"] == exact

    option_file = tmp_path / "conf" / "experiment" / "mine.yaml"
    option_file.parent.mkdir(parents=True)
    option_file.write_text(f"# @package _global_\ndefaults:\n  - /experiment/baseline\ninit: {address}\n")
    done = call("train", "--config-dir=conf", *CATCH, "experiment=mine", "hydra.run.dir=run2")
    sentence = f"dqnspeed: init={address}: a file of options has to name the commit. Use init: {exact}."
    assert done.returncode == 2 and sentence in done.stderr, done.stderr


def test_compose_names_the_revision(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = f"hub:me/catch@{'0' * 40}"
    monkeypatch.setattr("dqnspeed.tracking.hub.pinned", lambda _: exact)
    monkeypatch.setattr("dqnspeed.tracking.hub.download", lambda *_: runs / "given")
    assert dqnspeed.compose([*CATCH, "init=hub:me/catch"]).init == exact


def test_a_file_that_was_cut_is_fetched_again(runs: Path, hub: HubServer, call: Call, tmp_path: Path) -> None:
    play = ["play", f"run={serve(hub, runs / 'given')}", "episodes=1", "screen=none", "trust=true"]
    assert call(*play).returncode == 0
    [weights] = (tmp_path / "cache").rglob("best.safetensors")
    whole = weights.read_bytes()
    weights.resolve().write_bytes(whole[:100])
    done = call(*play)
    assert done.returncode == 0, done.stderr
    assert weights.read_bytes() == whole


def test_code_of_a_download_is_not_imported(runs: Path, hub: HubServer, call: Call) -> None:
    done = call("play", f"run={serve(hub, runs / 'given')}", "episodes=1", "screen=none")
    assert done.returncode == 2
    assert "env.id=toy_envs:Catch-v0: runs code that " in done.stderr and "trust=true" in done.stderr


def test_a_bad_download_is_one_sentence(runs: Path, hub: HubServer, call: Call) -> None:
    serve(hub, runs / "given", "me/empty")
    del hub.repos["me/empty"]["index.json"]
    serve(hub, runs / "given", "me/large")
    serve(hub, runs / "given", "me/outside")
    hub.repos["me/outside"]["../../../evil"] = b"evil"
    serve(hub, runs / "given", "me/changed")
    hub.repos["me/changed"]["config.json"] += b" "
    exact = {name: f"{name}@{hub.commit(name)}" for name in ("me/empty", "me/outside")}
    for name, sentence in {
        "me/nothing": "me/nothing: the Hub has no such agent, or it is private. Run hf auth login for your own.",
        "me/empty": f"{exact['me/empty']}: holds no agent of dqnspeed (no index.json). Check the name.",
        "me/empty@nowhere": "me/empty@nowhere: the Hub has no such revision. Leave it out to get the newest.",
        "me/outside": f"{exact['me/outside']}: names ../../../evil, which is outside of its folder. Do not use it.",
        "me": "me: is no address of the Hub. Give hub:USER/NAME, or hub:USER/NAME@REVISION.",
    }.items():
        done = call("play", f"run=hub:{name}", "screen=none")
        assert (done.returncode, done.stderr) == (2, f"dqnspeed: hub:{sentence}\n"), done.stdout
    changed = call("play", "run=hub:me/changed", "screen=none")
    assert changed.returncode == 2 and "does not match its SHA-256 in index.json." in changed.stderr
    hub.sizes["config.json"] = 600 * 2**20
    large = call("play", "run=hub:me/large", "screen=none")
    assert large.returncode == 2 and large.stderr.endswith(
        ": has 600 MiB, for at most 500 of an agent. Check the name.\n"
    )


def test_a_bad_upload_is_refused_before_anything_is_played(runs: Path, hub: HubServer, call: Call) -> None:
    hub.repos["me/paper"] = {"index.json": b"{}", "paper.pdf": b"", ".gitattributes": b""}
    for to, token, sentence in (
        ("hub:me/new", "", "needs a token. Run hf auth login, or set HF_TOKEN."),
        ("hub:me/new", "hf_bad", "the Hub refuses the token. Run hf auth login with a token that may write there."),
        ("hub:you/new", TOKEN, "the token is of me, who cannot write for you. Use another."),
        ("hub:me/paper", TOKEN, "holds no agent of dqnspeed. Give another name."),
        ("hub:me/new@main", TOKEN, "an upload takes no revision. Give hub:USER/NAME."),
    ):
        done = call("publish", f"run={runs / 'catch'}", f"to={to}", HF_TOKEN=token)
        assert (done.returncode, done.stderr) == (2, f"dqnspeed: to={to}: {sentence}\n")
        assert "plays" not in done.stdout
    assert hub.repos.keys() == {"me/paper"}


def test_an_upload_that_fails_keeps_the_folder(runs: Path, hub: HubServer, call: Call, tmp_path: Path) -> None:
    hub.takes_commits = False
    done = call("publish", f"run={runs / 'catch'}", "to=hub:me/catch", "episodes=2", "video=false")
    assert done.returncode == 2 and "The folder is kept: " in done.stderr
    [kept] = (tmp_path / "outputs" / "publish").glob("me_catch_*")
    assert f"publish run={kept.relative_to(tmp_path)} to=hub:me/catch" in done.stderr
    hub.takes_commits = True
    assert call("publish", f"run={kept}", "to=hub:me/catch").returncode == 0


def test_files_of_others_are_not_uploaded(runs: Path, hub: HubServer, call: Call, tmp_path: Path) -> None:
    shutil.copytree(runs / "given", tmp_path / "agent")
    (tmp_path / "agent" / ".env").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "agent" / "more").symlink_to(tmp_path / "secret")
    earlier = ["index.json", "config.json", "checkpoints/best.safetensors", "replay.mp4"]
    hub.repos["me/agent"] = dict.fromkeys(earlier, b"of an earlier upload")
    done = call("publish", "run=agent", "to=hub:me/agent")
    assert done.returncode == 0, done.stderr
    given = {str(path.relative_to(runs / "given")) for path in (runs / "given").rglob("*") if path.is_file()}
    assert hub.repos["me/agent"].keys() == given
    (tmp_path / "agent" / "README.md").unlink()
    (tmp_path / "agent" / "README.md").symlink_to(tmp_path / "secret")
    done = call("publish", "run=agent", "to=hub:me/agent")
    assert (
        done.returncode == 2
        and "agent/README.md: is a link to a file elsewhere. Replace it by the file." in done.stderr
    )
    done = call("publish", "run=agent", "to=hub:me/agent", "half=true")
    assert done.stderr == "dqnspeed: half=true: is for a run, and agent is published. Leave it out.\n"


def test_all_jobs_of_a_sweep_start_from_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = iter(["0" * 40, "1" * 40])
    monkeypatch.setattr("dqnspeed.tracking.hub.pinned", lambda address: f"{address}@{next(commits)}")
    given = ["-m", "init=hub:a/b,null,hub:c/d,hub:a/b", "++init=choice(hub:a/b)", "env=hub:e/f"]
    first, second = f"hub:a/b@{'0' * 40}", f"hub:c/d@{'1' * 40}"
    assert with_commits(given) == [
        "-m",
        f"init={first},null,{second},{first}",
        f"++init=choice({first})",
        "env=hub:e/f",
    ]


def test_a_hub_that_does_not_answer_is_given_up(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = call("play", "run=hub:me/catch", "screen=none", HF_ENDPOINT=address)
    sentence = f"dqnspeed: hub:me/catch: {address} does not answer. Try again later.\n"
    assert (done.returncode, done.stderr) == (2, sentence)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"^hub:a/b: needs huggingface_hub\. pip install 'dqnspeed\[hub\]' "):
        pinned("hub:a/b")


def test_a_card_that_somebody_edited_is_left_alone(tmp_path: Path) -> None:
    assert renamed("# mine\n", "hub:a/b") == "# mine\n"
    card = "{play}\npython -m dqnspeed.train {init} init=old_1\n`dqnspeed.load({load})`, older\n"
    for old, quote in (("old", ""), ("my agent", "'")):
        given = {"play": f"python -m dqnspeed.play {quote}run={old}{quote}", "init": f"{quote}init={old}{quote}"}
        wanted = {"play": "python -m dqnspeed.play run=hub:a/b", "init": "init=hub:a/b", "load": '"hub:a/b"'}
        changed = card.format(**wanted)
        assert renamed(card.format(**given, load=f'"{old}"'), "hub:a/b") == changed
    assert name_in_cache(tmp_path / "models--me--catch" / "snapshots" / ("0" * 40)) == "me_catch"
    assert name_in_cache(tmp_path) is None
