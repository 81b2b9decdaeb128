"""A trained agent, and the options of ``python -m dqnspeed.play``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from omegaconf import DictConfig
from torch import Tensor

from dqnspeed import envs
from dqnspeed.algorithms import algorithm_of, make_network
from dqnspeed.cli import compose, resume, trust
from dqnspeed.cli.api import undisturbed
from dqnspeed.cli.errors import as_config_error
from dqnspeed.config.options import ConfigError, check_values, option
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.backends.gymnasium import Gymnasium
from dqnspeed.execution.precision import check_execution, precision, set_precision
from dqnspeed.networks.base import Network, as_tensors
from dqnspeed.play.environment import AgentEnv, observation_space
from dqnspeed.system import machine
from dqnspeed.tracking.published import folder_at, output_of
from dqnspeed.tracking.run_folder import CHECKPOINTS, CONFIG, VIDEOS, DamagedError
from dqnspeed.training import checkpoint, state_file
from dqnspeed.training.evaluation import with_starts

NEWEST_RUN, BEST_CHECKPOINT = "newest", "best"


@dataclass(frozen=True)
class PlayConfig:
    run: str = option(
        f"folder of a run or of a published agent, a checkpoint, or zoo:GAME; {NEWEST_RUN}: the newest run in outputs/ "
        f"and multirun/",
        default=NEWEST_RUN,
    )
    zoo: str | None = option("list: print the agents of the zoo, and play nothing", choices=("list",), default=None)
    checkpoint: str = option(f"best, final, or the name of another file in {CHECKPOINTS}/", default=BEST_CHECKPOINT)
    trust: bool = option("import an environment named by files of the run that were not written here", default=False)
    episodes: int = option("games to play", ge=1, default=5)
    num_envs: int = option("games played at once; several are not shown", ge=1, le=4096, default=1)
    epsilon: float = option("probability of a random action", ge=0, le=1, default=0.0)
    deterministic: bool | None = option(
        "take the policy's most likely action; false: draw from the policy, null: eval.deterministic", default=None
    )
    noop_max: int | None = option(
        "most no-ops at the start of an ALE game; 0: as in training, null: eval.noop_max", ge=0, default=None
    )
    seed: int = option("seed of the games and of random actions", ge=0, lt=2**31, default=0)
    window: bool | None = option("show the games; null: if there is a display", default=None)
    record: bool = option(f"write an mp4 file of each game into the run's {VIDEOS}/", default=False)
    overlay: bool = option("draw the stack, the action values and the chosen action beside the game", default=False)
    fps: float | None = option(
        "agent steps shown a second; null: 60 frames a second (Atari), the game's render_fps, or 30", gt=0, default=None
    )
    device: str = option("device of the network", choices=("auto", "cpu", "cuda", "mps"), default="auto")


class Agent:
    """A trained network, which takes observations as it was trained on, and no others.

    Attributes:
        folder: the folder of the run, or of the published agent.
        output: the folder for results of playing: the run's, or one below ``outputs/`` for a published agent.
        checkpoint: the file of the network.
        agent_steps: steps of training until the checkpoint.
        config: the run's configuration, with the wrappers and the device that the agent plays with.
        observation_space: space of one observation of :meth:`make_env`: the frames of a stack joined along the first
            axis, ``(stack * C, H, W)`` or ``(stack * D,)``, not scaled.
        action_space: ``Discrete(num_actions)``.
        network: the network, which computes :attr:`outputs` of each action.
        outputs: ``"action values"``, which are :meth:`values`; or ``"logits of the policy"``, whose softmax is
            :meth:`probabilities`.
        noop_max: most no-ops at the start of an ALE game.
    """

    def __init__(self, options: PlayConfig):
        self.folder = folder_of(options.run)
        self.output = output_of(self.folder)
        self.checkpoint, state, composed = load_checkpoint(options, self.folder)
        trust.check_code({"env": resume.plain_of(composed)["env"]}, self.folder, options.trust)
        trained = compose.from_hydra(composed)
        self.noop_max: int | None = trained.eval.noop_max if options.noop_max is None else options.noop_max
        wrappers = dataclasses.replace(trained.wrappers, clip_reward=False)
        backend = Gymnasium("gymnasium")  # equivalent to any other, and able to render
        played = dataclasses.replace(trained, wrappers=wrappers, backend=backend, num_envs=1, device=options.device)
        self.config: RunConfig = with_starts(played, self.noop_max)
        execution = dataclasses.replace(played.execution, compile=False)
        check_execution(dataclasses.replace(self.config, execution=execution))
        self.spec: EnvSpec = envs.describe(self.config)
        self.observation_space: spaces.Box = observation_space(self.spec)
        self.action_space = spaces.Discrete(self.spec.num_actions)
        self.outputs: str = algorithm_of(self.config).outputs
        self.network = make_network(self.config, self.spec)
        try:
            self.agent_steps: int = state["progress"]["agent_steps"]
            self.network.load_state_dict(as_tensors(state["learner"]["network"]))
        except (RuntimeError, KeyError, TypeError) as error:
            raise ConfigError(f"checkpoint={options.checkpoint}: is of another network than this run's.") from error
        self._device = machine.pick_device(options.device)
        self.network.to(self._device).eval()
        self._has_policy = trained.algo.has_policy
        self._has_value = type(self.network).policy_and_value is not Network.policy_and_value

    def __repr__(self) -> str:
        return f"Agent({str(self.checkpoint)!r}, env={self.config.env.id!r}, algo={self.config.algo.name!r})"

    def act(self, observation: np.ndarray) -> int:
        """The action with the largest value: the greedy action, or the most likely action of a policy.

        Args:
            observation: one observation of :attr:`observation_space`.

        Raises:
            ValueError: ``observation`` has another shape, dtype or order of channels.
        """
        return int(self.compute(self.network, self._batch(observation, is_batch=False)).argmax())

    def values(self, observation: np.ndarray) -> np.ndarray:
        """The value of each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        Values are of rewards as the learner saw them (``wrappers`` may clip them). Algorithms that learn distributions
        of returns give their means.

        Args:
            observation: one observation of :attr:`observation_space`, or a batch ``(B, ...)``.

        Raises:
            ValueError: ``observation`` has another shape, dtype or order of channels, or the algorithm learns no action
                values.
        """
        value = " or value()" if self._has_value else ""
        self._check_learns("values", not self._has_policy, "action values", f"probabilities(){value}")
        return self._outputs(self.network, observation)

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """The policy's probability of each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        Args:
            observation: one observation of :attr:`observation_space`, or a batch ``(B, ...)``.

        Raises:
            ValueError: ``observation`` has another shape, dtype or order of channels, or the algorithm learns no
                policy.
        """
        self._check_learns("probabilities", self._has_policy, "policy", "values()")
        logits = self._outputs(self.network, observation)
        return torch.from_numpy(logits).softmax(dim=-1).numpy()

    def value(self, observation: np.ndarray) -> np.ndarray:
        """The value of the state, which an actor-critic learns, ``() float32``; ``(B,)`` of a batch.

        Args:
            observation: one observation of :attr:`observation_space`, or a batch ``(B, ...)``.

        Raises:
            ValueError: ``observation`` has another shape, dtype or order of channels, or the algorithm learns no state
                value.
        """
        other = "probabilities()" if self._has_policy else "values().max(axis=-1), the value of the best action"
        self._check_learns("value", self._has_value, "state value", other)
        return self._outputs(lambda batch: self.network.policy_and_value(batch)[1], observation)

    @cached_property
    def action_names(self) -> list[str]:
        """The name of each action, in the order of :attr:`action_space`; numbers if the environment has no names.

        Raises:
            ConfigError: the environment cannot be made.
        """
        with contextlib.closing(envs.make_vector_env(self.config)) as env:
            names = env.action_names() or []
        known = len(names) == self.spec.num_actions
        return names if known else [str(self.spec.first_action + i) for i in range(self.spec.num_actions)]

    def make_env(self, render_mode: str | None = None) -> AgentEnv:
        """Make a Gymnasium environment of the agent's game, with the observations that the agent takes.

        The wrappers are the run's, but rewards are not clipped, and an ALE game starts with up to ``eval.noop_max``
        no-ops, as in ``dqnspeed play``.

        Args:
            render_mode: ``"rgb_array"`` to draw the game.

        Raises:
            ConfigError: the environment cannot be made.
            ValueError: ``render_mode`` is not supported.
        """
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: takes 'rgb_array' or None.")
        return AgentEnv(self.config, self.spec, render_mode)

    def _check_learns(self, method: str, learns: bool, what: str, other: str) -> None:
        if not learns:
            raise ValueError(f"{method}: algo={self.config.algo.name} learns no {what}. Use {other}.")

    def compute(self, function: Callable[[Tensor], Tensor], observations: np.ndarray) -> np.ndarray:
        """Result of ``function``, a part of the network, for a batch ``(B, stack * C, ...)`` that is not checked."""
        if self._device.type == "cuda":
            set_precision(self.config.execution)
        with torch.inference_mode(), precision(self.config.execution, self._device):
            values: np.ndarray = function(torch.from_numpy(observations).to(self._device)).cpu().numpy()
        return values

    def _outputs(self, function: Callable[[Tensor], Tensor], observation: Any) -> np.ndarray:
        """Result of ``function`` for an observation, or for a batch of observations."""
        is_batch = np.ndim(observation) > len(self.spec.observation_shape)
        found = self.compute(function, self._batch(observation, is_batch))
        return found if is_batch else found[0]

    def _batch(self, observation: Any, is_batch: bool) -> np.ndarray:
        """Copy of one observation or of a batch, as a batch ``(B, ...)``."""
        given, shape, dtype = np.asarray(observation), self.spec.observation_shape, self.spec.frame_dtype
        wanted = f"{'a batch of ' if is_batch else ''}{shape} {dtype}"
        if given.shape[int(is_batch) :] != shape:
            channels_last = given.ndim == 3 and (given.shape[2], *given.shape[:2]) == shape
            fix = "Put the channels first" if channels_last else "Use observations of make_env()"
            raise ValueError(f"observation: is {given.shape} {given.dtype}, and this agent takes {wanted}. {fix}.")
        if given.dtype != dtype:
            raise ValueError(
                f"observation: is {given.dtype}, and this agent takes {wanted}. Do not scale the game's observations."
            )
        return np.array(given if is_batch else given[None], order="C")  # torch takes no negative strides


def load(folder: Path, checkpoint: str = BEST_CHECKPOINT, device: str = "auto", trust: bool = False) -> Agent:
    """Implementation of :func:`dqnspeed.load`."""
    options = PlayConfig(str(folder), checkpoint=checkpoint, trust=trust, device=device)
    for name, value in (("checkpoint", checkpoint), ("device", device)):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value}: takes a text, as in {name}={getattr(PlayConfig, name)!r}.")
    check_values(options)
    with undisturbed(), compose.own_hydra(), as_config_error():
        return Agent(options)


def _is_checkpoint(run: str) -> bool:
    """Whether ``run`` names a checkpoint, and not the folder of a run."""
    return run.endswith(checkpoint.SUFFIX) and Path(run).is_file()


def folder_of(run: str) -> Path:
    """The folder of the run that ``run`` names; the folder of the file if it names a checkpoint outside of a run."""
    if not _is_checkpoint(run):
        return folder_at(run)
    parent = Path(run).absolute().parent
    return parent.parent if parent.name == CHECKPOINTS and (parent.parent / CONFIG).exists() else parent


def load_checkpoint(options: PlayConfig, folder: Path) -> tuple[Path, state_file.State, DictConfig]:
    """The checkpoint, its state, and the configuration of its run.

    Raises:
        ConfigError: the checkpoint is missing, damaged, or of another run than the folder's.
    """
    name, path = options.checkpoint, Path(options.run)
    if _is_checkpoint(options.run):
        if name != BEST_CHECKPOINT:
            raise ConfigError(f"checkpoint={name}: does not go with run={options.run}, which names a checkpoint.")
        state = _read(path, f"run={options.run}")
        return path, state, resume.of_copy(state["config"], path)
    composed = resume.load_run(folder)
    checkpoints = folder / CHECKPOINTS
    path = checkpoints / f"{name.removesuffix(checkpoint.SUFFIX)}{checkpoint.SUFFIX}"
    if name == BEST_CHECKPOINT:
        path = checkpoint.best_or_newest(checkpoints) or path
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in checkpoints.glob(f"*{checkpoint.SUFFIX}")))
        fix = f"Choose one of {there}." if there else "The run has saved none."
        raise ConfigError(f"checkpoint={name}: is not in {checkpoints}. {fix}")
    state = _read(path, f"checkpoint={name}")
    return path, state, composed


def _read(path: Path, option: str) -> state_file.State:
    try:
        state = state_file.load(path)
    except DamagedError as error:
        raise ConfigError(f"{option}: {error}") from error
    if not isinstance(state.get("config"), dict):
        raise ConfigError(f"{option}: holds no configuration of a run.")
    return state
