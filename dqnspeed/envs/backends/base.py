"""Interface of a backend: an option of ``backend``, and the engine that it makes for :class:`VectorEnv`."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import BackendConfig, RunConfig, typed
from dqnspeed.envs.base import Wrappers
from dqnspeed.envs.games import AtariGame, atari_game, check_id
from dqnspeed.system.messages import FOREIGN

AnyArray = np.ndarray | torch.Tensor  # on the host, or on any device


class ActorError(Exception):
    """An environment raised, or an actor or worker process died or hung; the message holds the traceback if any.

    Not a RuntimeError: contextlib mistakes a RuntimeError caused by a StopIteration for that StopIteration.
    """


class ActorErrors:
    """A ``with`` block that turns any error of an environment into :class:`ActorError` with its traceback.

    Not a generator: one that a signal leaves behind before its block begins gets a GeneratorExit, which is no error of
    an environment.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, FOREIGN):
            text = "".join(traceback.format_exception(error))
            raise ActorError(f"an environment raised:\n{text}") from error


@dataclass(slots=True)
class RawStep:
    """One step of N environments as the engine returns it.

    Frames may be a tensor on any device, ready on the current stream of that device. Frame stacks, the network and a
    replay buffer on that device take the tensor without a copy to the host. All other arrays are NumPy's.
    """

    frames: AnyArray  # (N, C, ...)
    rewards: np.ndarray  # (N,) unclipped
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    lives: np.ndarray | None  # (N,) int, where the game has lives


class Engine(Protocol):
    """Steps N environments in Gymnasium's NEXT_STEP autoreset.

    The step after an episode's end ignores its action and returns the first frame of the next episode.

    Attributes:
        num_envs: N.
        device: device on which actions may be given as a tensor; ``None``: actions are NumPy arrays.
    """

    num_envs: int
    device: torch.device | None

    def reset(self, seeds: list[int]) -> RawStep:
        """Start N episodes, each with its own seed."""

    def send(self, actions: Any) -> None:
        """Start a step with ``actions`` ``(N,) int64``, an array or a tensor on ``device``.

        In a game with sticky actions ``~a`` is the action ``a`` that no sticky action replaces, unless the backend says
        ``drops_presses``.
        """

    def recv(self) -> RawStep:
        """Wait for the step; the next one may overwrite its arrays."""

    def save_games(self) -> list[dict[str, Any]] | None:
        """State of each game in progress, arrays and JSON values; ``None`` if the engine cannot save games."""

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        """Continue saved games; False if one of them could not be restored."""

    def call(self, name: str) -> Any:
        """Result of the method ``name`` of the first environment, such as ``render`` or ``get_action_meanings``."""

    def close(self) -> None:
        """Free processes, threads and memory."""


@base_of("backend")
@dataclass(frozen=True)
class Backend(BackendConfig):
    """An option of ``backend``, which makes the engine of a run.

    Every option but ``name`` needs a default, since ``backend=auto`` makes a backend without its file.

    Attributes:
        priority: ``backend=auto`` takes the highest that can play; ``None``: never this one.
        drops_presses: sticky actions may replace a press of FIRE for the agent, so that one press may have no effect.
    """

    priority: ClassVar[float | None] = None
    drops_presses: ClassVar[bool] = False

    def check(self, run: RunConfig) -> None:
        """Raise :class:`ConfigError` if the backend cannot play what ``run`` asks for, on any machine."""

    def check_here(self, run: RunConfig) -> None:
        """Raise :class:`ConfigError` if the backend cannot play ``run`` on this machine, as a package is missing."""

    def make(self, run: RunConfig, overlap: bool, render_mode: str | None, seeds: Sequence[int]) -> Engine:
        """Engine of ``run.num_envs`` environments, each with every stage of ``run.wrappers`` on single frames.

        :class:`VectorEnv` and :class:`FrameStack` add clipped rewards, lost lives and the frame stack.

        Args:
            overlap: environments step between ``send`` and ``recv``, while the caller works.
            render_mode: Gymnasium's; ``None``: nothing is rendered.
            seeds: of global random generators in worker processes, one for each environment.
        """
        raise NotImplementedError

    def compile_games(self, run: RunConfig) -> None:
        """Compile now what :meth:`make` would compile beside the games of ``run``, before speeds are measured."""

    def for_random_play(self) -> Backend | None:
        """Backend for the random play of ``wrappers.crop=[]``, alike on every machine; ``None``: ``gymnasium``."""
        return None

    def refusal(self, problem: str) -> ConfigError:
        """Error that says what the backend cannot play."""
        return ConfigError(f"backend={self.name}: {problem}. Use backend=auto.")

    def game_of(self, run: RunConfig) -> AtariGame:
        """ALE game of ``run``; raises :class:`ConfigError` if its environment is none."""
        game = atari_game(run.env)
        if game is None:
            check_id(run.env)
            raise self.refusal(f"needs an ALE game, and {run.env.id} is not one")
        return game

    def check_stages(self, run: RunConfig) -> None:
        """Raise :class:`ConfigError` unless cv2's area resize and the standard stages are all that ``wrappers`` has.

        For an engine that computes the stages in compiled code of its own.
        """
        wrappers = typed(run.wrappers, Wrappers)
        for key, only in (("resizer", "cv2"), ("interpolation", "area")):
            if (value := getattr(wrappers, key)) != only:
                raise self.refusal(f"resizes with wrappers.{key}={only} only, not {value}")
        if wrappers.adds_stages:
            raise self.refusal(f"has the standard stages only, and wrappers={wrappers.name} adds others")


class NotInstalledError(ConfigError):
    """A package that a backend needs is not installed, or does not start here."""
