"""Engine of ``backend=atari_warp``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
import warp as wp
from atari_warp import ConsoleBatch, EmulatorError

from dqnspeed.envs.backends.base import ActorError, AnyArray, RawStep

SHARED_KEYS = ("game", "version")  # of a saved state, alike for all consoles


class WarpEngine:
    """Engine over :class:`atari_warp.ConsoleBatch`: many consoles on threads of a CPU, or on a GPU.

    Args:
        meanings: ALE's names of the actions.
        overlap: games step after :meth:`send`, in a thread that waits for them.

    Attributes:
        device: device of the games, on which actions may be given.
    """

    def __init__(self, consoles: ConsoleBatch, meanings: Sequence[str], overlap: bool):
        self.num_envs = consoles.num_envs
        self.device: torch.device | None = torch.device(str(consoles.device))
        self._consoles = consoles
        self._actions: Any = None  # copies, as a step still reads them after send() has returned
        self._meanings = list(meanings)
        on_gpu = consoles.device.is_cuda
        # A stream of torch: torch's default stream and streams that Warp makes wait for each other.
        self._stream = wp.stream_from_torch(torch.cuda.Stream(str(consoles.device))) if on_gpu else None
        self._waits = ThreadPoolExecutor(1, "emulator") if overlap and not on_gpu else None
        self._step: Future[None] | None = None
        wp.synchronize_device(consoles.device)

    def reset(self, seeds: list[int]) -> RawStep:
        with self._beside_the_learner():
            self._wait_for_readers()
            try:
                self._consoles.reset(seeds)
            except EmulatorError as error:
                raise ActorError(str(error)) from error
            return self._raw()

    def send(self, actions: AnyArray) -> None:
        self._actions = (
            actions.copy() if isinstance(actions, np.ndarray) else wp.from_torch(actions.to(torch.int32, copy=True))
        )
        if self._waits is not None:
            self._step = self._waits.submit(self._consoles.step, self._actions)
            return
        with self._beside_the_learner():
            self._wait_for_readers()
            self._consoles.step(self._actions)

    def recv(self) -> RawStep:
        if self._step is not None:
            self._step.result()
        with self._beside_the_learner():
            return self._raw()

    def _beside_the_learner(self) -> contextlib.AbstractContextManager[Any]:
        """Context in which work on a GPU goes to the games' own stream."""
        return contextlib.nullcontext() if self._stream is None else wp.ScopedStream(self._stream, sync_enter=False)

    def _wait_for_readers(self) -> None:
        """Let a step wait until the learner's stream has read the frames that the step overwrites."""
        if self._stream is not None:
            self._stream.wait_stream(wp.stream_from_torch(torch.cuda.current_stream(str(self._consoles.device))))

    def save_games(self) -> list[dict[str, Any]]:
        self._wait()
        state = self._consoles.save_state()
        common = {name: str(state.pop(name)) for name in SHARED_KEYS}
        # One row for each environment; some environments have a console of the reset pool too.
        each = range(self.num_envs)
        return [{**common, **{name: array[i :: self.num_envs] for name, array in state.items()}} for i in each]

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        try:
            common = {name: np.array(games[0][name]) for name in SHARED_KEYS}
            arrays = {
                name: np.concatenate([game[name] for game in games]) for name in games[0] if name not in SHARED_KEYS
            }
            self._wait()
            self._consoles.load_state({**common, **arrays})
            wp.synchronize_device(self._consoles.device)
        except (EmulatorError, KeyError, ValueError):  # saved by another backend, or another version of the emulator
            return False
        return True

    def call(self, name: str) -> Any:
        if name == "render":
            self._wait()
            return self._consoles.render(0)
        if name == "get_action_meanings":
            return self._meanings
        raise AttributeError(name)

    def close(self) -> None:
        if self._waits is not None:
            self._waits.shutdown()
        self._wait()
        self._consoles.close()

    def _wait(self) -> None:
        """Wait for the step in progress."""
        if self._step is not None:
            wait([self._step])
        if self._stream is not None:
            wp.synchronize_stream(self._stream)

    def _raw(self) -> RawStep:
        points, terminated, truncated, lives = self._consoles.read_outcomes().T
        seen = self._consoles.observations
        frames = seen.numpy() if self._stream is None else wp.to_torch(seen)
        return RawStep(frames, points.astype(np.float64), terminated.astype(bool), truncated.astype(bool), lives)
