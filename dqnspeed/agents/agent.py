"""A trained agent: its network, its environments, and what it computes for an observation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from dqnspeed import envs
from dqnspeed.agents.environment import AgentEnv, observation_space
from dqnspeed.agents.film import GameFilm, film_game
from dqnspeed.algorithms import algorithm_of, make_network
from dqnspeed.cli import compose, resume
from dqnspeed.cli.api import undisturbed
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.trust import check_code
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.backends.gymnasium import Gymnasium
from dqnspeed.envs.games import atari_game
from dqnspeed.execution.precision import check_execution, precision, set_precision
from dqnspeed.networks.base import Network, as_tensors
from dqnspeed.system import machine
from dqnspeed.tracking.published import folder_at, output_of
from dqnspeed.tracking.run_folder import CHECKPOINTS, CONFIG, DamagedError
from dqnspeed.training import state_file
from dqnspeed.training.checkpoint import SUFFIX, best_or_newest
from dqnspeed.training.evaluation import with_starts

if TYPE_CHECKING:
    from omegaconf import DictConfig

BEST_CHECKPOINT = "best"
DEVICES = "auto", "cpu", "cuda", "mps"


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
        has_policy: whether the outputs are the logits of a policy.
        noop_max: most no-ops at the start of an ALE game.

    The network has random weights until :meth:`set_weights`.
    """

    def __init__(
        self,
        trained: RunConfig,
        *,
        folder: Path = Path(),
        checkpoint: Path = Path(),
        device: str = "auto",
        noop_max: int | None = None,
    ):
        self.folder, self.checkpoint, self.agent_steps = folder, checkpoint, 0
        self.output = output_of(folder)
        self.noop_max: int | None = trained.eval.noop_max if noop_max is None else noop_max
        wrappers = dataclasses.replace(trained.wrappers, clip_reward=False)
        backend = Gymnasium("gymnasium")  # equivalent to any other, and able to render
        played = dataclasses.replace(trained, wrappers=wrappers, backend=backend, num_envs=1, device=device)
        self.config: RunConfig = with_starts(played, self.noop_max)
        execution = dataclasses.replace(played.execution, compile=False)
        if execution.precision == "bf16":  # a processor without bf16 is several times as slow in it
            execution = dataclasses.replace(execution, precision=machine.best_precision(device))
        self._execution = execution
        check_execution(dataclasses.replace(self.config, execution=execution))
        self.spec: EnvSpec = envs.describe(self.config)
        self.observation_space: spaces.Box = observation_space(self.spec)
        self.action_space = spaces.Discrete(self.spec.num_actions)
        self.outputs: str = algorithm_of(self.config).outputs
        self.network = make_network(self.config, self.spec)
        self._device = machine.pick_device(device)
        self.network.to(self._device).eval()
        self.has_policy: bool = trained.algo.has_policy
        self._has_value = type(self.network).policy_and_value is not Network.policy_and_value

    def set_weights(self, weights: Mapping[str, np.ndarray], agent_steps: int) -> None:
        """Take these weights of the network, from after ``agent_steps`` of training.

        Raises:
            RuntimeError: they are of another network.
        """
        self.network.load_state_dict(as_tensors(weights))
        self.agent_steps = agent_steps

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
        self._check_learns("values", not self.has_policy, "action values", f"probabilities(){value}")
        return self._outputs(self.network, observation)

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """The policy's probability of each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        Args:
            observation: one observation of :attr:`observation_space`, or a batch ``(B, ...)``.

        Raises:
            ValueError: ``observation`` has another shape, dtype or order of channels, or the algorithm learns no
                policy.
        """
        self._check_learns("probabilities", self.has_policy, "policy", "values()")
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
        other = "probabilities()" if self.has_policy else "values().max(axis=-1), the value of the best action"
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

    def render_problem(self) -> ConfigError | None:
        """The reason why the environment draws no pictures; ``None`` if it draws them."""
        if atari_game(self.config.env) is not None:
            return None
        try:
            with contextlib.closing(self.make_env(render_mode="rgb_array")) as env:
                env.reset(seed=0)
                env.render()
        except ConfigError as error:
            return error
        return None

    def watch(self, seed: int = 0, saliency: bool = False) -> GameFilm:
        """Play a game and film it, for the output of a notebook's cell.

        The agent plays as in ``dqnspeed play``: the best action, or drawn from the policy with
        ``eval.deterministic=false``. Beside the game are the observation and the outputs.

        Args:
            seed: seed of the game.
            saliency: redden the parts of the observation that the outputs depend on.

        Returns:
            A film that a notebook shows, with the ``mp4`` and the ``episode_return``.

        Raises:
            ConfigError: the encoder is missing, the environment draws no pictures, or the agent sees no images and
                ``saliency`` is set.
        """
        return film_game(self, seed, saliency)

    def _check_learns(self, method: str, learns: bool, what: str, other: str) -> None:
        if not learns:
            raise ValueError(f"{method}: algo={self.config.algo.name} learns no {what}. Use {other}.")

    def compute(self, function: Callable[[Tensor], Tensor], observations: np.ndarray) -> np.ndarray:
        """Result of ``function``, a part of the network, for a batch ``(B, stack * C, ...)`` that is not checked."""
        if self._device.type == "cuda":
            set_precision(self._execution)
        with torch.inference_mode(), precision(self._execution, self._device):
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


