"""A trained agent, for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from dqnspeed.algorithms import algorithm_of
from dqnspeed.cli.compose import own_hydra
from dqnspeed.cli.embedded import undisturbed
from dqnspeed.cli.errors import as_config_error
from dqnspeed.config.options import ConfigError, check_values
from dqnspeed.config.schema import RunConfig
from dqnspeed.play.environment import AgentEnv, observation_space
from dqnspeed.play.options import DEFAULT, PlayConfig
from dqnspeed.play.player import Player


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
        outputs: what :meth:`values` are, in words: ``"action values"`` or ``"logits of the policy"``.
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
        """What the network computes of each action, ``(num_actions,) float32``; ``(B, num_actions)`` of a batch.

        Of algorithms that learn action values they are those, of rewards as the learner saw them (``wrappers`` may clip
        them); of those that learn distributions of returns, their means. Of algorithms with a policy they are its
        logits, which softmax makes probabilities.

        Args:
            observation: one of :attr:`observation_space`, or ``(B, ...)`` of them.

        Raises:
            ValueError: it has another shape, dtype or order of channels.
        """
        batch = np.ndim(observation) > len(self._shape)
        values = self._player.values(self._checked(observation, batch))
        return values if batch else values[0]

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
