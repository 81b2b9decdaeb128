"""Warp's cache of compiled kernels: damaged files, a folder that cannot be written, and processes at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from atari_warp import kernel_cache

PLAY = "from atari_warp import ConsoleBatch; ConsoleBatch('pong', 1).reset([0])"


def run(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "WARP_CACHE_PATH": str(cache), "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=200)


@pytest.mark.integration
def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", PLAY).returncode == 0
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".o", ".meta")]
    assert {path.suffix for path in files} == {".o", ".meta"}
    small = [path for path in files if "run_with" not in path.name]  # kernels that compile quickly
    assert small
    for suffix in (".o", ".meta"):
        intact = {path: path.read_bytes() for path in small if path.suffix == suffix}
        for path, content in intact.items():
            path.write_bytes(content[: len(content) // 2])
        again = run(tmp_path, "-c", PLAY)
        assert again.returncode == 0, again.stderr
        assert all(len(path.read_bytes()) > len(content) // 2 for path, content in intact.items())


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = run(tmp_path / "file" / "cache", "-m", "atari_warp", "game=pong")
    assert found.returncode == 1 and found.stderr.count("\n") == 1
    assert found.stderr.startswith("atari_warp: Warp does not start (")


def test_one_process_compiles_a_module_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warp.config.kernel_cache_dir", str(tmp_path))
    entered = threading.Event()

    def enter() -> None:
        with kernel_cache._exclusive("one"):  # a lock belongs to an open file, also within one process
            entered.set()

    with kernel_cache._exclusive("one"), kernel_cache._exclusive("another"):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.3)
    assert entered.wait(60)
    other.join()
    assert {path.name for path in tmp_path.iterdir()} == {"one.lock", "another.lock"}


def test_a_process_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warp.config.kernel_cache_dir", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "LOCK_TIMEOUT_S", 0.1)
    with kernel_cache._exclusive("one"), kernel_cache._exclusive("one"):
        pass
