"""A trained agent, for Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from dqnspeed.algorithms import algorithm_of
from dqnspeed.cli.api import undisturbed
from dqnspeed.cli.compose import own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.config.options import ConfigError, check_values
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import make_vector_env
from dqnspeed.networks.base import Network
from dqnspeed.play.environment import AgentEnv, observation_space
from dqnspeed.play.options import DEFAULT, PlayConfig
from dqnspeed.play.player import Player, action_names


class Agent:
    """A trained network, which takes observations as it was trained on, and no others.

    Attributes:
        folder: of its run.
        checkpoint: the file it was loaded from.
        agent_steps: of training until then.
        config: of its run, with the wrappers and the device that it plays with here.
        observation_space: of one observation, as :meth:`make_env` gives it: the frames of a stack joined along the
            first axis, ``(stack * C, H, W)`` or ``(stack * D,)``, not scaled.
        action_space: ``Discrete(num_actions)``.
        outputs: what the network computes for each action: ``"action values"``, which are :meth:`values`, or ``"logits
            of the policy"``, whose softmax is :meth:`probabilities`.
    """

    def __init__(self, player: Player):
        self.folder: Path = player.folder
        self.checkpoint: Path = player.path
        self.agent_steps: int = player.agent_steps
        self.config: RunConfig = player.run
        self.observation_space: spaces.Box = observation_space(player.spec)
        self.action_space = spaces.Discrete(player.spec.num_actions)
        self.outputs: str = algorithm_of(player.run).outputs
        self._player = player

    def __repr__(self) -> str:
        return f"Agent({str(self.checkpoint)!r}, env={self.config.env.id!r}, algo={self.config.algo.name!r})"

    def act(self, observation: np.ndarray) -> int:
        """The action whose value is largest: the greedy one, or the most likely one of a policy.

        Args:
            observation: one of :attr:`observation_space`.

        Raises:
            ValueError: it has another shape, dtype or order of channels.
        """
        return int(self._player.values(self._checked(observation, batch=False)).argmax())

    def values(self, observation: np.ndarray) -> np.ndarray:
        """The value of each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        They are of rewards as the learner saw them (``wrappers`` may clip them), and the means of algorithms that learn
        distributions of returns.

        Args:
            observation: one of :attr:`observation_space`, or ``(B, ...)`` of them.

        Raises:
            ValueError: it has another shape, dtype or order of channels, or the algorithm learns no action values.
        """
        if self._has_policy:
            value = ", or value() for the state" if self._has_value else ""
            raise ValueError(f"values: {self._algo} learns a policy and no action values; use probabilities(){value}.")
        return self._of(self._player.values, observation)

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """The chance that the policy gives each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        Args:
            observation: one of :attr:`observation_space`, or ``(B, ...)`` of them.

        Raises:
            ValueError: it has another shape, dtype or order of channels, or the algorithm learns no policy.
        """
        if not self._has_policy:
            raise ValueError(f"probabilities: {self._algo} learns action values and no policy; use values().")
        logits = self._of(self._player.values, observation)
        return torch.from_numpy(logits).softmax(dim=-1).numpy()

    def value(self, observation: np.ndarray) -> np.ndarray:
        """The value of the state that an actor-critic learns beside its policy, ``() float32``; ``(B,)`` of a batch.

        Args:
            observation: one of :attr:`observation_space`, or ``(B, ...)`` of them.

        Raises:
            ValueError: it has another shape, dtype or order of channels, or the algorithm learns no state value.
        """
        if not self._has_value:
            other = "probabilities()" if self._has_policy else "values().max(axis=-1), that of the best action"
            raise ValueError(f"value: {self._algo} learns no value of a state; use {other}.")
        return self._of(self._player.state_values, observation)

    @cached_property
    def action_names(self) -> list[str]:
        """The name of each action, by its number in :attr:`action_space`; the environment's numbers if it has none.

        Raises:
            ConfigError: the environment cannot be made.
        """
        env = make_vector_env(self.config)
        try:
            return action_names(env, self._player.spec)
        finally:
            env.close()

    def make_env(self, render_mode: str | None = None) -> AgentEnv:
        """A Gymnasium environment of the agent's own game, with the observations that it takes.

        Wrappers and stack are those of the run, played as ``dqnspeed play`` does: rewards are not clipped, and an ALE
        game starts with up to ``eval.noop_max`` no-ops.

        Args:
            render_mode: ``"rgb_array"`` to draw the game.

        Raises:
            ConfigError: the environment cannot be made.
            ValueError: ``render_mode`` is another.
        """
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: takes 'rgb_array' or None.")
        return AgentEnv(self.config, self._player.spec, render_mode)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._player.spec.observation_shape

    @property
    def _algo(self) -> str:
        return f"algo={self.config.algo.name}"

    @property
    def _has_policy(self) -> bool:
        return self.config.algo.has_policy

    @property
    def _has_value(self) -> bool:
        return type(self._player.network).policy_and_value is not Network.policy_and_value

    def _of(self, function: Callable[[np.ndarray], np.ndarray], observation: Any) -> np.ndarray:
        """Result of ``function`` for an observation, or for a batch of them."""
        batch = np.ndim(observation) > len(self._shape)
        found = function(self._checked(observation, batch))
        return found if batch else found[0]

    def _checked(self, observation: Any, batch: bool) -> np.ndarray:
        """A batch ``(B, ...)`` of its own, of one observation or more."""
        given, shape, dtype = np.asarray(observation), self._shape, self._player.spec.frame_dtype
        kind = "a batch of " if batch else ""
        wanted = f"{kind}{shape} {dtype}"
        if given.shape[int(batch) :] != shape:
            *others, last = given.shape or (0,)
            turned = given.ndim == 3 == len(shape) and (last, *others) == shape
            hint = "; its channels are last, and should be first" if turned else "; make_env() gives such"
            raise ValueError(f"observation: is {given.shape} {given.dtype}, and this agent takes {wanted}{hint}.")
        if given.dtype != dtype:
            raise ValueError(
                f"observation: is of {given.dtype}, and this agent takes {wanted} as the game gives it, not scaled."
            )
        return np.array(given if batch else given[None], order="C")  # torch takes no others


def load(folder: Path, checkpoint: str = DEFAULT, device: str = "auto", trust: bool = False) -> Agent:
    """As :func:`dqnspeed.load`."""
    options = PlayConfig(str(folder), checkpoint, trust, device=device)
    for name, value in (("checkpoint", checkpoint), ("device", device)):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value}: takes a text, as in {name}={getattr(PlayConfig, name)!r}.")
    check_values(options)
    with undisturbed(), own_hydra(), as_config_error():
        return Agent(Player(options))
