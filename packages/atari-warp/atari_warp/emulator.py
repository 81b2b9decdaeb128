"""Consoles played frame by frame, as ALE plays one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from atari_warp.consoles import NO_LIMIT, Consoles, checked_seeds
from atari_warp.games import EmulatorError, Game


class Emulator(Consoles):
    """Atari 2600 consoles that are equal to ALE's in every frame.

    Args:
        game: ALE's name of a game, or ``find_game("breakout").at(mode=4)``.
        num_envs: consoles.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        rom: a ROM file to play instead of ale-py's.
        threads: CPU threads.
        compile_rom: compile the game's code in the background; see :class:`Consoles`.
        trace: record which instructions are executed; see :meth:`Consoles.trace`.
        repeat_action_probability: probability that a frame repeats the action of the previous frame.
        max_episode_frames: time limit of a game in frames; ``None`` means no limit.
        seeds: ``(N,)`` integers from 0 to 2**64 - 1 for repeated actions; ``None`` means 0 to N - 1.

    Raises:
        EmulatorError: an argument cannot be used, or Warp cannot compile the kernel.

    Attributes:
        reward, terminated, truncated, lives: of the last step. A game that is over or truncated keeps its last frame
            until :meth:`reset`.
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        device: str = "cpu",
        rom: Path | None = None,
        threads: int = 1,
        compile_rom: bool = False,
        trace: bool = False,
        repeat_action_probability: float = 0.0,
        max_episode_frames: int | None = None,
        seeds: Any = None,
    ):
        limits = play_settings(repeat_action_probability, max_episode_frames)
        super().__init__(game, num_envs, device, rom, threads, limits, compile_rom, trace=trace)
        self._give("seeds", self._seeds, checked_seeds(range(self.num_envs) if seeds is None else seeds))
        self._load()

    def reset(self, mask: Any = None) -> None:
        """Start the game on all consoles, or where ``mask`` is not 0.

        Args:
            mask: ``(N,)``, for example :attr:`terminated`; for its types see :meth:`step`.
        """
        self._start(mask)

    def step(self, actions: Any, frames: int = 1, drawn: int = 1) -> None:
        """Play ``frames`` frames and draw the last ``drawn`` of them.

        Args:
            actions: ``(N,)`` ALE action numbers: an ``int32`` Warp array on the device, a tensor on torch's current
                stream, or anything that NumPy reads. Numbers that are not actions count as NOOP.

        Raises:
            EmulatorError: an argument cannot be used.
        """
        integers = all(isinstance(number, (int, np.integer)) for number in (frames, drawn))
        if not integers or not 0 <= drawn <= frames or not 0 < frames < 2**31:
            raise EmulatorError(
                f"frames={frames}, drawn={drawn}: must be integers with frames >= 1 and 0 <= drawn <= frames."
            )
        self._play(actions, frames, drawn)


def play_settings(repeat_action_probability: float, max_episode_frames: int | None) -> tuple[int, int]:
    """Settings of consoles without an agent, see :class:`Consoles`.

    Raises:
        EmulatorError: an argument cannot be used.
    """
    limit = NO_LIMIT if max_episode_frames is None else max_episode_frames
    if not isinstance(limit, (int, np.integer)) or not 0 < limit <= NO_LIMIT:
        raise EmulatorError(f"max_episode_frames={limit}: must be an integer from 1 to {NO_LIMIT:,}, or None.")
    if not 0 <= repeat_action_probability <= 1:
        raise EmulatorError(f"repeat_action_probability={repeat_action_probability}: must be a number from 0 to 1.")
    return min(int(repeat_action_probability * 2**31), NO_LIMIT), int(limit)
