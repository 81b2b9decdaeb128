"""Cache of compiled kernels: damage, a full disk, killed processes, and processes at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atari_warp import kernel_cache
from atari_warp.kernel_cache import Entry

START = "from atari_warp import ConsoleBatch; batch = ConsoleBatch('pong', 1, compile_rom=True); batch.reset([0]); "
PLAY = START + "batch.wait_until_compiled(); batch.step([0])"
COMPILES = "atari-warp: compiling the emulator, once, about 10 s ...\n"


def environment(cache: Path) -> dict[str, str]:
    temporary = cache.parent / "temporary"  # not shared with other tests
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "WARP_CACHE_PATH": str(cache), "TMPDIR": str(temporary), "PYTHONWARNINGS": "ignore"}


def run(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment(cache), capture_output=True, text=True, timeout=250)


def entries(cache: Path, suffix: str) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix == suffix]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache with the emulator and Pong."""
    cache = tmp_path_factory.mktemp("filled") / "cache"
    played = run(cache, "-c", PLAY)
    assert (played.returncode, played.stdout, played.stderr) == (0, "", COMPILES)
    assert len(entries(cache, ".o")) == 5 and len(entries(cache, ".trace")) == 1
    assert not list(cache.rglob("*.cpp"))
    return cache


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.integration
def test_a_second_process_compiles_nothing(filled: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*") if path.suffix != ".lock"}
    again = run(filled, "-c", PLAY)
    assert (again.returncode, again.stderr) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in filled.rglob("*") if path.suffix != ".lock"} == before


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".o", ".json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "of another kernel"])
def test_damaged_entries_are_compiled_again(filled: Path, tmp_path: Path, suffix: str, damage: str) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache)
    damaged = entries(cache, suffix)
    contents = [path.read_bytes() for path in damaged]
    for path, content, other in zip(damaged, contents, contents[1:] + contents[:1], strict=True):
        flipped = bytearray(content)
        for place in range(0, len(content), 1 + len(content) // 50):
            flipped[place] ^= 4
        path.write_bytes({"flipped": bytes(flipped), "cut": content[: len(content) // 2]}.get(damage, other))
    again = run(cache, "-c", PLAY)
    assert (again.returncode, again.stderr) == (0, COMPILES)
    assert run(cache, "-c", PLAY).stderr == ""


def test_entries_of_other_versions_are_not_read(tmp_path: Path) -> None:
    ours, theirs = (Entry("pong", ".o", {"warp": version}) for version in ("1.0", "1.1"))
    theirs.write(tmp_path, b"code")
    assert theirs.read(tmp_path) == b"code" and ours.read(tmp_path) is None
    for path in (theirs.path(tmp_path), theirs.record(tmp_path)):
        path.rename(path.with_name(path.name.replace(theirs.name, ours.name)))
    assert ours.read(tmp_path) is None
    record = json.loads(ours.record(tmp_path).read_text())
    ours.record(tmp_path).write_text(json.dumps({**record, "belongs_to": {"warp": "1.0"}}))
    assert ours.read(tmp_path) == b"code"


@pytest.mark.integration
def test_a_full_disk_means_a_temporary_folder_and_one_warning(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "size=200k"):
        played = run(tmp_path / "cache", "-c", PLAY)
        assert played.returncode == 0, played.stderr
        said, temporary = played.stderr.splitlines(), tmp_path / "temporary" / f"atari-warp-{os.getuid()}"
        assert len(said) == 2 and said[0] + "\n" == COMPILES
        assert said[1].startswith(f"atari-warp: WARP_CACHE_PATH={tmp_path}/cache/") and "No space left" in said[1]
        assert said[1].endswith(f"{temporary} is used instead.")
        assert not list(tmp_path.rglob("*.tmp"))
        assert run(tmp_path / "cache", "-c", PLAY).stderr == ""
        shutil.rmtree(temporary)
        temporary.symlink_to(tmp_path)  # as another user might, to have code of theirs run
        played = run(tmp_path / "cache", "-c", PLAY)
        assert played.returncode == 0 and f"{temporary}-" not in played.stderr and "is used" in played.stderr


@pytest.mark.integration
def test_a_read_only_disk_means_a_temporary_folder_and_one_warning(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "ro"):
        played = run(tmp_path / "cache", "-c", PLAY)
        assert played.returncode == 0, played.stderr
        said = played.stderr.splitlines()
        assert len(said) == 2 and said[1] + "\n" == COMPILES
        assert said[0].startswith(f"atari-warp: {tmp_path}/cache/") and "cannot be made (Read-only" in said[0]


@pytest.mark.integration
def test_without_any_room_the_error_is_one_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "size=200k"), small_disk(tmp_path / "temporary", "size=100k"):
        played = run(tmp_path / "cache", "-m", "atari_warp", "game=pong", "num_envs=1")
    assert played.returncode == 2
    assert played.stderr.startswith(COMPILES + "WARP_CACHE_PATH=") and played.stderr.count("\n") == 2
    assert played.stderr.endswith("Choose a folder that can be written.\n")


@pytest.mark.integration
def test_a_game_that_cannot_be_compiled_is_interpreted(filled: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "size=300k"), small_disk(tmp_path / "temporary", "size=100k"):
        shutil.copytree(filled, tmp_path / "cache", ignore=shutil.ignore_patterns("pong*"), dirs_exist_ok=True)
        script = START + "batch._translation.join(); [batch.step([0]) for _ in range(10)]"
        played, waited = (run(tmp_path / "cache", "-c", script) for script in (script, PLAY))
    assert played.returncode == 0 and played.stderr.count("\n") == 1
    assert played.stderr.startswith("atari-warp: pong is interpreted, which is slower, as its code is not compiled. ")
    assert waited.returncode == 1 and "EmulatorError: WARP_CACHE_PATH=" in waited.stderr.splitlines()[-1]


@pytest.mark.integration
def test_processes_that_compile_at_once_do_not_spoil_one_another(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", PLAY]
    started = [subprocess.Popen(command, env=environment(cache), stderr=subprocess.PIPE) for _ in range(3)]
    for process in started:
        assert process.communicate(timeout=250)[1].decode() == COMPILES and process.returncode == 0
    assert len(entries(cache, ".o")) == 5 and not list(cache.rglob("*.tmp"))
    assert run(cache, "-c", PLAY).stderr == ""


@pytest.mark.integration
@pytest.mark.parametrize("at", ["*/run_with*.tmp", "*/pong*.lock", "*/pong*.tmp"])
def test_a_killed_process_leaves_nothing_that_others_trip_over(filled: Path, tmp_path: Path, at: str) -> None:
    cache = tmp_path / "cache"
    if "pong" in at:
        shutil.copytree(filled, cache, ignore=shutil.ignore_patterns("pong*"))
    process = subprocess.Popen([sys.executable, "-c", PLAY], env=environment(cache), stderr=subprocess.DEVNULL)
    wait_for(lambda: list(cache.rglob(at)))
    (child,) = compilers(process.pid)
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(child))
    assert run(cache, "-c", PLAY).returncode == 0
    assert not list(cache.rglob("*.tmp")) and len(entries(cache, ".o")) == 5


@pytest.mark.integration
def test_a_process_that_ends_takes_its_compiler_with_it(filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache, ignore=shutil.ignore_patterns("pong*"))
    script = START + "import time; time.sleep(1); batch.step([0])"
    process = subprocess.Popen([sys.executable, "-c", script], env=environment(cache), stderr=subprocess.PIPE)
    wait_for(lambda: compilers(process.pid))
    (child,) = compilers(process.pid)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 0
    wait_for(lambda: not is_running(child))


@pytest.mark.integration
def test_a_forked_process_keeps_neither_compiler_nor_lock(filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache, ignore=shutil.ignore_patterns("pong*"))
    script = START + "import os, time; time.sleep(1); os.fork() or time.sleep(600)"  # longer than run() waits
    process = subprocess.Popen([sys.executable, "-c", script], env=environment(cache), start_new_session=True)
    try:
        wait_for(lambda: compilers(process.pid))
        (child,) = compilers(process.pid)
        assert process.wait(60) == 0
        wait_for(lambda: not is_running(child))
        assert run(cache, "-c", PLAY).returncode == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.integration
def test_standard_streams_may_be_closed(filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache, ignore=shutil.ignore_patterns("pong*", "kernels*"))
    shell = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, PLAY]
    assert subprocess.run(shell, env=environment(cache), timeout=250, check=False).returncode == 0
    assert len(entries(cache, ".o")) == 5


@pytest.mark.integration
def test_no_step_waits_for_the_compiler(filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache, ignore=shutil.ignore_patterns("pong*"))
    script = (
        f"{START}batch.step([0]); steps, interpreted = 1, batch._kernel\n"
        "while batch._kernel is interpreted:\n    batch.step([0]); steps += 1\nprint(steps)"
    )
    assert int(run(cache, "-c", script).stdout) > 100


@pytest.mark.integration
def test_games_are_compiled_ahead(filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache)
    command = ["-m", "atari_warp.compile", "pong", "breakout", "jobs=2"]
    first, second = run(cache, *command), run(cache, *command)
    assert first.returncode == second.returncode == 0
    assert first.stderr.startswith("pong, 1 of 2: compiled before\nbreakout, 2 of 2: compiled in ")
    assert second.stderr.count("compiled before") == 2
    script = (  # a shell's background processes ignore Ctrl-C
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = ['freeway']; "
        "import runpy; runpy.run_module('atari_warp.compile', run_name='__main__')"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=environment(cache), stderr=subprocess.PIPE)
    wait_for(lambda: list(cache.rglob("freeway*.lock")))
    (child,) = compilers(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 130
    wait_for(lambda: not is_running(child))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "game: none is given. Name games such as pong, or all."),
        (["pung"], "game=pung: unknown game. Did you mean pong?"),
        (["pong", "jobs=0"], "jobs=0: must be an integer of at least 1."),
        (["pong", "threads=2"], "threads=2: unknown option. Choose from jobs=."),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from atari_warp.compile import main

    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(message)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def compilers(pid: int) -> list[int]:
    """Processes that compile for process ``pid``: not what it forked, nor a program that it has just asked."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args="]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [row for row in map(str.split, found.splitlines()) if row[1] == str(pid) and row[4:6] == ["-I", "-c"]]
    return [int(row[0]) for row in rows if not row[2].startswith("Z")]


def is_running(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.startswith("Z")


def test_one_process_compiles_a_module_while_others_wait(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with kernel_cache.exclusive(tmp_path, "one"):  # a lock belongs to an open file, also within one process
            entered.set()

    with kernel_cache.exclusive(tmp_path, "one"), kernel_cache.exclusive(tmp_path, "another"):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.3)
    assert entered.wait(60)
    other.join()
    assert {path.name for path in tmp_path.iterdir()} == {"one.lock", "another.lock"}


def test_a_process_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "LOCK_TIMEOUT_S", 0.1)
    with kernel_cache.exclusive(tmp_path, "one") as first, kernel_cache.exclusive(tmp_path, "one") as second:
        assert first and not second
