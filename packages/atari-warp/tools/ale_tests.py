"""Run ALE's own tests on this package: ``python packages/atari-warp/tools/ale_tests.py tests=env,interface,vector``.

Options, with their defaults.
  tests=all     env, interface, vector, or several with commas.
  sdist=        ale-py's source distribution, a .tar.gz; without it, pip downloads the installed version.
  games=all     some games are faster: several of ALE's ids with commas, such as Pong,SpaceInvaders.

ALE's tests have another licence than this package, so they are not part of it: they are extracted to a temporary
folder. There a plugin puts the environments and the interface of this package in their places. Prints a table of
the tests that passed and failed. The exit status is 1 if a test fails that is not expected to fail.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from importlib import metadata
from pathlib import Path

from atari_warp.command_line import exit_with, parse_options
from atari_warp.games import EmulatorError

FILES = {"env": "test_atari_env.py", "interface": "test_python_interface.py", "vector": "test_atari_vector_env.py"}
SUPPORT = ("tests/python/utils.py", "tests/resources/tetris.bin")
OPTIONS: dict[str, str | int] = {"tests": "all", "sdist": "", "games": "all"}
# Tests that fail by design: part of the name or of the error, and the reason.
EXPECTED = (
    (r"test_check_env\[True-|continuous|test_gym_keys_to_action", "continuous actions are not supported"),
    (r"sound", "the emulator has no sound"),
    (r"batch_size", "all environments are stepped together: no batch_size"),
)
# Written beside ALE's tests. A subclass does not compile games, which would take longer than the tests.
PLUGIN = """
import json
from pathlib import Path

import ale_py
import ale_py.env
import ale_py.vector_env
import atari_warp
import gymnasium

class AtariEnv(atari_warp.AtariEnv):
    def __init__(self, *arguments, compile_rom=False, **options):
        super().__init__(*arguments, compile_rom=compile_rom, **options)

class ALEInterface(atari_warp.ALEInterface):
    def __init__(self, compile_rom=False):
        super().__init__(compile_rom)

ale_py.AtariEnv = ale_py.env.AtariEnv = AtariEnv
ale_py.ALEInterface, ale_py.ALEState = ALEInterface, atari_warp.ALEState
if hasattr(atari_warp, "AtariVectorEnv"):
    class AtariVectorEnv(atari_warp.AtariVectorEnv):
        def __init__(self, *arguments, compile_rom=False, **options):
            super().__init__(*arguments, compile_rom=compile_rom, **options)

        def step(self, actions):
            *results, info = super().step(actions)
            return *results, without_extras(info)

        def recv(self):
            *results, info = super().recv()
            return *results, without_extras(info)

    # Keys beside those of ALE.
    def without_extras(info):
        return {key: value for key, value in info.items() if key not in ("final_info", "_final_info", "_final_obs")}

    ale_py.AtariVectorEnv = ale_py.vector_env.AtariVectorEnv = AtariVectorEnv

GAMES = GAMES_OF_COMMAND
if GAMES:
    # Tests count the ids, so the ids of other games are only left out of lists of parameters.
    def pytest_collection_modifyitems(config, items):
        def is_chosen(item):
            name = getattr(item, "callspec", None) and item.callspec.params.get("env_id")
            return not name or any(name.removeprefix("ALE/").startswith(game) for game in GAMES)
        items[:] = filter(is_chosen, items)

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        with Path("results.jsonl").open("a") as file:
            reason = str(getattr(report.longrepr, "reprcrash", "") or "")
            print(json.dumps([report.nodeid, report.outcome, reason]), file=file)
"""


def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(None, OPTIONS, __doc__)
    chosen = list(FILES) if options["tests"] == "all" else str(options["tests"]).split(",")
    if unknown := [name for name in chosen if name not in FILES]:
        raise EmulatorError(f"tests={unknown[0]}: unknown. Choose from {', '.join(FILES)}.")
    games = [] if options["games"] == "all" else str(options["games"]).split(",")
    with tempfile.TemporaryDirectory(prefix="ale-tests-") as folder:
        sdist = Path(str(options["sdist"])) if options["sdist"] else _download(Path(folder))
        tests = _extract(sdist, Path(folder), [FILES[name] for name in chosen])
        (tests / "conftest.py").write_text(PLUGIN.replace("GAMES_OF_COMMAND", repr(games)))
        (tests.parent / "resources" / "random.bin").write_bytes(os.urandom(4096))  # a ROM that no game has
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", "-r", ""]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        subprocess.run([*command, *(FILES[name] for name in chosen)], cwd=tests, env=environment, check=False)
        results = tests / "results.jsonl"
        reports = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return _print_table(reports, [FILES[name] for name in chosen])


def _download(folder: Path) -> Path:
    """Source distribution of the installed ale-py."""
    wanted = f"ale-py=={metadata.version('ale-py')}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "ale-py",
        "--no-build-isolation",
    ]
    ended = subprocess.run([*pip, "--dest", str(folder), wanted], check=False)
    found = next(folder.glob("ale_py-*.tar.gz"), None)  # pip also fails where it cannot build the package
    if found is None:
        raise EmulatorError(f"sdist=: pip cannot download {wanted} (status {ended.returncode}). Name a file.")
    return found


def _extract(sdist: Path, folder: Path, files: list[str]) -> Path:
    """Extract ALE's tests, and return their folder."""
    if not sdist.is_file() or not tarfile.is_tarfile(sdist):
        raise EmulatorError(f"sdist={sdist}: is not a source distribution. Name a .tar.gz of ale-py.")
    wanted = {*(f"tests/python/{name}" for name in files), *SUPPORT}
    with tarfile.open(sdist) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            content = archive.extractfile(member) if path in wanted else None
            if content is not None:
                to = folder / path
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(content.read())
                wanted.discard(path)
    if wanted:
        raise EmulatorError(f"sdist={sdist}: has no {sorted(wanted)[0]}.")
    return folder / "tests" / "python"


def _print_table(reports: list[list[str]], files: list[str]) -> int:
    """Print what passed and failed, and return the exit status."""
    print("\n| file | passed | skipped | expected failures | other failures |\n|---|---:|---:|---:|---:|")
    reasons, others = Counter[str](), list[list[str]]()
    for file in files:
        counts = Counter[str]()
        for name, outcome, crash in (report for report in reports if report[0].startswith(file)):
            reason = next((why for part, why in EXPECTED if re.search(part, f"{name} {crash}")), None)
            if outcome == "failed" and reason:
                reasons[f"{file}: {reason}"] += 1
                counts["expected"] += 1
            else:
                counts[outcome] += 1
            if outcome == "failed" and not reason:
                others.append([name, crash])
        print(f"| {file} | {counts['passed']} | {counts['skipped']} | {counts['expected']} | {counts['failed']} |")
    for reason, count in reasons.items():
        print(f"expected, {count} in {reason}")
    for name, crash in others:
        print(f"FAILED {name}\n    {crash}")
    if any(not any(report[0].startswith(file) for report in reports) for file in files):
        print("a file has no results: see pytest's output above")
        return 1
    return 1 if others else 0


if __name__ == "__main__":
    try:
        exit_with(main)
    except EmulatorError as error:
        sys.exit(str(error))
