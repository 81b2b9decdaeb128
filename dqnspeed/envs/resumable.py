"""Saving and restoring games in progress."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, cast

import gymnasium
import numpy as np
from ale_py import ALEState
from ale_py.env import AtariEnv

from dqnspeed.envs.wrappers import FireReset, FrameSkip, NoopReset, StickyActions
from dqnspeed.system.messages import FOREIGN

log = logging.getLogger(__name__)

REPEAT_S = 30.0  # a game that takes longer to repeat is not restored
MOST_ACTIONS = 1_000_000  # nor is one of more steps, whose actions would fill memory and checkpoints


class Resumable(gymnasium.Wrapper):
    """The outermost wrapper of an environment: its ``game`` can be read, and set on another copy.

    An ALE game is saved as ALE's own state, with the action that sticky actions may repeat. Any other environment is
    restored by starting its episode again from the same seed or random state and repeating the actions; if that does
    not lead to the same observation, ``games_restored`` is False and the environment needs a reset.

    With sticky actions, ``~a`` is the action ``a`` that they do not replace.

    A game that is over needs its reset on the next step, as in Gymnasium's NEXT_STEP autoreset.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.games_restored = False
        self._over = False
        self._reset_next = False
        self._actions: list[int] = []
        self._steps = 0
        self._start: dict[str, Any] = {}
        self._frame: Any = None
        self._shape = env.observation_space.shape
        self._sticky = next((layer for layer in self._layers() if isinstance(layer, StickyActions)), None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._over = self._reset_next = False
        seeded = seed is not None
        self._start = {
            "seed": seed,
            "rng": None if seeded else self._rng_state(),
            "ale": None if seeded else self._ale_state(),
        }
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
        if self._steps <= MOST_ACTIONS:
            self._actions.append(int(action))
        elif self._actions:
            self._actions, self._start = [], {"seed": None, "rng": None}
        self._frame, reward, terminated, truncated, info = self.env.step(action)
        self._over = bool(terminated or truncated)
        self._check_shape()
        return self._frame, reward, terminated, truncated, self._lives(info)

    def _lives(self, info: dict[str, Any]) -> dict[str, Any]:
        """What is used of ``info``: of every key Gymnasium makes an array, which not all that is told there can be."""
        return {"lives": info["lives"]} if isinstance(self.unwrapped, AtariEnv) and "lives" in info else {}

    def _check_shape(self) -> None:
        if (shape := np.shape(self._frame)) != self._shape:  # NumPy would broadcast some, and not name it
            raise ValueError(
                f"an observation has the shape {shape} after {self._steps} steps of a game, and its space says "
                f"{self._shape}"
            )

    @property
    def _ale(self) -> AtariEnv | None:
        """An ALE game with our wrappers; around one that Gymnasium made, others' may count and keep frames."""
        env = self.unwrapped
        return env if isinstance(env, AtariEnv) and env.spec is None else None

    @property
    def game(self) -> dict[str, Any]:
        """The game in progress: arrays and JSON values."""
        state = {"over": self._over, "rng": self._rng_state()}
        if self._ale is not None:
            return {
                **state,
                "ale": self._ale_state(),
                "frames": self._pooled_frames(),
                "owed": [p.start_reward for p in self._presses()],
                "last_action": None if self._sticky is None else self._sticky.last_action,
            }
        ale = self._ale_state() if self._over else None  # from whose random numbers the next game begins
        return {
            **state,
            "ale": ale,
            "begun": self._start,
            "actions": np.array(self._actions),
            "frame": np.array(self._frame),
        }

    @game.setter
    def game(self, state: dict[str, Any]) -> None:
        if (env := self._ale) is not None:
            env.restore_state(ALEState(state["ale"].tobytes()))
            if (skip := self._frame_skip()) is not None:
                for i, frame in state["frames"].items():
                    skip.last_two[int(i)][:] = frame
            for press, reward in zip(self._presses(), state["owed"], strict=True):
                press.start_reward = reward
            if self._sticky is not None:
                self._sticky.last_action = state["last_action"]
            self._set_rng(state["rng"])
            self.games_restored = True
        elif state["over"]:
            self._set_rng(state["rng"])
            self._set_ale(state["ale"])
            self.games_restored = True
        else:
            self.games_restored = self._repeat(state)
        self._over = self._reset_next = bool(state["over"]) and self.games_restored

    def _repeat(self, state: dict[str, Any]) -> bool:
        try:
            return self._repeated(state)
        except FOREIGN as error:  # an environment that is not deterministic may refuse an action
            log.info("a game could not be repeated: %s", error)
            return False

    def _repeated(self, state: dict[str, Any]) -> bool:
        start, begin = state["begun"], time.monotonic()
        if start["seed"] is None and start["rng"] is None:  # nobody knows how it began
            return False
        if start["rng"] is not None:
            self._set_rng(start["rng"])
        self._set_ale(start["ale"])
        self.reset(seed=start["seed"])
        self._start = start
        for action in state["actions"].tolist():
            self.step(action)
            if self._over or time.monotonic() - begin > REPEAT_S:
                return False
        return np.array_equal(np.asarray(self._frame), state["frame"])

    def _ale_state(self) -> np.ndarray | None:
        """That of an ALE game, with its own random numbers, by which an episode without a seed begins."""
        env = self.unwrapped
        if not isinstance(env, AtariEnv):
            return None
        return np.frombuffer(env.clone_state(include_rng=True).serialize(), np.uint8)

    def _set_ale(self, state: np.ndarray | None) -> None:
        if state is not None:
            cast("AtariEnv", self.unwrapped).restore_state(ALEState(state.tobytes()))

    def _pooled_frames(self) -> dict[str, np.ndarray]:
        skip = self._frame_skip()
        return {} if skip is None else {str(i): frame.copy() for i, frame in enumerate(skip.last_two)}

    def _frame_skip(self) -> FrameSkip | None:
        return next((layer for layer in self._layers() if isinstance(layer, FrameSkip)), None)

    def _presses(self) -> list[NoopReset | FireReset]:
        return [layer for layer in self._layers() if isinstance(layer, (NoopReset, FireReset))]

    def _layers(self) -> Iterator[gymnasium.Wrapper]:
        layer: gymnasium.Env = self.env
        while isinstance(layer, gymnasium.Wrapper):
            yield layer
            layer = layer.env

    def _rng_state(self) -> str | None:
        """That of ``np_random``; ``None`` where an environment has something else there."""
        generator = getattr(self.unwrapped.np_random, "bit_generator", None)
        return None if generator is None else json.dumps(generator.state, default=_listed)

    def _set_rng(self, state: str | None) -> None:
        if state is not None:
            self.unwrapped.np_random.bit_generator.state = json.loads(state)


def _listed(value: Any) -> Any:
    return value.tolist()  # MT19937 has an array
