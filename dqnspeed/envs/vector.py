"""N environments with episodes, lives, returns and rewards that are the same for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.envs.backends.base import AnyArray, Engine, RawStep
from dqnspeed.system.messages import kind_and_line


@dataclass(frozen=True)
class Episode:
    """A whole game that ended, with all its lives: its unclipped return, and its length in agent steps.

    The step after each lost life counts, too.
    """

    env: int
    episode_return: float
    length: int
    end_row: int = 0  # rows of its environment when it ended; the last ``length`` are the frames it acted on
    last_frame: np.ndarray | None = field(default=None, repr=False, compare=False)  # (C, ...) for a video
    begun: int = 0  # place in the order in which the games of a run began, from 1


@dataclass(slots=True)
class Step:
    """Result of one step of N environments; every array leads with N.

    Where ``first`` is true, the frame starts an episode: the action was ignored, there is no transition, and rewards
    and ends are zero.
    """

    frames: AnyArray  # (N, C, ...) newest frame of each environment, on the engine's device
    rewards: np.ndarray  # (N,) float32, as the learner sees them
    terminated: np.ndarray  # (N,) bool, the learner's episode ended: do not bootstrap
    truncated: np.ndarray  # (N,) bool, a limit ended the episode: bootstrap from these frames
    first: np.ndarray  # (N,) bool
    episodes: list[Episode]  # whole games that ended with this step
    raw: RawStep  # of the games themselves, with unclipped rewards and all lives together


class VectorEnv:
    """Steps N environments; :meth:`send` may return while they still step, :meth:`recv` waits for them.

    After a step with ``terminated`` or ``truncated`` the next one ignores its action and starts the next episode
    (``first``). With ``episodic_life`` a lost life ends the learner's episode in the same way, though the game
    continues: the ignored action is replaced by ``life_action``, such as FIRE. A game may not look at FIRE yet, as
    Gopher for 130 frames; such a game still waits for it afterwards.

    Args:
        engine: steps the environments.
        life_action: may be ``~a``, as in :meth:`Engine.send`.
        presses: number of steps after a lost life in which ``life_action`` is pressed.
        start_presses: number of steps after a game's start in which ``life_action`` is pressed.

    Attributes:
        device: device on which actions may be given as a tensor; only the step itself waits for it.
    """

    def __init__(
        self,
        engine: Engine,
        clip_reward: bool,
        episodic_life: bool,
        life_action: int = 0,
        presses: int = 1,
        start_presses: int = 0,
    ):
        self.num_envs = engine.num_envs
        self.device = engine.device
        self.engine = engine
        self._clip_reward = clip_reward
        self._episodic_life = episodic_life
        self._life_action = life_action
        self._presses, self.start_presses = presses, start_presses
        self._lives = np.zeros(self.num_envs, np.int64)
        self._game_over = np.zeros(self.num_envs, bool)
        self._to_press = np.zeros(self.num_envs, np.int64)  # steps to come with life_action
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def reset(self, seeds: list[int]) -> AnyArray:
        """Start N games, each with its own seed; returns their first frames ``(N, C, ...)``."""
        raw = self.engine.reset(seeds)
        self._lives = self._lives_of(raw)
        for state in (self._game_over, self._returns, self._lengths):
            state[:] = 0
        self._to_press[:] = self.start_presses
        return raw.frames

    def send(self, actions: AnyArray) -> None:
        """Start a step with ``actions`` ``(N,) int64``."""
        press = self._to_press > 0
        if press.any() and isinstance(actions, torch.Tensor):
            there = torch.tensor(press).to(actions.device, non_blocking=True)
            actions = actions.masked_fill(there, self._life_action)
        elif press.any():
            actions = np.where(press, self._life_action, actions)
        self.engine.send(actions)

    def recv(self) -> Step:
        """Wait for the step started by :meth:`send`. Frames may be overwritten by the next step."""
        raw = self.engine.recv()
        reset = self._game_over
        first = reset | (self._to_press > 0)
        self._returns += raw.rewards
        self._lengths += ~reset
        self._game_over = raw.terminated | raw.truncated
        before, self._lives = self._lives, self._lives_of(raw)
        lost = self._episodic_life & (self._lives < before) & ~(raw.terminated | reset)
        left = np.where(reset, self.start_presses, np.maximum(self._to_press - 1, 0))
        self._to_press = np.where(lost, self._presses, left)

        rewards = raw.rewards.astype(np.float32)
        if self._clip_reward:
            np.clip(rewards, -1, 1, out=rewards)
        terminated = raw.terminated | lost
        truncated = raw.truncated
        if first.any():
            rewards[first] = 0
            terminated, truncated = terminated & ~first, truncated & ~first
        return Step(raw.frames, rewards, terminated, truncated, first, self._finished_games(), raw)

    @property
    def ignores(self) -> np.ndarray:
        """Environments ``(N,) bool`` whose next action is ignored."""
        return self._game_over | (self._to_press > 0)

    def state_dict(self) -> dict[str, Any]:
        """The games in progress, if the backend can save them, with their returns, lengths and lives."""
        games = self.engine.save_games()
        state: dict[str, Any] = {name: array.copy() for name, array in self._counted().items()}
        return {**state, "games": None if games is None else {str(i): game for i, game in enumerate(games)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore saved games after a reset; False if that fails and the new games of the reset are used."""
        if state["games"] is None or not self.engine.restore_games(
            [state["games"][str(i)] for i in range(self.num_envs)]
        ):
            return False
        for name, array in self._counted().items():
            array[:] = state[name]
        return True

    def render(self) -> np.ndarray:
        """Image ``(H, W, 3) uint8`` of the first game; needs a ``render_mode``.

        Raises:
            ConfigError: the environment gives no image.
        """
        try:
            image = np.asarray(self.engine.call("render"))
        except Exception as error:
            raise ConfigError(f"this environment cannot draw itself ({kind_and_line(error)}).") from error
        if image.ndim == 2:
            image = image[..., None]
        if image.ndim != 3 or image.shape[2] not in (1, 3, 4) or not image.size:
            raise ConfigError("this environment cannot draw itself (its render() gives no rgb_array).")
        image = image.repeat(3, axis=2) if image.shape[2] == 1 else image[..., :3]  # gray; no transparency
        whole = np.issubdtype(image.dtype, np.integer)
        shown: np.ndarray = np.clip(image, 0, 255) if whole else 255 * np.clip(image, 0, 1)
        return shown.astype(np.uint8, copy=False)

    def action_names(self) -> list[str] | None:
        """Names of the actions, if the game has them."""
        try:
            names = self.engine.call("get_action_meanings")
            return [str(name) for name in (names.values() if isinstance(names, Mapping) else names)]
        except Exception:  # a user's environment may have something else there, or raise anything
            return None

    def close(self) -> None:
        self.engine.close()

    def _counted(self) -> dict[str, np.ndarray]:
        return {
            "lives": self._lives,
            "game_over": self._game_over,
            "to_press": self._to_press,
            "returns": self._returns,
            "lengths": self._lengths,
        }

    def _lives_of(self, raw: RawStep) -> np.ndarray:
        """Copy of the lives ``(N,)`` left in each game, 0 in games without lives."""
        return np.zeros(self.num_envs, np.int64) if raw.lives is None else np.array(raw.lives)

    def _finished_games(self) -> list[Episode]:
        finished = []
        for i in np.flatnonzero(self._game_over):
            finished.append(Episode(int(i), float(self._returns[i]), int(self._lengths[i])))
            self._returns[i] = self._lengths[i] = 0
        return finished
