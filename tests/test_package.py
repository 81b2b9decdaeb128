"""What the package says of itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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


EXTRAS = """
    hydra_plugins.hydra_submitit_launcher imageio_ffmpeg jinja2 joblib matplotlib optuna plotly pygame ray scipy
    stable_baselines3 submitit torchrl warp
""".split()


def test_without_extras_every_command_starts() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))\n"
    code += "import dqnspeed.train, dqnspeed.play, dqnspeed.report, dqnspeed.doctor, dqnspeed.bench, dqnspeed.options\n"
    code += "print(dqnspeed.compose(['experiment=speedrun', 'wrappers.crop=null']).backend.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "gymnasium"), done.stderr


def test_each_command_may_be_imported_first() -> None:
    code = """
import os, ale_py, cv2, gymnasium, hydra, psutil, torch
for name in "train play report doctor bench options cli.front_door".split():
    if not (child := os.fork()):
        __import__(f"dqnspeed.{name}")
        os._exit(0)
    assert not os.waitpid(child, 0)[1], name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_asks_for_what_it_names(form: Path) -> None:
    said = yaml.safe_load(form.read_text())
    assert said["name"] and said["description"]
    assert all(field["attributes"]["label"] for field in said["body"])
    assert len({field["id"] for field in said["body"]}) == len(said["body"])


def test_the_container_is_as_linters_want_it() -> None:
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if hadolint is None:
        pytest.skip("needs hadolint")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"head", "worker"} and services["worker"]["deploy"]["replicas"] == 2
    assert all(service["image"] == "dqnspeed" for service in services.values())
    assert ["build" in service for service in services.values()] == [True, False], "two would race for one image"
    assert all("ports" not in service for service in services.values())  # Ray's are nobody else's
