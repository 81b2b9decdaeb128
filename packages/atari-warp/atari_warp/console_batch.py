"""Consoles played by agents: observations, rewards and episodes, computed on the device of the consoles."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.console_data import gray_levels, palette
from atari_warp.consoles import NO_CONSOLES, WIDTH, Consoles, checked_seeds
from atari_warp.cpu_launch import packed
from atari_warp.games import EmulatorError, Game, find_game
from atari_warp.kernel_cache import compiled
from atari_warp.preprocessing import ENLARGE, KEEP, SHRINK, Preprocessing, area_weights, interpolation_weights
from atari_warp.reset_pool import NOT_REPLACED, swap_launches

if TYPE_CHECKING:
    import torch

GPU_PARTS = 21  # parts of an observation that a GPU computes in parallel


class ConsoleBatch(Consoles):
    """Games that agents play, one in each console.

    Autoreset follows Gymnasium's NEXT_STEP mode: the step after the end of a game ignores its action and starts the
    next game. A start takes a hundred frames or more, and on a GPU all consoles would wait for it. A reset pool avoids
    that wait: additional consoles start games ahead, ``frameskip`` frames in each step. An environment whose game has
    ended takes over a pool console that is ready, and its own console joins the pool. Each console plays what it would
    have played alone, for other environments. If no console is ready, the start takes place within the step.

    Args:
        game: ALE's name of a game, or ``find_game("breakout").at(mode=4)``.
        num_envs: environments.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        preprocessing: observations, actions and episodes.
        rom: a ROM file to play instead of ale-py's.
        threads: CPU threads.
        compile_rom: compile the game's code in the background; see :class:`Consoles`.
        reset_pool: additional consoles, at most ``num_envs``; ``None`` means a quarter of ``num_envs`` on a GPU and 0
            on a CPU. Environments are served in groups of at least 256.
        observes: make :attr:`observations`.

    Raises:
        EmulatorError: an argument cannot be used, or Warp cannot compile the kernel.

    Attributes:
        preprocessing: its options, with actions.
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        device: str = "cpu",
        preprocessing: Preprocessing | None = None,
        rom: Path | None = None,
        threads: int = 1,
        compile_rom: bool = False,
        reset_pool: int | None = None,
        observes: bool = True,
    ):
        options = preprocessing or Preprocessing()
        if options.actions is None:
            actions = (find_game(game) if isinstance(game, str) else game).legal
            options = dataclasses.replace(options, actions=actions)
        self.preprocessing = options
        super().__init__(game, num_envs, device, rom, threads, options.settings, compile_rom, reset_pool)
        num_envs, pal = self.num_envs, self.game.pal
        shades = gray_levels(pal)[None] if options.grayscale else palette(pal).T
        self._shades = wp.array(np.ascontiguousarray(shades), dtype=wp.uint8, device=self.device)
        shape = (num_envs, len(shades), self.game.rows, WIDTH)
        self._pooled = wp.zeros(shape, dtype=wp.uint8, device=self.device)
        self._stacks = self._pooled
        if options.img_height is not None or options.stack_num > 1:
            shape = (num_envs, options.stack_num * len(shades), *options.picture_shape(self.game.rows))
            self._stacks = wp.zeros(shape, dtype=wp.uint8, device=self.device)
        saved = dataclasses.replace(options, render_full_screen=False)  # which does not change a game
        self._version = hashlib.sha256(f"{self._version}{saved}".encode()).hexdigest()[:16]
        self._resizing = self._resize_arguments(options)
        self._answers_on_host = None
        if self.device.is_cuda:
            self._answers_on_host = wp.empty(self._answers.shape, dtype=int, device="cpu", pinned=True)
        self._observations = [packed(self._observe_launch(part)) for part in self._threads.parts] if observes else []
        replacements = wp.full(num_envs, NOT_REPLACED, dtype=int, device=self.device)
        consoles = self._answers, self._state, self._screens
        self._replacements = replacements
        self._swaps = (
            swap_launches(num_envs, self.reset_pool, replacements, self._mask, *consoles) if self.reset_pool else []
        )
        self.has_games, self._selects_some = False, True

    @property
    def observations(self) -> np.ndarray:
        """Observations ``(N, stack_num * channels, height, width) uint8``; on a CPU a view.

        The next step updates changed pixels only, so a view must not be written to.
        """
        return np.asarray(self._stacks.numpy())

    @property
    def episode_start(self) -> np.ndarray:
        """Whether this step started an episode and is no transition, ``(N,) bool``."""
        return np.asarray(self._outcome(kernels.EPISODE_START) != 0)

    def observations_tensor(self) -> torch.Tensor:
        """:attr:`observations` as a tensor on the device, which shares memory with them."""
        tensor: torch.Tensor = wp.to_torch(self._stacks)
        return tensor

    def reset(self, seeds: Any, mask: Any = None) -> None:
        """Switch consoles on and start their first games.

        Args:
            seeds: ``(N,)`` integers from 0 to 2**64 - 1, for no-ops and sticky actions.
            mask: ``(N,)``; where it is 0 nothing changes. ``None`` takes all, and the reset pool with them.

        Raises:
            EmulatorError: ``seeds`` cannot be used.
        """
        if mask is not None:
            self._check_started()
        self._give("seeds", self._seeds, checked_seeds(seeds))
        self._select(mask)
        self._run(kernels.BEGIN, frames=int(mask is None))  # the pool starts with all consoles
        first, most = int(self._field("frames").min()), self.preprocessing.max_num_frames_per_episode
        if self.preprocessing.count_start_frames and first >= most:
            raise EmulatorError(
                f"max_num_frames_per_episode={most}: must be larger, as this game starts with frame {first}."
            )
        self.has_games = True

    def restart(self, mask: Any = None) -> None:
        """Start the next games, or go on after a lost life, on all consoles or where ``mask`` ``(N,)`` is not 0.

        Raises:
            EmulatorError: :meth:`reset` was not called, or ``mask`` cannot be used.
        """
        self._check_started()
        self._select(mask)
        for launch in self._swaps:
            launch.launch()
        self._run(kernels.RESTART)

    def step(self, actions: Any, mask: Any = None) -> None:
        """Play one step of each game, or start the next one.

        Args:
            actions: ``(N,)`` indices into :attr:`Preprocessing.actions`, of the types that :meth:`Emulator.step`
                takes. ``-1 - k`` is action ``k`` without sticky actions.
            mask: ``(N,)``; where it is 0 nothing changes. ``None`` steps all games.

        Raises:
            EmulatorError: :meth:`reset` was not called, or ``actions`` or ``mask`` cannot be used.
        """
        self._check_started()
        self._give("actions", self._actions, actions)
        self._select(mask)
        for launch in self._swaps:
            launch.launch()
        self._run(kernels.STEP)

    def _check_started(self) -> None:
        if not self.has_games:
            raise EmulatorError("no games have started. Call reset() or load_state() first.")

    def _select(self, mask: Any) -> None:
        """Choose the consoles of the next launch."""
        if mask is not None:
            self._give("mask", self._mask, mask)
        elif self._selects_some:
            self._mask.fill_(1)
        self._selects_some = mask is not None

    def read_outcomes(self) -> np.ndarray:
        """All numbers of the last step on the host, ``(kernels.ANSWERS, N) int32``.

        On a GPU the host waits for Warp's current stream only.
        """
        answers = self._answers
        if self._answers_on_host is not None:
            wp.copy(self._answers_on_host, answers)
            wp.synchronize_stream(wp.get_stream(self.device))
            answers = self._answers_on_host
        return np.array(answers.numpy()[: self.num_envs].T, order="C")

    def save_state(self) -> dict[str, np.ndarray]:
        arrays = self._pictures() | (self._pool_arrays() if self.reset_pool else {})
        return super().save_state() | {name: array.numpy().copy() for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the result of :meth:`save_state`, with observations and results of its last step.

        :attr:`Preprocessing.render_full_screen` and the size of the reset pool may differ. Pool consoles that the state
        lacks are switched on. Games that had not started have not started here either.
        """
        self._check_games(state)
        pictures = self._pictures()
        if any(name not in state or state[name].shape != array.shape for name, array in pictures.items()):
            raise EmulatorError("state: was saved by an Emulator, or has observations of another shape.")
        super().load_state(state)
        for name, array in pictures.items():
            array.assign(state[name])
        self.has_games = bool(state["consoles"].any())
        saved = min(len(state.get("pool_consoles", ())), self.reset_pool)
        if saved < self.reset_pool and self.has_games:
            self._give("seeds", self._seeds, np.array([zlib.crc32(one) for one in state["consoles"]], np.uint64))
            switch_on = self._launch_of(NO_CONSOLES, slice(self.num_envs + saved, self.num_envs + self.reset_pool))
            switch_on.set_param_by_name("order", kernels.BEGIN)
            switch_on.set_param_by_name("frames", 1)
            switch_on.launch()
        if saved:
            for name, array in self._pool_arrays().items():
                array[:saved].assign(state[name][:saved])

    def _pictures(self) -> dict[str, Any]:
        """Arrays beside the screens that the next observations depend on."""
        stacked = {} if self._stacks is self._pooled else {"observations": self._stacks}
        return {"pooled": self._pooled, **stacked}

    def _pool_arrays(self) -> dict[str, Any]:
        """Consoles of the reset pool, as they are saved."""
        arrays = {"consoles": self._state, "screens": self._screens, "answers": self._answers}
        return {f"pool_{name}": array[self.num_envs :] for name, array in arrays.items()}

    def _bytes_per_env(self) -> int:
        options, picture = self.preprocessing, self.game.rows * WIDTH
        height, width = options.picture_shape(self.game.rows)
        stacked = 0 if options.img_height is None and options.stack_num == 1 else options.stack_num * height * width
        return super()._bytes_per_env() + (1 if options.grayscale else 3) * (picture + stacked)

    def _resize_arguments(self, options: Preprocessing) -> list[Any]:
        """Arguments of the kernel that tell how pictures are cropped and resized."""
        top, bottom, left, right = options.crop or (0, self.game.rows, 0, WIDTH)
        if bottom > self.game.rows:
            raise EmulatorError(f"crop={options.crop}: pictures of this game have {self.game.rows} rows.")
        height, width = bottom - top, right - left
        to_height, to_width = options.picture_shape(self.game.rows)
        grows = to_height > height or to_width > width
        resize = KEEP if options.img_height is None else ENLARGE if grows else SHRINK
        weights = interpolation_weights if grows else area_weights
        columns, column_weights = weights(width, to_width)
        rows, row_weights = weights(height, to_height)
        share = 1.0
        if resize == SHRINK and height % to_height == width % to_width == 0:  # OpenCV sums up, and divides at the end
            column_weights[:], row_weights[:] = 1, 1
            share = to_height * to_width / (height * width)
        arrays = [
            wp.array(np.ascontiguousarray(array), dtype=dtype, device=self.device)
            for array, dtype in (
                (left + columns.T, int),
                (column_weights.T, float),
                (top + rows, int),
                (row_weights, float),
            )
        ]
        halved = height == 2 * to_height and width == 2 * to_width
        return [resize, int(options.stack_padding == "zero"), left, width, int(halved), share, arrays]

    def _observe_launch(self, part: slice) -> Any:
        parts = GPU_PARTS if self.device.is_cuda else 1
        *resizing, arrays = self._resizing
        read = [array[part] for array in (self._answers, self._screens[: self.num_envs])]
        written = [array[part] for array in (self._pooled, self._stacks)]
        inputs = [parts, *resizing, *read, self._shades, *arrays, *written]
        dim = part.stop - part.start, parts
        return compiled(
            kernels.observe,
            lambda: wp.launch(kernels.observe, dim=dim, inputs=inputs, device=self.device, record_cmd=True),
        )

    def _after_launch(self, order: int, part: int) -> None:
        if order >= kernels.BEGIN and self._observations:
            self._observations[part].launch()
