"""Configurations of runs that another version has begun."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import hydra
import pytest
from conftest import make_run
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli.compose import from_hydra
from dqnspeed.cli.resume import foreign, plain_of
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.cli.upgrade import upgraded
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig


def composed(*overrides: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def stored(*overrides: str) -> dict[str, Any]:
    """What a run keeps of its configuration."""
    return cast("dict[str, Any]", OmegaConf.to_container(composed(*overrides), resolve=True))


def loaded(plain: dict[str, Any]) -> RunConfig:
    return from_hydra(upgraded(OmegaConf.create(plain)))


def test_a_run_of_a_version_where_all_algorithms_shared_their_numbers_is_what_it_was() -> None:
    plain = stored("algo=ppo", "optimizer=rmsprop")
    plain["algo"] |= dict.fromkeys(("n_step", "double", "loss", "target_sync", "step_size", "queue_batches"))
    plain["optimizer"] |= {"beta1": 0.9, "beta2": 0.999}
    del plain["wrappers"]["name"], plain["tracking"]["name"]
    run, expected = loaded(plain), make_run("algo=ppo", "optimizer=rmsprop")
    assert (run.algo, run.optimizer, run.num_envs) == (expected.algo, expected.optimizer, expected.num_envs)


@pytest.mark.parametrize("kind", ["serial", "process"])
def test_an_option_that_is_newer_than_the_run_has_its_default(kind: str) -> None:
    plain = stored(f"parallelism={kind}", *["algo.steps_per_update=1"] * (kind == "serial"))
    del plain["parallelism"]["timeout_s"]
    assert loaded(plain).parallelism == make_run(f"parallelism={kind}").parallelism


def test_so_has_one_of_an_option_that_is_not_the_usual_one() -> None:
    plain = stored("replay=prioritized")
    del plain["replay"]["beta_updates"]
    assert loaded(plain).replay == make_run("replay=prioritized").replay


def test_a_label_that_has_become_the_name_of_an_option_is_still_a_label() -> None:
    plain = stored("model=small")
    plain["model"]["name"] = "impala"
    assert [layer[0] for layer in plain["model"]["conv"]] == [16, 32]
    assert type(loaded(plain).model) is type(make_run("model=small").model)
    assert foreign(plain, plain_of(upgraded(OmegaConf.create(plain)))) == []  # its checkpoint is still its own


@pytest.mark.parametrize("experiment", sorted(path.stem for path in Path(CONF_DIR, "experiment").glob("*.yaml")))
def test_an_environment_that_is_asked_for_is_that_of_any_experiment(experiment: str) -> None:
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        cfg = hydra.compose("config", overrides=[f"experiment={experiment}", "env=taxi"])
    assert cfg.env.id.startswith("Taxi-v")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("env.max_episode_frames=10000000000", "env.max_episode_frames=10000000000: must be at most 2147483647."),
        ("eval.noop_max=2000000", "eval.noop_max=2000000: must be at most 1048576."),
        ("~replay", "replay: has no option; a configuration of your own begins with defaults: [config, _self_]"),
    ],
)
def test_what_no_run_can_have_gets_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        make_run(override)
