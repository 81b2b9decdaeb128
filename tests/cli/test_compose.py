"""Composition, and reading the configurations of runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import compose, make_run, mostly_integration
from omegaconf import OmegaConf

from dqnspeed.cli import api
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.compose import as_meant, from_hydra
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.config.options import ConfigError
from dqnspeed.system import signing


def kept(folder: Path, *overrides: str, **changes: Any) -> Path:
    """A folder with the configuration of a run, changed by ``group__key=value``; ``None`` removes a key."""
    plain: Any = OmegaConf.to_container(compose(*overrides), resolve=True)
    for name, value in changes.items():
        group, _, key = name.partition("__")
        node, last = (plain[group], key) if key else (plain, group)
        if value is None:
            del node[last]
        else:
            node[last] = value
    signing.write(folder / "config.json", plain)
    return folder


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"execution": None}, "no option execution.channels_last"),
        ({"replay__beta_updates": None}, "no option replay.beta_updates"),
        ({"model__old": 3}, "the option model.old, which is unknown here"),
        ({"old": 3}, "the option old, which is unknown here"),
    ],
)
def test_a_run_of_a_version_with_other_options_is_refused(changes: dict[str, Any], found: str, tmp_path: Path) -> None:
    folder = kept(tmp_path, "replay=prioritized", "model=impala", **changes)
    sentence = f"{folder}: its configuration has {found}; another version of dqnspeed wrote it, so start a new run."
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        resuming.load_run(folder)


def test_a_run_with_an_option_of_a_plugin_that_is_gone_is_refused(tmp_path: Path) -> None:
    for changes in ({"model__name": "fourier", "model__waves": 64}, {"replay__name": "fourier"}):
        group = next(iter(changes)).partition("__")[0]
        with pytest.raises(ConfigError, match=f"^{group}=fourier: .*plugin"):
            resuming.load_run(kept(tmp_path, **changes))


@pytest.mark.parametrize("name", ["mine", "???"])
def test_a_run_with_an_option_file_of_the_user_s_is_read(name: str, tmp_path: Path) -> None:
    run = from_hydra(resuming.load_run(kept(tmp_path, "model=small", model__name=name)))
    expected = make_run("model=small")
    assert dataclasses.replace(run, model=dataclasses.replace(run.model, name=expected.model.name)) == expected


EXPERIMENTS = sorted(path.stem for path in Path(CONF_DIR, "experiment").glob("*.yaml"))


@pytest.mark.parametrize("experiment", mostly_integration(EXPERIMENTS, "speedrun", "cartpole"))
def test_an_environment_that_is_asked_for_is_that_of_any_experiment(experiment: str) -> None:
    assert compose(f"experiment={experiment}", "env=taxi").env.id.startswith("Taxi-v")


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("tracking.group=2026_11_28", "tracking.group='2026_11_28'"),
        ("++tracking.group=1.10", "++tracking.group='1.10'"),
        ("env.id=1e3, true,b", "env.id='1e3', 'true',b"),
        ("tracking.group=choice(007,.5)", "tracking.group=choice('007','.5')"),
        ("hydra.run.dir=2026_11_28", "hydra.run.dir='2026_11_28'"),
        ("num_envs=2E0,3", "num_envs=2,3"),
        ("num_envs=choice(2E0, 3)", "num_envs=choice(2, 3)"),
        ("seed=range(0,1e2)", "seed=range(0,100)"),
        *(
            (same, same)
            for same in (
                "tracking.group='1.10'", "tracking.group=null", "tracking.group=${seed}", "stop.max_steps=1.5",
                "parallelism.samples_per_step=1e3", "env.kwargs={a: 1.10}", "algo=dqn", "-m", "resume=1.10",
                "tracking.run_name=my run 3", "hydra.run.dir=my runs/try 2", "tracking.group=3 true runs",
            )
        ),
    ],
)  # fmt: skip
def test_text_and_whole_numbers_are_taken_as_they_are_meant(argument: str, meant: str) -> None:
    assert as_meant([argument]) == [meant]


def test_options_of_text_keep_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = api.compose(["tracking.group=2026_11_28", "tracking.run_name=1.10", "stop.max_steps=1e6"])
    assert (run.tracking.group, run.tracking.run_name, run.stop.max_steps) == ("2026_11_28", "1.10", 1_000_000)
    folder = kept(tmp_path)
    run = resuming.prepare([f"resume={folder}", "tracking.group=2026_11_28", "stop.max_steps=2e6"]).config
    assert (run.tracking.group, run.stop.max_steps) == ("2026_11_28", 2_000_000)
