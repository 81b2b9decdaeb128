"""Small environments whose every frame says where it comes from, and some that misbehave on purpose."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Frames ``(1, 3) float32`` hold (seed, episode, step); an episode ends after ``length`` steps.

    Even episodes terminate, odd ones are truncated. The reward is ``10 * action + step``.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 7):
        self.length = length
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed % 1000
        self.episode, self.steps = self.episode + 1, 0
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps == self.length
        odd = self.episode % 2 == 1
        return self._frame(), 10.0 * float(action) + self.steps, ended and not odd, ended and odd, {}

    def _frame(self) -> np.ndarray:
        return np.array([self.seed, self.episode, self.steps], np.float32)


ERRORS = {"raise": RuntimeError, "stop": StopIteration, "leave": GeneratorExit}


class Broken(Counter):
    """Does ``how`` at its tenth step: raise, hang, be slow, die, exit, spoil the reward with NaN, or the frame's shape.

    Args:
        folder: hang, or raise at once, only when it exists; an environment that hangs makes a file ``hangs`` there.
    """

    def __init__(self, how: str, folder: str = ""):
        super().__init__(length=1000)
        if how == "starts another":
            another = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            another.start()
            another.terminate()
            another.join()
            if multiprocessing.parent_process() is not None:  # nobody listens to this one
                read, write = os.pipe()
                os.close(read)
                os.dup2(write, 1)
                os.close(write)
        if multiprocessing.parent_process() is not None and how == "no worker":
            os.kill(os.getpid(), 9)
        if multiprocessing.parent_process() is not None and how == "no answer":
            hang_in_the_toy()
        self.how, self.folder = how, Path(folder)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = super().step(action)
        if self.how == "starts another":
            print("and talks", flush=True)
        if self.how == "raise at once" and self.folder.is_dir():
            raise RuntimeError("the toy broke")
        if self.steps >= 10:
            if self.how in ERRORS:
                raise ERRORS[self.how]("the toy broke")
            if self.how == "hang" and self.folder.is_dir():
                if self.folder.name:
                    (self.folder / "hangs").touch()
                hang_in_the_toy()
            if self.how == "slow" and self.steps == 10:
                time.sleep(1.5)
            if self.how == "shape":
                frame = frame[:2]
            if self.how == "exit":
                sys.exit()
            if self.how == "die":
                os.kill(os.getpid(), 9)
            if self.how == "spoil":
                reward = float("nan")
        return frame, reward, terminated, truncated, info


class Coin(Counter):
    """A coin says whether a game takes 2 steps and returns 1, or ``longest`` steps and returns -1: 0 in the mean."""

    def __init__(self, longest: int = 200):
        super().__init__()
        self.longest = longest

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        frame, info = super().reset(seed=seed)
        self.length = int(self.np_random.choice([2, self.longest]))
        return frame, info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frame, _, terminated, truncated, info = super().step(action)
        ended = terminated or truncated
        return frame, (1.0 if self.length == 2 else -1.0) if ended else 0.0, ended, False, info


class Talkative(Counter):
    """Its ``info`` is of no use to anybody, and its random numbers are of the old sort."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        frame, _ = super().reset(seed=seed)
        self.np_random = np.random.RandomState(seed)  # type: ignore[assignment]
        return frame, self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        *result, _ = super().step(action)
        return (*result, self._info())  # type: ignore[return-value]

    def _info(self) -> dict[str, Any]:
        moves, even = np.arange(self.seed % 5 + 1 + self.steps), self.seed % 2 == 0
        return {"legal_moves": moves, "winner": None if even else 1, "lives": [3, 3], "told": {} if even else 0}


class Elsewhere(Counter):
    """Slow, or broken from its 200th step on, on a machine whose environment says so."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(float(os.environ.get("TOY_SLEEP_S", "0")))
        if os.environ.get("TOY_BREAKS") and self.episode * self.length + self.steps > 200:
            raise RuntimeError("this machine broke")
        return super().step(action)


class Dice(Counter):
    """Frames hold draws of the global generators of Python and NumPy, and one from when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.made = random.random()

    def _frame(self) -> np.ndarray:
        return np.array([self.made, random.random(), np.random.random()], np.float32)  # noqa: NPY002


def hang_in_the_toy() -> None:
    time.sleep(600)


SPACES = {
    "hw": spaces.Box(0, 255, (20, 24), np.uint8),
    "blank": spaces.Box(0, 0, (20, 24), np.uint8),
    "hwc": spaces.Box(0, 255, (20, 24, 3), np.uint8),
    "hw1": spaces.Box(0, 255, (20, 24, 1), np.uint8),
    "chw": spaces.Box(0, 255, (3, 20, 24), np.uint8),
    "float": spaces.Box(0, 1, (20, 24, 3), np.float64),
    "many": spaces.Box(0, 1, (10, 10, 7), bool),
    "board": spaces.MultiBinary((15, 15)),
    "int_board": spaces.Box(-1, 1, (15, 15), np.int8),
    "bits": spaces.MultiBinary(6),
    "vector": spaces.Box(-5, 5, (4,), np.float64),
    "number": spaces.Box(-5, 5, (), np.float32),
    "discrete": spaces.Discrete(9),
    "million": spaces.Discrete(2_000_000),
    "shifted": spaces.Discrete(9, start=3),
    "several": spaces.MultiDiscrete([2, 3]),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(5)]),
    "dict": spaces.Dict({"image": spaces.Box(0, 255, (20, 24, 3), np.uint8), "mission": spaces.Text(9)}),
    "text": spaces.Text(9),
    "cube": spaces.Box(0, 255, (2, 4, 4, 4), np.uint8),
    "continuous": spaces.Box(-5, 5, (4,), np.float32),
    "empty": spaces.Box(0, 1, (0,), np.float32),
}


