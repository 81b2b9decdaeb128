"""Command lines: the comparison with ALE, and the benchmark."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from atari_warp import __main__ as bench
from atari_warp import find_game
from atari_warp.command_line import parse_options
from atari_warp.verify import main as verify
from derive import main as derive


def test_verify_prints_a_table_and_saves_pictures_of_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(["game=pong", "frames=20", "sequences=1", f"out={tmp_path}"]) == 0
    assert "| pong | 20 | 0 | 0 | equal |" in capsys.readouterr().out
    wrong = dataclasses.replace(find_game("pong"), first_line=35)
    monkeypatch.setattr("atari_warp.verify.find_game", lambda name: wrong)
    assert verify(["game=pong", "frames=20", "sequences=1", f"out={tmp_path}"]) == 1
    printed = capsys.readouterr()
    assert "| pong | 0 | 0 | 0 | sequence 0, frame 0: " in printed.out and str(tmp_path / "pong.png") in printed.err
    assert (tmp_path / "pong.png").stat().st_size


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("gmae=pong", "gmae=pong: unknown option. Choose from game=, "),
        ("frames=x", "frames=x: must be an integer of at least 1."),
        ("mode=x", "mode=x: must be one of ALE's numbers, all, or default."),
        ("compile_rom=maybe", "compile_rom=maybe: must be yes or no."),
        ("device=cuda compile_rom=yes", "compile_rom=yes: works on device=cpu only."),
        ("out=nowhere", "out=nowhere: no such folder."),
    ],
)
def test_verify_refuses_bad_options(arguments: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(arguments.split()) == 2
    assert capsys.readouterr().err.startswith(error)


@pytest.mark.parametrize("argument", ["reset_pool=-1", "reset_pool=x"])
def test_the_benchmark_refuses_bad_options(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["atari_warp", argument])
    assert bench.main() == 2
    assert capsys.readouterr().err == f"{argument}: must be an integer of at least 0, or auto.\n"


def test_the_benchmark_compiles_no_code_for_a_gpu_by_default() -> None:
    assert parse_options(["device=cuda"], bench.OPTIONS, None)["compile_rom"] == "no"


@pytest.mark.parametrize(("line", "status"), [("raise KeyboardInterrupt", 130), ("print('x' * 10**6)", 141)])
def test_ctrl_c_and_a_closed_pipe_cause_no_traceback(line: str, status: int) -> None:
    script = f"from atari_warp.command_line import exit_with\ndef main():\n    {line}\nexit_with(main)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", status)


def test_a_rom_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / "none"))
    missing = "rom=pong: cannot be read (ROM directory "
    assert verify(["game=pong", "frames=10"]) == 1 and missing in capsys.readouterr().out
    for command, more in ((verify, ["mode=all"]), (derive, [])):
        assert command(["game=pong", *more]) == 2 and capsys.readouterr().err.startswith(missing)
    (tmp_path / "pong.bin").write_bytes(bytes(2048))
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    assert verify(["game=pong", "frames=10"]) == 1
    assert "rom=pong: cannot be read (The hash of" in capsys.readouterr().out
