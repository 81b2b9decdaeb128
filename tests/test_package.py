"""Metadata, distributions and imports of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import dqnspeed

ROOT = Path(dqnspeed.__file__).parents[1]


def test_the_citation_is_of_this_version() -> None:
    said: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    [version] = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert said["version"] == version and said["cff-version"] == "1.2.0"
    assert all(said[key] for key in ("message", "title", "authors", "license"))


def built(source: Path, folder: Path, kind: str) -> list[str]:
    """Names of the files in the wheel or sdist of the package in ``source``, built without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [path] = folder.iterdir()
    if kind == "wheel":
        return zipfile.ZipFile(path).namelist()
    with tarfile.open(path) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def files_in(folder: Path) -> set[str]:
    """Files below ``folder``, relative to its parent."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder.parent)) for path in paths}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("source", "package", "data"),
    [
        (
            ROOT,
            "dqnspeed",
            {"dqnspeed/py.typed", "dqnspeed/conf/config.yaml", "hydra_plugins/dqnspeed_sweepers.py"},
        ),
        (ROOT / "packages" / "atari-warp", "atari_warp", {"atari_warp/native/cpu.h", "atari_warp/games.yaml"}),
    ],
    ids=["dqnspeed", "atari-warp"],
)
def test_a_wheel_has_the_files_of_its_package(source: Path, package: str, data: set[str], tmp_path: Path) -> None:
    names = set(built(source, tmp_path, "wheel"))
    wanted = files_in(source / package)
    assert f"{package}/py.typed" in wanted and wanted | data <= names
    others = {name.partition("/")[0] for name in names - wanted}
    assert not {"tests", "tools", "packages", "conf"} & others


@pytest.mark.integration
def test_the_source_distribution_has_both_packages_and_their_tests(tmp_path: Path) -> None:
    names = set(built(ROOT, tmp_path, "sdist"))
    assert files_in(ROOT / "packages") | files_in(ROOT / "tests") | {"Makefile", "constraints.txt"} <= names


EXTRAS = """
    aiohttp huggingface_hub hydra_plugins.hydra_submitit_launcher imageio_ffmpeg jinja2 joblib matplotlib optuna plotly
    pygame ray scipy stable_baselines3 submitit torchrl warp
""".split()


def test_without_extras_every_command_starts() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))\n"
    names = "train", "play", "publish", "report", "doctor", "bench", "options"
    code += "".join(f"import dqnspeed.{name}\n" for name in names)
    code += "print(dqnspeed.compose(['experiment=speedrun', 'wrappers.crop=null']).backend.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "gymnasium"), done.stderr


def test_the_container_is_as_linters_want_it() -> None:
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if hadolint is None:
        pytest.skip("needs hadolint")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_services_of_compose_share_one_image_and_open_no_port() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    assert ["build" in service for service in services] == [True, False], "two would race for one image"
    assert all("ports" not in service for service in services)  # Ray's ports run code of whoever reaches them
