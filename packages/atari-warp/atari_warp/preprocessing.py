"""Games as an agent plays them: observations, rewards and ends, made where the consoles are."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.colors import palette, shades
from atari_warp.compiling import compiled
from atari_warp.emulator import NOBODY, WIDTH, Emulator
from atari_warp.games import ACTIONS, EmulatorError, Game, find
from atari_warp.spares import NONE, exchanges

PARTS = 21  # of an observation, which a GPU makes at the same time
TERMS = 40  # rows of a picture that one of an observation may be made of: pixels.h has room for them


@dataclass(frozen=True)
class Preprocessing:
    """What makes an environment of a game, as Gymnasium's ``AtariPreprocessing`` does it (Machado et al. 2018).

    Attributes:
        frame_skip: frames that an action lasts.
        tap: each action but NOOP comes a second time, after all others: let go after so many frames; 0: it does not.
        max_pool: the maximum of the last two frames, if an action lasts for more than one.
        crop: what of a picture is resized: its first row and that after the last, its first column and that after the
            last; ``None``: all of it.
        size: side of the square that a picture is resized to, by area as OpenCV does it; ``None``: as it is.
        noop_max: a game starts with 1 to as many frames of NOOP, or with none.
        fire: then FIRE is pressed for a frame. What this brings belongs to the first step.
        stack: frames of an observation, the newest of which comes last; an episode starts with as many of its first.
        episodic_life: a lost life ends the episode, and the next step starts another of the same game: instead of its
            action FIRE is pressed with ``fire``, and else nothing.
        clip_reward: a reward is the sign of its points.
        sticky_actions: probability that a frame repeats the action of the one before; no-ops and FIRE of a start are
            pressed for certain.
        max_episode_frames: after which a game is truncated.
        actions: those that an agent has, as ALE numbers them; ``None``: all that the game takes.
        whole: rows that ``crop`` leaves out are drawn too, for :meth:`Games.rgb`.
    """

    frame_skip: int = 4
    tap: int = 0
    max_pool: bool = True
    grayscale: bool = True
    crop: tuple[int, int, int, int] | None = None
    size: int | None = 84
    noop_max: int = 30
    fire: bool = False
    stack: int = 1
    episodic_life: bool = False
    clip_reward: bool = False
    sticky_actions: float = 0.0
    max_episode_frames: int = 108_000
    actions: tuple[int, ...] | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        for name, least, most in (
            ("frame_skip", 1, 2**20), ("noop_max", 0, 2**20), ("max_episode_frames", 1, 2**31 - 1), ("size", 8, WIDTH),
            ("stack", 1, 2**10),
        ):  # fmt: skip
            value = getattr(self, name)
            given = value is not None or name != "size"
            if given and not (isinstance(value, (int, np.integer)) and least <= value <= most):
                raise EmulatorError(f"{name}={value}: takes a whole number from {least:,} to {most:,}.")
        if not isinstance(self.tap, (int, np.integer)) or self.tap not in range(self.frame_skip):
            raise EmulatorError(f"tap={self.tap}: takes a whole number from 0 to {self.frame_skip - 1}.")
        if self.crop is not None:
            whole = [number for number in self.crop if isinstance(number, (int, np.integer))]
            top, bottom, left, right = whole if len(whole) == len(self.crop) == 4 else (0, 0, 0, 0)
            if self.size is None or not (0 <= top < bottom and 0 <= left < right <= WIDTH):
                raise EmulatorError(
                    f"crop={self.crop}: takes the first row and that after the last, the same of columns, of which "
                    f"there are {WIDTH}, and needs a size."
                )
            if min(bottom - top, right - left) < self.size:
                raise EmulatorError(f"crop={self.crop}: is smaller than size={self.size}, and none is made larger.")
        chosen = (0,) if self.actions is None else self.actions
        known = [isinstance(action, (int, np.integer)) and 0 <= action < len(ACTIONS) for action in chosen]
        if not known or not all(known):
            raise EmulatorError(f"actions={self.actions}: takes numbers of actions, from 0 to {len(ACTIONS) - 1}.")
        if not 0 <= self.sticky_actions < 1:
            raise EmulatorError(f"sticky_actions={self.sticky_actions}: takes a number from 0, and less than 1.")
        for name in ("frame_skip", "tap", "size", "noop_max", "stack", "max_episode_frames"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, int(getattr(self, name)))  # NumPy's would overflow
        # What is equal is to be written alike: a state is of the preprocessing that it was made with.
        for name in ("max_pool", "grayscale", "fire", "episodic_life", "clip_reward", "whole"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        object.__setattr__(self, "sticky_actions", float(self.sticky_actions))
        for name in ("crop", "actions"):
            numbers = getattr(self, name)
            object.__setattr__(self, name, None if numbers is None else tuple(map(int, numbers)))

    @property
    def stages(self) -> list[int]:
        """For the native part, in the order of ``native/agent.h``."""
        assert self.actions is not None
        pool, sticky = self.max_pool and self.frame_skip > 1, int(self.sticky_actions * 2**31)
        taps = [action for action in self.actions if action] if self.tap else []
        rows = (0, 2**30) if self.crop is None or self.whole else self.crop[:2]
        stages = [
            self.frame_skip, pool, self.noop_max, self.fire, sticky, self.max_episode_frames, self.tap, *rows,
            self.episodic_life, self.clip_reward, len(self.actions), len(self.actions) + len(taps),
        ]  # fmt: skip
        return [*map(int, stages), *self.actions, *taps]


class Games(Emulator):
    """``num_envs`` games, each with an agent; see :class:`Emulator` for the rest.

    The step after a game's end ignores its action and starts another game (Gymnasium's NEXT_STEP autoreset). All others
    wait for that start, which takes a hundred frames and more, if they are played at the same time, as a GPU's are.

    Args:
        spares: more consoles, one for each game at most, which play starts ahead, in each step as many frames as an
            action lasts; ``None``: a quarter of ``num_envs`` on a GPU, and none on a CPU. An agent whose game has ended
            goes on with one that is ready (of those for its group of 256 games and more), and leaves its console to
            start another. So each console plays what it would have played by itself, but for other agents. If none is
            ready, a start takes its time within a step.

    Attributes:
        observations: ``(N, stack * C, size, size) uint8``, a Warp array on the device; C is 1, or 3 for red, green and
            blue. The next step writes into it what has changed, so it is to be read only.
        reward, terminated, truncated, starts: of an episode as the agent has it: its reward, whether it ended or was
            cut, and whether this step started another, without a transition, ``(N,) int32`` each, Warp arrays on the
            device; ``outcomes`` are the game's.

    Raises:
        EmulatorError: as :class:`Emulator`.
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        device: str = "cpu",
        preprocessing: Preprocessing | None = None,
        rom: Path | None = None,
        threads: int = 1,
        translate: bool = False,
        spares: int | None = None,
    ):
        stages = preprocessing or Preprocessing()
        if stages.actions is None:
            stages = dataclasses.replace(stages, actions=(find(game) if isinstance(game, str) else game).legal)
        self._preprocessing = stages
        super().__init__(game, num_envs, device, rom, threads, stages.stages, translate, spares)
        num_envs, pal = self.num_envs, self.game.pal
        of_channels = shades(pal)[None] if stages.grayscale else palette(pal).T
        self._shades = wp.array(np.ascontiguousarray(of_channels), dtype=wp.uint8, device=self.device)
        shape = (num_envs, len(of_channels), self.game.rows, WIDTH)
        self._pooled = wp.zeros(shape, dtype=wp.uint8, device=self.device)
        self._size = stages.size or 0
        self.starts = self._answers[:num_envs, kernels.STARTS]
        self.observations = self._pooled
        if stages.size is not None or stages.stack > 1:
            sides = shape[2:] if stages.size is None else (stages.size, stages.size)
            shape = (num_envs, stages.stack * len(of_channels), *sides)
            self.observations = wp.zeros(shape, dtype=wp.uint8, device=self.device)
        alike = dataclasses.replace(stages, whole=False)  # as which games go on
        self._version = hashlib.sha256(f"{self._version}{alike}".encode()).hexdigest()[:16]
        top, bottom, left, right = stages.crop or (0, self.game.rows, 0, WIDTH)
        if bottom > self.game.rows:
            raise EmulatorError(f"crop={stages.crop}: a picture of this game has {self.game.rows} rows.")
        height, width = bottom - top, right - left
        columns, column_weights = _areas(width, stages.size or WIDTH)
        rows, row_weights = _areas(height, stages.size or self.game.rows)
        if rows.shape[1] > TERMS:
            raise EmulatorError(f"size={stages.size}: too little for a picture of {height} rows; give more.")
        share = 1.0
        if self._size and height % self._size == width % self._size == 0:  # OpenCV sums up, and divides at the end
            column_weights[:], row_weights[:] = 1, 1
            share = self._size**2 / (height * width)
        self._cut = left, width, int(height == width == 2 * self._size), share
        self._areas = [
            wp.array(np.ascontiguousarray(part), dtype=dtype, device=self.device)
            for part, dtype in (
                (left + columns.T, int),
                (column_weights.T, float),
                (top + rows, int),
                (row_weights, float),
            )
        ]
        self._answers_here = None
        if self.device.is_cuda:
            self._answers_here = wp.empty(self._answers.shape, dtype=int, device="cpu", pinned=True)
        self._observations = [self._observing(these) for these in self._threads.parts]
        self._takes = wp.full(num_envs, NONE, dtype=int, device=self.device)
        consoles = self._answers, self._state, self._screens
        self._exchanges = exchanges(num_envs, self.spares, self._takes, *consoles) if self.spares else []
        self._begun = False

    def begin(self, seeds: Any) -> None:
        """Switch all consoles on and start the first games; ``seeds`` ``(N,)`` of what is random in them.

        Raises:
            EmulatorError: ``seeds`` are no such numbers.
        """
        given = seeds
        if not isinstance(seeds, wp.array):
            said = f"seeds={seeds}: takes whole numbers from 0 to 2**64 - 1, on the host."
            try:
                known = [isinstance(one, (int, np.integer)) and one >= 0 for one in np.asarray(seeds, object).flat]
                given = np.asarray(seeds, np.uint64)
            except (OverflowError, TypeError, ValueError) as error:
                raise EmulatorError(said) from error
            if not all(known):
                raise EmulatorError(said)
        self._give("seeds", self._seeds, given)
        self._run(kernels.BEGIN)
        first, most = int(self._field("frames").min()), self._preprocessing.max_episode_frames
        if first >= most:
            raise EmulatorError(f"max_episode_frames={most}: this game begins with frame {first}; give more.")
        self._begun = True

    def act(self, actions: Any) -> None:
        """A step of each game, or the start of another; ``actions`` ``(N,) int32`` are indices of its actions.

        The number ``-1 - k`` is action ``k`` as well, but is not replaced by sticky actions.

        Raises:
            EmulatorError: no games have begun, or ``actions`` has another shape.
        """
        if not self._begun:
            raise EmulatorError("act: begin() comes first, or load_state().")
        self._give("actions", self._actions, actions)
        for launch in self._exchanges:
            launch.launch()
        self._run(kernels.STEP)

    def step(self, actions: Any, frames: int = 1, seen: int = 1) -> None:
        """Refused: games with an agent are played by :meth:`act`.

        Raises:
            EmulatorError: always.
        """
        raise EmulatorError("step: games with an agent are played by act().")

    def reset(self, mask: Any = None) -> None:
        """Refused: a game starts with its no-ops, by :meth:`begin`, and anew with the step after its end.

        Raises:
            EmulatorError: always.
        """
        raise EmulatorError("reset: games with an agent start with begin(), and anew with the step after their end.")

    def outcome(self) -> np.ndarray:
        """Points, end, truncation (0 or 1) and lives of the last step, ``(N, 4) int32``; the host waits for it, and on
        a GPU for nothing that is not on Warp's current stream."""
        answers = self._answers
        if self._answers_here is not None:
            wp.copy(self._answers_here, answers)
            wp.synchronize_stream(wp.get_stream(self.device))
            answers = self._answers_here
        return np.array(answers.numpy()[: self.num_envs, : kernels.REWARD])

    def save_state(self) -> dict[str, np.ndarray]:
        parts = self._pictures() | (self._waiting() if self.spares else {})
        return super().save_state() | {name: of.numpy().copy() for name, of in parts.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """As :meth:`Emulator.load_state`; what the next step answers and observes is as it would have been.

        Games that had not begun have not begun then either; :attr:`Preprocessing.whole` may differ. So may the number
        of spares: those that the state has not are switched on.
        """
        pictures = self._pictures()
        if any(name not in state or state[name].shape != of.shape for name, of in pictures.items()):
            raise EmulatorError("state: is of an Emulator, or of games with other observations.")
        super().load_state(state)
        for name, of in pictures.items():
            of.assign(state[name])
        self._begun = bool(state["consoles"].any())
        there = min(len(state.get("spare_consoles", ())), self.spares)
        if there < self.spares and self._begun:
            self._give("seeds", self._seeds, np.array([zlib.crc32(one) for one in state["consoles"]], np.uint64))
            switch_on = self._prepared(NOBODY, slice(self.num_envs + there, self.num_envs + self.spares))
            switch_on.set_param_by_name("order", kernels.BEGIN)
            switch_on.launch()
        if there:
            for name, of in self._waiting().items():
                of[:there].assign(state[name][:there])

    def _pictures(self) -> dict[str, Any]:
        """What the next observations are made of, beside the screens."""
        stacked = {} if self.observations is self._pooled else {"observations": self.observations}
        return {"pooled": self._pooled, **stacked}

    def _waiting(self) -> dict[str, Any]:
        """The spares, as consoles with agents are saved."""
        every = {"consoles": self._state, "screens": self._screens, "answers": self._answers}
        return {f"spare_{name}": of[self.num_envs :] for name, of in every.items()}

    def _bytes_each(self) -> int:
        stages, picture = self._preprocessing, self.game.rows * WIDTH
        frame = picture if stages.size is None else stages.size**2
        stacked = 0 if stages.size is None and stages.stack == 1 else stages.stack * frame
        return super()._bytes_each() + (1 if stages.grayscale else 3) * (picture + stacked)

    def _load(self) -> None:
        """:meth:`begin` does."""

    def _observing(self, these: slice) -> Any:
        parts = PARTS if self.device.is_cuda else 1
        mine = [array[these] for array in (self._answers, self.screens)]
        made = [array[these] for array in (self._pooled, self.observations)]
        inputs = [parts, self._size, *self._cut, *mine, self._shades, *self._areas, *made]
        dim = these.stop - these.start, parts
        return compiled(
            kernels.observe,
            lambda: wp.launch(kernels.observe, dim=dim, inputs=inputs, device=self.device, record_cmd=True),
        )

    def _after(self, order: int, part: int) -> None:
        if order in (kernels.BEGIN, kernels.STEP):
            self._observations[part].launch()


def _areas(size: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Of which of ``size`` pixels each of ``to`` is made, and how much of each it takes: ``(to, terms)`` indices and
    ``float32`` weights, with terms of no weight where there are fewer.

    The weights are OpenCV's for ``INTER_AREA``, which leaves out what is less than a thousandth of a pixel.
    """
    scale = size / to
    found: list[list[tuple[int, float]]] = []
    for k in range(to):
        begin, end = k * scale, (k + 1) * scale
        width = min(scale, size - begin)
        last = min(int(np.floor(end)), size - 1)
        first = min(int(np.ceil(begin)), last)
        terms = [(first - 1, (first - begin) / width)] if first - begin > 1e-3 else []
        terms += [(pixel, 1.0 / width) for pixel in range(first, last)]
        if end - last > 1e-3:
            terms.append((last, min(end - last, 1.0, width) / width))
        found.append(terms)
    most = max(map(len, found))
    padded = [terms + [(terms[-1][0], 0.0)] * (most - len(terms)) for terms in found]
    table = np.array(padded)
    return table[..., 0].astype(np.int32), table[..., 1].astype(np.float32)
