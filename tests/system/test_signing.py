"""Signatures by a key of the user's own."""

from __future__ import annotations

import json
import shutil
import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from dqnspeed.system import signing


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dqnspeed" / "key"


def test_a_file_is_known_again_wherever_it_lies_and_not_when_it_is_changed(tmp_path: Path, state: Path) -> None:
    path = tmp_path / "one" / "it.json"
    path.parent.mkdir()
    assert signing.read(path) is None and not state.exists()  # reading makes no key
    signing.write(path, {"a": [1, float("nan")]})
    assert signing.read(path) == {"a": [1, None]}
    assert stat.S_IMODE(state.stat().st_mode) == 0o600 and len(state.read_bytes()) == 32
    path.parent.rename(tmp_path / "two")
    path = tmp_path / "two" / "it.json"
    assert signing.read(path) == {"a": [1, None]}
    for name in ("it.json", "it.json.hmac"):
        shutil.copy(path.with_name(name), path.with_name(name.replace("it", "other")))
    assert signing.read(path.with_name("other.json")) is None  # a file of another name says something else
    before = path.read_text()
    path.write_text(before.replace("1", "2"))
    assert signing.read(path) is None
    signing.write(path, {"b": 1})
    assert signing.read(path) == {"b": 1}
    path.write_text(before)
    for spoilt in ("", "ü", "a\n" * 9):
        path.with_name("it.json.hmac").write_text(spoilt)
        assert signing.read(path) is None
    signing.write(path, {})
    state.write_bytes(b"x" * 32)  # of another user
    assert signing.read(path) is None


def test_a_kill_within_a_write_leaves_a_signed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "it.json", signing.atomic.write_text
    signing.write(path, {"a": 1})

    def killed(at: Path, text: str) -> None:
        if at == path:
            raise KeyboardInterrupt
        write(at, text)

    monkeypatch.setattr(signing.atomic, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        signing.write(path, {"a": 2})
    assert signing.read(path) == {"a": 1}


def test_a_short_key_signs_nothing(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.touch()
    signing.write(tmp_path / "it.json", {})
    assert json.loads((tmp_path / "it.json").read_text()) == {} and signing.read(tmp_path / "it.json") is None


def test_processes_that_begin_at_once_have_one_key(tmp_path: Path, state: Path) -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        list(pool.map(signing.write, [tmp_path / f"{i}.json" for i in range(20)], range(20)))
    assert [signing.read(tmp_path / f"{i}.json") for i in range(20)] == list(range(20))
    assert [*state.parent.iterdir()] == [state]
