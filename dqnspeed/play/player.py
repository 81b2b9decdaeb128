"""A trained network that plays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from dqnspeed import envs
from dqnspeed.algorithms import make_network
from dqnspeed.algorithms.gradient import as_tensors
from dqnspeed.cli import compose
from dqnspeed.cli import resume as resuming
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import check_execution, precision, set_precision
from dqnspeed.play.options import PlayConfig
from dqnspeed.runs import checkpoint, state_file
from dqnspeed.runs.evaluation import with_starts
from dqnspeed.system import machine
from dqnspeed.tracking.run_folder import CHECKPOINTS, DamagedError


class Player:
    """A trained network with an environment of its own to play in."""

    def __init__(self, play: PlayConfig):
        self.folder = Path(play.run)
        composed = resuming.load_run(self.folder)
        trained = compose.from_hydra(composed)
        # Equivalent, and able to render; the device may be another.
        wrappers = dataclasses.replace(trained.wrappers, backend="gymnasium", clip_reward=False)
        self.noop_max: int | None = trained.eval.noop_max if play.noop_max is None else play.noop_max
        self.run: RunConfig = with_starts(
            dataclasses.replace(trained, wrappers=wrappers, num_envs=1, device=play.device), self.noop_max
        )
        check_execution(dataclasses.replace(self.run, execution=dataclasses.replace(self.run.execution, compile=False)))
        self.spec: EnvSpec = envs.describe(self.run)
        self.device = machine.pick_device(play.device)
        self.path, state = _load(self.folder / CHECKPOINTS, play.checkpoint)
        self.network = make_network(self.run, self.spec)
        try:
            differing = resuming.foreign(state["config"], resuming.plain_of(composed))
            if differing:
                raise ConfigError(
                    f"checkpoint={play.checkpoint}: is of another run than this folder's ({', '.join(differing)})."
                )
            self.agent_steps: int = state["progress"]["agent_steps"]
            self.network.load_state_dict(as_tensors(state["learner"]["network"]))
        except (RuntimeError, KeyError, TypeError) as error:
            raise ConfigError(f"checkpoint={play.checkpoint}: is of another network than this run's.") from error
        self.network.to(self.device).eval()
        self._epsilon, self._rng = play.epsilon, np.random.default_rng(play.seed)
        self.q = np.zeros(self.spec.num_actions, np.float32)  # of the observation acted on last

    def act(self, observations: np.ndarray) -> np.ndarray:
        """The action ``(1,)`` for one observation ``(1, stack * C, ...)``."""
        self.q = self.values(observations)[0]
        if self._rng.random() < self._epsilon:
            return self._rng.integers(self.spec.num_actions, size=1)
        return np.array([self.q.argmax()])

    def values(self, observations: np.ndarray) -> np.ndarray:
        """What the network computes of each action, ``(B, num_actions) float32``, for ``(B, stack * C, ...)``."""
        if self.device.type == "cuda":
            set_precision(self.run.execution)
        with torch.inference_mode(), precision(self.run.execution, self.device):
            values: np.ndarray = self.network(torch.from_numpy(observations).to(self.device)).cpu().numpy()
        return values


def _load(folder: Path, name: str) -> tuple[Path, state_file.State]:
    """The checkpoint ``name``; for ``best`` the newest if there is none."""
    path = folder / f"{name.removesuffix(checkpoint.SUFFIX)}{checkpoint.SUFFIX}"
    if name == "best" and not path.exists():
        path = next(iter(checkpoint.candidates(folder)), path)
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in folder.glob(f"*{checkpoint.SUFFIX}"))) or "none"
        raise ConfigError(f"checkpoint={name}: is not in {folder}; there: {there}.")
    try:
        return path, state_file.load(path)
    except DamagedError as error:
        raise ConfigError(f"checkpoint={name}: {error}") from error