def load(
    run: str | Path,
    checkpoint: str = BEST_CHECKPOINT,
    device: str = "auto",
    trust: bool = False,
    noop_max: int | None = None,
) -> Agent:
    """Load the agent that ``run`` names, on the command line or by :func:`dqnspeed.load`.

    Args:
        noop_max: most no-ops at the start of an ALE game; ``None``: ``eval.noop_max`` of the run.

    Raises:
        ConfigError: as :func:`dqnspeed.load`.
    """
    folder = folder_of(str(run))
    path, state, composed = load_checkpoint(str(run), checkpoint, folder)
    check_code({"env": resume.plain_of(composed)["env"]}, folder, trust)
    trained = compose.from_hydra(composed)
    agent = Agent(trained, folder=folder, checkpoint=path, device=device, noop_max=noop_max)
    try:
        agent.set_weights(state["learner"]["network"], int(state["progress"]["agent_steps"]))
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(f"checkpoint={checkpoint}: is of another network than this run's.") from error
    return agent


def load_undisturbed(folder: Path, checkpoint: str, device: str, trust: bool) -> Agent:
    """Implementation of :func:`dqnspeed.load`."""
    for name, value, example in (("checkpoint", checkpoint, BEST_CHECKPOINT), ("device", device, "auto")):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value}: takes a text, as in {name}={example!r}.")
    if device not in DEVICES:
        raise ConfigError(f"device={device}: choose one of {', '.join(DEVICES)}.")
    with undisturbed(), compose.own_hydra(), as_config_error():
        return load(folder, checkpoint, device, trust)


def _is_checkpoint(run: str) -> bool:
    """Whether ``run`` names a checkpoint, and not the folder of a run."""
    return run.endswith(SUFFIX) and Path(run).is_file()


def folder_of(run: str) -> Path:
    """The folder of the run that ``run`` names; the folder of the file if it names a checkpoint outside of a run."""
    if not _is_checkpoint(run):
        return folder_at(run)
    parent = Path(run).absolute().parent
    is_of_run = parent.name == CHECKPOINTS and (parent.parent / CONFIG).exists()
    return folder_at(str(parent.parent if is_of_run else parent))


def load_checkpoint(run: str, name: str, folder: Path) -> tuple[Path, state_file.State, DictConfig]:
    """The checkpoint ``name``, its state, and the configuration of its run in ``folder``.

    Raises:
        ConfigError: the checkpoint is missing, damaged, or of another run than the folder's.
    """
    if _is_checkpoint(run):
        if name != BEST_CHECKPOINT:
            raise ConfigError(f"checkpoint={name}: does not go with run={run}, which names a checkpoint.")
        state = _read(Path(run), f"run={run}")
        return Path(run), state, resume.of_copy(state["config"], Path(run))
    composed = resume.load_run(folder)
    checkpoints = folder / CHECKPOINTS
    path = checkpoints / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    if name == BEST_CHECKPOINT:
        path = best_or_newest(checkpoints) or path
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in checkpoints.glob(f"*{SUFFIX}")))
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
