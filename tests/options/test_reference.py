"""The reference of options is complete and agrees with composed runs."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from conftest import TESTS, Command, environment, make_run, mostly_integration
from omegaconf import OmegaConf
from rich.console import Console

from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.config.options import leaves
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import RunConfig
from dqnspeed.options import command
from dqnspeed.options.reference import (
    equivalent_overrides,
    keys,
    meanings,
    page,
    sections,
)
from dqnspeed.system import machine

EXPERIMENTS = sorted(path.stem for path in (Path(CONF_DIR) / "experiment").glob("*.yaml"))
FILES = sorted(
    path
    for path in Path(CONF_DIR).rglob("*.yaml")
    if path.stem != "reward_bounds" and "hydra" not in path.relative_to(CONF_DIR).parts
)
SECTIONS = [*GROUPS, "execution", "checkpoint", "stop", "eval", "run"]


def keys_in(path: Path) -> Iterator[str]:
    """The keys that an option file sets."""
    cfg = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(cfg, dict)
    everywhere = path.parent == Path(CONF_DIR) or "@package _global_" in path.read_text()
    for key, value in cfg.items():
        if not everywhere:
            yield f"{path.parent.name}.{key}"
        elif isinstance(value, dict):
            yield from (f"{key}.{leaf}" for leaf in value)
        else:
            yield str(key)


def test_every_key_of_every_schema_has_a_meaning() -> None:
    for schema in (RunConfig, *(known for group in GROUPS.values() for known in group.options.values())):
        for field in dataclasses.fields(schema):
            assert field.metadata["about"], f"{schema.__name__}.{field.name}"
    for section in sections():
        assert all(meanings(section).values()), section


def test_every_key_of_the_files_is_in_the_reference() -> None:
    known, shown = {name for section in sections() for name in meanings(section)}, sections()
    for path in FILES:
        used = {key for key in keys_in(path) if not key.startswith("hydra.") and not key.endswith("defaults")}
        assert used <= known, path
        if path.parent.name in shown:
            assert shown[path.parent.name].options[path.stem], f"{path} has no description"


@pytest.mark.parametrize("name", mostly_integration(SECTIONS, "replay", "stop"))
def test_the_defaults_are_those_of_a_composed_run(name: str) -> None:
    section = sections()[name]
    for option in section.options or [""]:
        run = make_run(*([f"{name}={option}"] if option else []))
        own = {key: value for key, value, _ in leaves(run) if (key.partition(".")[0] if "." in key else "run") == name}
        found = {key.name: key.defaults[option] for key in keys(section) if option in key.defaults}
        if found.get("backend.name") == "auto":
            fastest = make_run("backend=atari_warp")
            found = {key: value for key, value, _ in leaves(fastest) if key.startswith("backend.")}
        if found.get("execution.precision") == "auto":
            found["execution.precision"] = machine.best_precision("auto")
        if found.get("tracking.wandb") == "auto":
            found["tracking.wandb"] = "offline"
        root = OmegaConf.create(dataclasses.asdict(run))
        assert {key: resolved(root, value) for key, value in found.items()} == own


def resolved(root: Any, value: Any) -> Any:
    """A value as files write it, with what it refers to."""
    root["found"] = value
    plain = OmegaConf.to_container(root, resolve=True)
    return plain["found"]  # type: ignore[index, call-overload]


@pytest.mark.parametrize("experiment", mostly_integration(EXPERIMENTS, "cartpole", "speedrun"))
def test_the_overrides_of_an_experiment_make_the_same_run(experiment: str) -> None:
    run, same = make_run(f"experiment={experiment}"), make_run(*equivalent_overrides("experiment", experiment))
    bound = run.experiment.pong_bound  # which its own bound follows
    if bound is not None:
        same = make_run(*equivalent_overrides("experiment", experiment), f"experiment.pong_bound={bound}")
    assert dataclasses.replace(same, experiment=run.experiment) == run


SHOWN = {
    "": "| run | keys outside of groups | num_envs, seed, device",
    "stop": "| `stop.window` | finished games over which the mean is taken | a whole number",
    "exploration.sigma0=0.1": "| `exploration.sigma0` ",
    "algo=ppo": "| `algo.clip_range` | clip range of the probability ratio | a number, more than 0 | 0.1 |",
    "BUFFER_SIZE": "| `replay.buffer_size` | transitions kept, ",
    "the mean is": "| `stop.window` | finished games over which the mean is taken ",
}


@pytest.mark.parametrize("words", SHOWN)
def test_output_in_a_pipe_is_markdown(words: str, run_here: Command) -> None:
    code, shown, errors = run_here(command, *words.split())
    assert (code, errors) == (0, "")
    assert any(line.startswith(SHOWN[words]) for line in shown.splitlines()), shown


def test_an_experiment_is_shown_with_its_kind_and_overrides(run_here: Command) -> None:
    _, shown, _ = run_here(command, "experiment=speedrun")
    assert "Kind: equivalent, changes the task" in shown and "`wrappers.frame_skip=12`" in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("algo.clip_rage", "algo.clip_rage: no option has this name or description (nearest: algo.clip_range, "),
        ("algo=pp0", "algo=pp0: there is no such option (nearest: ppo"),
        ("xyzzy", "xyzzy: no option has this name or description."),
        ("--algo", "--algo: is no option"),
    ],
)
def test_unknown_words_are_one_sentence(words: str, sentence: str, run_here: Command) -> None:
    code, shown, errors = run_here(command, words)
    assert code == 2 and not shown and errors.startswith(f"dqnspeed: {sentence}") and errors.count("\n") == 1


def test_a_narrow_terminal_shows_names_whole_and_keeps_all_text() -> None:
    def drawn(width: int) -> str:
        console = Console(file=io.StringIO(), width=width, color_system=None)
        console.print(command.Page(page(sections()["exploration"])))
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    assert max(map(len, drawn(60).splitlines())) <= 60
    assert all(f" {name} " in drawn(60) for name in meanings("exploration"))
    signs = [sorted(re.sub(r"[\s─]", "", drawn(width))) for width in (60, 10_000)]
    assert signs[0] == signs[1]


@pytest.mark.slow
def test_options_of_a_plugin_are_listed(tmp_path: Path) -> None:
    path = TESTS.parent / "examples" / "plugin"
    env = {**environment(), "DQNSPEED_PLUGINS": "dqnspeed_example", "PYTHONPATH": str(path)}
    done = forked.run("dqnspeed.options", "replay", cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "\n| `recent` |" in done.stdout and "\n| `replay.draws`" in done.stdout
