"""The files of a published agent."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.agents.agent import load, load_checkpoint
from dqnspeed.cli import compose, resume, trust
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.protocol import protocol_of
from dqnspeed.play.games import play
from dqnspeed.play.options import PlayConfig
from dqnspeed.publish.card import card
from dqnspeed.system import atomic
from dqnspeed.tracking.metrics import MEAN_RETURNS
from dqnspeed.tracking.published import CARD, CURVE, CURVE_IMAGE, EVALUATION, REPLAY, check_inside
from dqnspeed.tracking.run_folder import (
    BEGUN,
    BEST,
    CONFIG,
    SUMMARY,
    DamagedError,
    Row,
    read_metrics,
    read_summary,
)
from dqnspeed.tracking.trackers import public_options, public_overrides
from dqnspeed.training import state_file

CURVE_POINTS = 500


def write_agent(partial: Path, folder: Path, run: str, checkpoint: str, trusted: bool, half: bool) -> Row:
    """Write weights, configuration, facts and learning curve of the run in ``folder``; returns the facts.

    Args:
        run: the address of the run; ``checkpoint``: the name of its checkpoint.
        trusted: import an environment that the run's files name.
        half: store weights in 16 bits.

    Raises:
        ConfigError: the checkpoint is missing or damaged, names code that is not trusted, or has too large a weight.
    """
    check_inside(folder, [BEGUN, SUMMARY, CONFIG])
    _, state, composed = load_checkpoint(run, checkpoint, folder)
    config = public_options(resume.plain_of(composed))
    trust.check_code({"env": config["env"]}, folder, trusted)
    try:
        weights, agent_steps = dict(state["learner"]["network"]), int(state["progress"]["agent_steps"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"checkpoint={checkpoint}: holds no network of this version of dqnspeed.") from error
    if half:
        weights = {name: _halved(name, array) for name, array in weights.items()}
    kept = {"learner": {"network": weights}, "progress": {"agent_steps": agent_steps}, "config": config}
    state_file.save(partial / BEST, kept)
    atomic.write_json(partial / CONFIG, config)
    facts: Row = {}
    for name in (BEGUN, SUMMARY):  # a killed run has no summary
        with contextlib.suppress(DamagedError):
            facts |= read_summary(folder, name)
    facts.pop("error", None)  # it may name files of this machine
    facts["protocol"] = protocol_of(compose.from_hydra(composed))
    facts["overrides"] = public_overrides(facts.get("overrides", []))
    atomic.write_json(partial / BEGUN, facts)
    _write_curve(partial, read_metrics(folder)[0])
    return {**facts, "config": config, "checkpoint_steps": agent_steps, "half": half}


def _halved(name: str, array: np.ndarray) -> np.ndarray:
    """``array`` in 16 bits if it holds floats; :class:`ConfigError` if a finite number becomes infinite."""
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        halved = array.astype(np.float16)
    if np.isinf(halved).any():
        raise ConfigError(f"half=true: {name} has a number beyond 16 bits. Use half=false.")
    return halved


def _write_curve(partial: Path, metrics: Sequence[Row]) -> None:
    """Write the mean returns of a training as a table and, if matplotlib is installed, as an image."""
    rows = [row for row in metrics if any(row.get(name) is not None for name in MEAN_RETURNS)]
    rows = (
        [rows[i] for i in sorted({*np.linspace(0, len(rows) - 1, CURVE_POINTS).astype(int).tolist()})] if rows else []
    )
    with (partial / CURVE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "time", *MEAN_RETURNS])
        writer.writerows([[row["step"], row["time"], *(row.get(name, "") for name in MEAN_RETURNS)] for row in rows])
    with contextlib.suppress(ImportError):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot(xlabel="agent steps", ylabel="mean return")
        for name in MEAN_RETURNS:
            points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), label=name)
        if rows:
            axes.legend()
        figure.savefig(partial / CURVE_IMAGE, dpi=100)


def write_film(partial: Path, played: PlayConfig) -> None:
    """Film a game of the agent in ``partial``.

    Raises:
        ConfigError: the game cannot be filmed.
    """
    print("films a game", flush=True)
    try:
        agent = load(played.run, device=played.device, trust=played.trust)
        (partial / REPLAY).write_bytes(agent.watch(played.seed).mp4)
    except ConfigError as error:
        raise ConfigError(f"video=true: {error} Leave the film out with video=false.") from error


def write_evaluation(partial: Path, played: PlayConfig, episodes: int, num_envs: int) -> dict[str, Any]:
    """Play and count ``episodes`` games of the agent in ``partial``; returns the result of :func:`play`."""
    print(f"plays {episodes} games", flush=True)
    evaluation = play(dataclasses.replace(played, episodes=episodes, num_envs=num_envs))
    atomic.write_json(partial / EVALUATION, evaluation)
    return evaluation


def write_card(partial: Path, name: str, facts: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
    """Write the model card of the agent called ``name``."""
    images = [image for image in (CURVE_IMAGE, REPLAY) if (partial / image).exists()]
    atomic.write_text(partial / CARD, card(name, facts, evaluation, images))