class Anything(gymnasium.Env):
    """Observations drawn from the space ``kind``; ``wrong`` names a mistake in them. Actions are 5, 6 and 7."""

    action_space = spaces.Discrete(3, start=5)

    def __init__(self, kind: str, wrong: str = ""):
        self.observation_space, self.wrong = SPACES[kind], wrong
        self.steps = 0
        if kind == "continuous":
            self.action_space = self.observation_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        observation = self._observe()
        return observation if self.wrong == "no info" else (observation, {})

    def step(self, action: int) -> Any:
        assert action in (5, 6, 7) and np.asarray(action).dtype == self.action_space.dtype
        self.steps += 1
        if self.wrong == "raises":
            raise RuntimeError("the toy broke")
        reward: Any = {"nan reward": float("nan"), "text reward": "1.0", "rewards": np.ones(1)}.get(self.wrong, 1.0)
        over = self.steps == 10
        result = self._observe(), reward, over, False, {}
        return result[:4] if self.wrong == "four values" else result

    def close(self) -> None:
        if self.wrong == "close":
            raise RuntimeError("the toy cannot be closed")

    def _observe(self) -> Any:
        observation = self.observation_space.sample()
        if self.wrong == "divided":
            return observation / 255
        if self.wrong == "divided and cast":
            return (observation / 255).round().astype(np.uint8)
        if self.wrong == "nan":
            return np.full_like(observation, np.nan)
        if self.wrong == "beyond":
            return observation * 3
        if self.wrong == "turned":
            return observation.T
        return 99 if self.wrong == "outside" else observation


class Board(gymnasium.Env):
    """A board of 15 by 15 squares; one of four moves is rewarded now and then, and a game lasts 20 to 60 moves."""

    observation_space: spaces.Space = spaces.MultiBinary((15, 15))
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(20, 60))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        reward = float(action == self.np_random.integers(4))
        return self._observe(), reward, self.left <= 0, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.integers(2, size=(15, 15)).astype(np.int8)


class Catch(gymnasium.Env):
    """A ball falls from the top, and a paddle below moves left, stays or moves right to catch the ball.

    Observations are pixels ``(6, 5) uint8``. The reward is 1 or -1 after the fifth move. Pictures are gray.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = spaces.Box(0, 255, (6, 5), np.uint8)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None):
        self.render_mode, self.picture = render_mode, np.zeros((6, 5), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.ball, self.paddle = 0, int(self.np_random.integers(5)), 2
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.row, self.paddle = self.row + 1, min(4, max(0, self.paddle + int(action) - 1))
        ended = self.row == 5
        reward = (1.0 if self.ball == self.paddle else -1.0) if ended else 0.0
        return self._observe(), reward, ended, False, {}

    def render(self) -> np.ndarray:
        self.picture[:] = self._observe()
        return self.picture

    def _observe(self) -> np.ndarray:
        pixels = np.zeros((6, 5), np.uint8)
        pixels[5, self.paddle] = pixels[self.row, self.ball] = 255
        return pixels


class Painted(gymnasium.Env):
    """Noise in rows 5 to 9 and columns 3 to 11 of images ``(20, 20, channels) uint8``, or ``(20, 20)`` without any.

    They are drawn into one array; pictures of it are of int64. A game is over and out of time at its sixth step.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, channels: int = 0, render_mode: str | None = None):
        self.render_mode = render_mode
        self.image = np.zeros((20, 20, channels) if channels else (20, 20), np.uint8)
        self.observation_space = spaces.Box(0, 255, self.image.shape, np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._paint(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == 6
        return self._paint(), 0.0, over, over, {}

    def render(self) -> np.ndarray:
        return np.arange(20 * 20 * 3).reshape(20, 20, 3) % 256

    def _paint(self) -> np.ndarray:
        part = self.image[5:10, 3:12]
        part[:] = self.np_random.integers(256, size=part.shape)
        return self.image


class Sick(Board):
    """A board of pixels with the ``mistakes`` that are named."""

    observation_space = spaces.Box(0, 255, (15, 15, 3), np.uint8)

    def __init__(self, mistakes: list[str]):
        self.mistakes = mistakes

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        reward *= 0 if "silent" in self.mistakes else 1000 if "huge" in self.mistakes else 1
        terminated = (terminated or "short" in self.mistakes) and "endless" not in self.mistakes
        return observation, reward, terminated, truncated, info

    def _observe(self) -> np.ndarray:
        pixels = self.np_random.integers(256, size=(15, 15, 3)).astype(np.uint8)
        if "stale" in self.mistakes:
            return np.arange(675).astype(np.uint8).reshape(15, 15, 3)
        if "frozen" in self.mistakes:
            return np.full_like(pixels, 80)
        if "dim" in self.mistakes:
            return (pixels / 255).round().astype(np.uint8)
        return pixels / 255 if "divided" in self.mistakes else pixels


def sick(mistakes: list[str]) -> gymnasium.Env:
    env: gymnasium.Env = Sick(mistakes)
    if "changed" in mistakes:
        env = gymnasium.wrappers.TransformReward(env, lambda reward: reward / 10)
    return gymnasium.wrappers.RecordEpisodeStatistics(env)


for kind in (Anything, Board, Broken, Catch, Coin, Counter, Dice, Elsewhere, Painted, Talkative):
    gymnasium.register(f"{kind.__name__}-v0", kind)
gymnasium.register("Sick-v0", sick)
