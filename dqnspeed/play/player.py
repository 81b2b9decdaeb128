"""A trained network that plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from dqnspeed import envs
from dqnspeed.algorithms import make_network
from dqnspeed.cli import compose, trust
from dqnspeed.cli import resume as resuming
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec, VectorEnv
from dqnspeed.envs.backends.gymnasium import Gymnasium
from dqnspeed.execution.precision import check_execution, precision, set_precision
from dqnspeed.networks.base import as_tensors
from dqnspeed.play.options import DEFAULT, PlayConfig
from dqnspeed.system import machine
from dqnspeed.tracking.run_folder import CHECKPOINTS, CONFIG, DamagedError
from dqnspeed.training import checkpoint, state_file
from dqnspeed.training.evaluation import with_starts


class Player:
    """A trained network with an environment of its own to play in."""

    def __init__(self, play: PlayConfig):
        self.folder = home_of(play.run)
        self.path, state, composed = _trained(play, self.folder)
        trust.check_code({"env": resuming.plain_of(composed)["env"]}, self.folder, play.trust)
        trained = compose.from_hydra(composed)
        wrappers = dataclasses.replace(trained.wrappers, clip_reward=False)
        backend = Gymnasium("gymnasium")  # equivalent to any other, and able to render
        self.noop_max: int | None = trained.eval.noop_max if play.noop_max is None else play.noop_max
        self.run: RunConfig = with_starts(
            dataclasses.replace(trained, wrappers=wrappers, backend=backend, num_envs=1, device=play.device),
            self.noop_max,
        )
        check_execution(dataclasses.replace(self.run, execution=dataclasses.replace(self.run.execution, compile=False)))
        self.spec: EnvSpec = envs.describe(self.run)
        self.device = machine.pick_device(play.device)
        self.network = make_network(self.run, self.spec)
        try:
            self.agent_steps: int = state["progress"]["agent_steps"]
            self.network.load_state_dict(as_tensors(state["learner"]["network"]))
        except (RuntimeError, KeyError, TypeError) as error:
            raise ConfigError(f"checkpoint={play.checkpoint}: is of another network than this run's.") from error
        self.network.to(self.device).eval()
        self._epsilon, self._rng = play.epsilon, np.random.default_rng(play.seed)
        self.deterministic = trained.eval.deterministic if play.deterministic is None else play.deterministic
        if not self.deterministic and not trained.algo.has_policy:
            raise ConfigError(
                f"deterministic=false: algo={trained.algo.name} learns action values and no policy to draw from; "
                f"epsilon=0.05 has random actions."
            )
        self.q = np.zeros(self.spec.num_actions, np.float32)  # of the observation acted on last

    def act(self, observations: np.ndarray) -> np.ndarray:
        """The action ``(1,)`` for one observation ``(1, stack * C, ...)``."""
        self.q = self.values(observations)[0]
        if self._rng.random() < self._epsilon:
            return self._rng.integers(self.spec.num_actions, size=1)
        if not self.deterministic:  # the largest sum is a draw from the softmax
            return np.array([(self.q + self._rng.gumbel(size=self.q.shape)).argmax()])
        return np.array([self.q.argmax()])

    def values(self, observations: np.ndarray) -> np.ndarray:
        """What the network computes of each action, ``(B, num_actions) float32``, for ``(B, stack * C, ...)``."""
        return self._computed(self.network, observations)

    def state_values(self, observations: np.ndarray) -> np.ndarray:
        """The values ``(B,) float32`` of the states, of a network that has a policy and a value."""
        return self._computed(lambda seen: self.network.policy_and_value(seen)[1], observations)

    def _computed(self, function: Callable[[Tensor], Tensor], observations: np.ndarray) -> np.ndarray:
        if self.device.type == "cuda":
            set_precision(self.run.execution)
        with torch.inference_mode(), precision(self.run.execution, self.device):
            values: np.ndarray = function(torch.from_numpy(observations).to(self.device)).cpu().numpy()
        return values


def action_names(env: VectorEnv, spec: EnvSpec) -> list[str]:
    """The name of each action, or its number where the environment has no names."""
    names = env.action_names() or []
    return names if len(names) == spec.num_actions else [str(spec.first_action + i) for i in range(spec.num_actions)]


def is_file(run: str) -> bool:
    """Whether ``run`` names a checkpoint itself, and not the folder of a run."""
    return run.endswith(checkpoint.SUFFIX) and Path(run).is_file()


def home_of(run: str) -> Path:
    """The folder of the run that ``run`` names; of a checkpoint alone, the folder with the file."""
    if not is_file(run):
        return Path(run)
    above = Path(run).absolute().parent
    return above.parent if above.name == CHECKPOINTS and (above.parent / CONFIG).exists() else above


def _trained(play: PlayConfig, folder: Path) -> tuple[Path, state_file.State, DictConfig]:
    """The checkpoint to play, its state, and the configuration of its run.

    Raises:
        ConfigError: it is missing, damaged, or of another run than its folder's.
    """
    if is_file(play.run):
        if play.checkpoint != DEFAULT:
            raise ConfigError(
                f"checkpoint={play.checkpoint}: does not go with run={play.run}, which names a checkpoint."
            )
        path = Path(play.run)
        state = _read(path, f"run={play.run}")
        return path, state, resuming.of_copy(state["config"], path)
    composed = resuming.load_run(folder)
    path, state = _load(folder / CHECKPOINTS, play.checkpoint)
    if differing := resuming.foreign(state["config"], resuming.plain_of(composed)):
        raise ConfigError(
            f"checkpoint={play.checkpoint}: is of another run than this folder's ({', '.join(differing)})."
        )
    return path, state, composed


def _load(folder: Path, name: str) -> tuple[Path, state_file.State]:
    """The checkpoint ``name``; for ``best`` the newest if there is none."""
    path = folder / f"{name.removesuffix(checkpoint.SUFFIX)}{checkpoint.SUFFIX}"
    if name == DEFAULT and not path.exists():
        path = next(iter(checkpoint.candidates(folder)), path)
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in folder.glob(f"*{checkpoint.SUFFIX}"))) or "none"
        raise ConfigError(f"checkpoint={name}: is not in {folder}; there: {there}.")
    return path, _read(path, f"checkpoint={name}")


def _read(path: Path, option: str) -> state_file.State:
    try:
        state = state_file.load(path)
    except DamagedError as error:
        raise ConfigError(f"{option}: {error}") from error
    if not isinstance(state.get("config"), dict):
        raise ConfigError(f"{option}: holds no configuration of a run.")
    return state
