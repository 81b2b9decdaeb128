"""Saving and restoring games in progress."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import gymnasium
import numpy as np
from ale_py import ALEState
from ale_py.env import AtariEnv

from dqnspeed.envs.wrappers import FireReset, FrameSkip, NoopReset, StickyActions
from dqnspeed.system.messages import FOREIGN

log = logging.getLogger(__name__)

MAX_REPEAT_S = 30.0  # a game that takes longer to repeat is not restored


class Resumable(gymnasium.Wrapper):
    """Outermost wrapper of an environment; its ``game`` in progress can be read, and set on another copy.

    An ALE game is saved as ALE's own state, with the action that sticky actions may repeat. Any other environment is
    restored by repeating the actions of its episode from the same seed or random state. If that does not lead to the
    same observation, ``games_restored`` is False and the environment needs a reset.

    With sticky actions, ``~a`` is the action ``a`` that no sticky action replaces.

    A restored game that is over is reset on the next step, as in Gymnasium's NEXT_STEP autoreset.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.games_restored = False
        self._over = self._reset_next = False
        self._actions, self._steps = list[int](), 0
        self._start: dict[str, Any] = {}
        self._frame: Any = None
        self._shape = env.observation_space.shape
        layers: list[gymnasium.Wrapper] = []
        while isinstance(env, gymnasium.Wrapper):
            layers.append(env)
            env = env.env
        self._sticky = next((layer for layer in layers if isinstance(layer, StickyActions)), None)
        self._skip = next((layer for layer in layers if isinstance(layer, FrameSkip)), None)
        self._presses = [layer for layer in layers if isinstance(layer, (NoopReset, FireReset))]
        self._ale: AtariEnv | None = env if isinstance(env, AtariEnv) else None
        # Around an ALE game that Gymnasium made, wrappers of others may keep a state of their own.
        self._saves_ale = self._ale is not None and env.spec is None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._over = self._reset_next = False
        rng, ale = (self._rng_state(), self._ale_state()) if seed is None else (None, None)
        self._start = {"seed": seed, "rng": rng, "ale": ale}
        self._actions, self._steps = [], 0
        self._frame, info = self.env.reset(seed=seed, options=options)
        self._check_shape()
        return self._frame, self._lives(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._reset_next:
            frame, info = self.reset()
            return frame, 0.0, False, False, info
        if self._sticky is not None:
            self._sticky.for_agent = action < 0
            action = ~action if action < 0 else action
        self._steps += 1
        self._actions.append(int(action))
        self._frame, reward, terminated, truncated, info = self.env.step(action)
        self._over = bool(terminated or truncated)
        self._check_shape()
        return self._frame, reward, terminated, truncated, self._lives(info)

    def _lives(self, info: dict[str, Any]) -> dict[str, Any]:
        """Lives alone: Gymnasium makes an array of every key of ``info``, and some values fit no array."""
        return {"lives": info["lives"]} if self._ale is not None and "lives" in info else {}

    def _check_shape(self) -> None:
        if (shape := np.shape(self._frame)) != self._shape:  # NumPy would broadcast some, and not name it
            raise ValueError(
                f"an observation has the shape {shape} after {self._steps} steps of a game, and its space says "
                f"{self._shape}"
            )

    @property
    def game(self) -> dict[str, Any]:
        """Game in progress, as arrays and JSON values."""
        state = {"over": self._over, "rng": self._rng_state()}
        if self._saves_ale:
            frames = [] if self._skip is None else self._skip.last_two
            return {
                **state,
                "ale": self._ale_state(),
                "frames": {str(i): frame.copy() for i, frame in enumerate(frames)},
                "start_rewards": [press.start_reward for press in self._presses],
                "last_action": None if self._sticky is None else self._sticky.last_action,
            }
        ale = self._ale_state() if self._over else None  # random numbers with which the next game begins
        actions, frame = np.array(self._actions), np.array(self._frame)
        return {**state, "ale": ale, "start": self._start, "actions": actions, "frame": frame}

    @game.setter
    def game(self, state: dict[str, Any]) -> None:
        self.games_restored = True
        if self._saves_ale or state["over"]:
            self._set_rng(state["rng"])
            self._set_ale(state["ale"])
        if self._saves_ale:
            for i, frame in state["frames"].items():
                assert self._skip is not None
                self._skip.last_two[int(i)][:] = frame
            for press, reward in zip(self._presses, state["start_rewards"], strict=True):
                press.start_reward = reward
            if self._sticky is not None:
                self._sticky.last_action = state["last_action"]
        elif not state["over"]:
            try:
                self.games_restored = self._repeat(state)
            except FOREIGN as error:  # an environment that is not deterministic may refuse an action
                log.info("a game could not be repeated: %s", error)
                self.games_restored = False
        self._over = self._reset_next = bool(state["over"]) and self.games_restored

    def _repeat(self, state: dict[str, Any]) -> bool:
        """Repeat the actions of a saved game; False if they do not lead to its last observation."""
        start, begin = state["start"], time.monotonic()
        if start["seed"] is None and start["rng"] is None:  # without random numbers that can be saved
            return False
        self._set_rng(start["rng"])
        self._set_ale(start["ale"])
        self.reset(seed=start["seed"])
        self._start = start
        for action in state["actions"].tolist():
            self.step(action)
            if self._over or time.monotonic() - begin > MAX_REPEAT_S:
                return False
        return np.array_equal(np.asarray(self._frame), state["frame"])

    def _ale_state(self) -> np.ndarray | None:
        """State of an ALE game, with its random numbers, by which an episode without a seed begins."""
        if self._ale is None:
            return None
        return np.frombuffer(self._ale.clone_state(include_rng=True).serialize(), np.uint8)

    def _set_ale(self, state: np.ndarray | None) -> None:
        if state is not None:
            assert self._ale is not None
            self._ale.restore_state(ALEState(state.tobytes()))

    def _rng_state(self) -> str | None:
        """State of ``np_random`` as JSON; ``None`` if it is no NumPy generator."""
        generator = getattr(self.unwrapped.np_random, "bit_generator", None)
        return None if generator is None else json.dumps(generator.state, default=lambda array: array.tolist())

    def _set_rng(self, state: str | None) -> None:
        if state is not None:
            self.unwrapped.np_random.bit_generator.state = json.loads(state)
