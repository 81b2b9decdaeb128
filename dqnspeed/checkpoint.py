"""Saved weights: safetensors files with the facts needed to rebuild the network, written atomically.

A checkpoint holds weights only for now; whatever else a run needs to go on belongs into the same file.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dqnspeed.config import CheckpointConfig, RunConfig
from dqnspeed.envs import EnvSpec

log = logging.getLogger(__name__)


class Checkpoints:
    """The ``checkpoints/`` folder of a run: ``best``, ``final`` and the last few periodic ones.

    Args:
        min_episodes: games that must have finished before a mean counts as a best one.
    """

    def __init__(self, folder: Path, config: CheckpointConfig, run: RunConfig, spec: EnvSpec, min_episodes: int = 10):
        self._folder, self._config = folder, config
        self._facts = {
            "model": dataclasses.asdict(run.model),
            "env": run.env.id,
            "observation_shape": spec.observation_shape,
            "num_actions": spec.num_actions,
            "seed": run.seed,
        }
        self._min_episodes = min_episodes
        self._best = float("-inf")
        self._due_s = config.every_minutes * 60

    def at_mean(self, network: nn.Module, mean: float, episodes: int, step: int) -> None:
        """Save ``best`` where the mean return has improved."""
        if self._config.best and episodes >= self._min_episodes and mean > self._best:
            self._best = mean
            self.save("best", network, step, mean)

    def at_time(self, network: nn.Module, seconds: float, mean: float, step: int) -> None:
        """Save a periodic checkpoint where one is due after ``seconds`` of training, and drop the oldest."""
        if self._config.every_minutes and seconds >= self._due_s:
            self._due_s += self._config.every_minutes * 60
            self.save(f"step_{step:010d}", network, step, mean)
            for old in sorted(self._folder.glob("step_*.safetensors"))[: -self._config.keep]:
                old.unlink()

    def at_end(self, network: nn.Module, mean: float, step: int) -> None:
        """Save ``final``."""
        if self._config.final:
            self.save("final", network, step, mean)

    def save(self, name: str, network: nn.Module, step: int, mean: float) -> None:
        """Write ``<name>.safetensors`` whole or not at all; a disk that refuses it is a warning, not the end."""
        try:
            self._write(self._folder / f"{name}.safetensors", network, step, mean)
        except (OSError, SafetensorError) as error:
            log.warning("checkpoint %s could not be saved: %s", name, error)

    def _write(self, path: Path, network: nn.Module, step: int, mean: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        facts = {**self._facts, "agent_steps": step, "return_mean": mean}
        tensors = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
        partial = path.with_suffix(".partial")
        try:
            save_file(tensors, partial, metadata={"dqnspeed": json.dumps(facts)})
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights (on the CPU) and facts of a checkpoint."""
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["dqnspeed"])
    return load_file(path), facts
