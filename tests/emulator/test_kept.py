"""What Warp keeps of what it compiled: damaged, or not to be written."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import environment

pytest.importorskip("warp")

from dqnspeed.emulator import compiling

PLAY = "from dqnspeed.emulator import Games; Games('pong', 1).begin([0])"


def run(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = {**environment(), "WARP_CACHE_PATH": str(cache)}
    return subprocess.run([sys.executable, *arguments], env=given, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_what_is_damaged_of_it_is_compiled_anew(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", PLAY).returncode == 0
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".o", ".meta")]
    assert {path.suffix for path in kept} == {".o", ".meta"}
    small = [path for path in kept if "run_with" not in path.name]  # takes moments to compile
    assert small
    for suffix in (".o", ".meta"):
        whole = {path: path.read_bytes() for path in small if path.suffix == suffix}
        for path, content in whole.items():
            path.write_bytes(content[: len(content) // 2])
        again = run(tmp_path, "-c", PLAY)
        assert again.returncode == 0, again.stderr
        assert all(len(path.read_bytes()) > len(content) // 2 for path, content in whole.items())


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_sentence_and_ale_plays(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    alone = run(taken / "cache", "-m", "dqnspeed.emulator", "game=pong")
    assert alone.returncode == 1 and alone.stderr.count("\n") == 1
    assert alone.stderr.startswith("dqnspeed.emulator: Warp does not start here (")
    asked = run(taken / "cache", "-m", "dqnspeed.train", "backend=atari_warp", f"hydra.run.dir={tmp_path / 'run'}")
    assert asked.returncode == 2 and asked.stderr.startswith(
        "dqnspeed: backend=atari_warp: dqnspeed.emulator: Warp does"
    )
    code = "import dqnspeed; print(dqnspeed.compose(['backend=auto']).backend.name)"
    assert run(taken / "cache", "-c", code).stdout.strip() == "native"


def test_of_those_that_start_together_one_compiles_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warp.config.kernel_cache_dir", str(tmp_path))
    entered = threading.Event()

    def enter() -> None:
        with compiling._in_turn("one"):  # a file is locked by whoever has opened it, in this process or in another
            entered.set()

    with compiling._in_turn("one"), compiling._in_turn("another"):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.3)
    assert entered.wait(60)
    other.join()
    assert {path.name for path in tmp_path.iterdir()} == {"one.lock", "another.lock"}
    monkeypatch.setattr(compiling, "PATIENCE_S", 0.1)
    with compiling._in_turn("one"), compiling._in_turn("one"):  # goes on after a while
        pass
