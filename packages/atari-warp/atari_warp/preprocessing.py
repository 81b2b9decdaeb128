"""Preprocessing of frames, actions and episodes, as Gymnasium's ``AtariPreprocessing`` does it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atari_warp.consoles import WIDTH
from atari_warp.games import ACTIONS, EmulatorError

LIMITS = {
    "frame_skip": (1, 2**20), "noop_max": (0, 2**20), "max_episode_frames": (1, 2**31 - 1), "screen_size": (8, WIDTH),
    "stack_size": (1, 2**10),
}  # fmt: skip
NEGLIGIBLE = 1e-3  # part of a pixel that OpenCV leaves out


@dataclass(frozen=True)
class Preprocessing:
    """Environment that is made of a game (Machado et al. 2018).

    Attributes:
        frame_skip: frames that an action lasts.
        tap_frames: adds a second set of actions, without NOOP, that are released after this number of frames; 0 adds
            none.
        max_pool: pixel-wise maximum of the last two frames, if ``frame_skip`` is above 1.
        grayscale: one channel of gray instead of red, green and blue.
        crop: part of a picture that is resized: top, bottom, left, right, without the row ``bottom`` and the column
            ``right``; ``None`` takes the whole picture.
        screen_size: side of the square observation, resized by area as OpenCV does it; ``None`` keeps 160 columns.
        noop_max: maximum number of NOOP frames at the start of a game, at least 1; 0 plays none.
        fire_reset: press FIRE for one frame after the NOOPs; its points belong to the first step.
        stack_size: frames in an observation, oldest first; an episode starts with copies of its first frame.
        episodic_life: a lost life ends the episode. The next step starts another episode of the same game, and its
            action is replaced by FIRE with ``fire_reset`` and by NOOP without.
        clip_reward: rewards are the sign of the points.
        sticky_actions: probability that a frame repeats the action of the previous frame; NOOPs and FIRE at a start
            are exempt.
        max_episode_frames: time limit of a game; then it is truncated.
        actions: ALE numbers of the agent's actions; ``None`` takes all legal actions of the game.
        render_full_screen: also draw rows outside ``crop``, for :meth:`ConsoleBatch.rgb`.
    """

    frame_skip: int = 4
    tap_frames: int = 0
    max_pool: bool = True
    grayscale: bool = True
    crop: tuple[int, int, int, int] | None = None
    screen_size: int | None = 84
    noop_max: int = 30
    fire_reset: bool = False
    stack_size: int = 1
    episodic_life: bool = False
    clip_reward: bool = False
    sticky_actions: float = 0.0
    max_episode_frames: int = 108_000
    actions: tuple[int, ...] | None = None
    render_full_screen: bool = False

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            given = value is not None or name != "screen_size"
            if given and not (isinstance(value, (int, np.integer)) and least <= value <= most):
                raise EmulatorError(f"{name}={value}: must be an integer from {least:,} to {most:,}.")
        if not isinstance(self.tap_frames, (int, np.integer)) or self.tap_frames not in range(self.frame_skip):
            raise EmulatorError(f"tap_frames={self.tap_frames}: must be an integer from 0 to {self.frame_skip - 1}.")
        if self.crop is not None:
            self._check_crop(self.crop)
        chosen = (0,) if self.actions is None else self.actions
        known = [isinstance(action, (int, np.integer)) and 0 <= action < len(ACTIONS) for action in chosen]
        if not known or not all(known):
            raise EmulatorError(f"actions={self.actions}: must be action numbers from 0 to {len(ACTIONS) - 1}.")
        if not 0 <= self.sticky_actions < 1:
            raise EmulatorError(f"sticky_actions={self.sticky_actions}: must be at least 0 and less than 1.")
        self._normalize()

    def _check_crop(self, crop: tuple[int, ...]) -> None:
        integers = [number for number in crop if isinstance(number, (int, np.integer))]
        top, bottom, left, right = integers if len(integers) == len(crop) == 4 else (0, 0, 0, 0)
        if self.screen_size is None or not (0 <= top < bottom and 0 <= left < right <= WIDTH):
            raise EmulatorError(
                f"crop={crop}: must be top, bottom, left, right with top < bottom and left < right <= {WIDTH}, "
                f"together with a screen_size."
            )
        if min(bottom - top, right - left) < self.screen_size:
            raise EmulatorError(f"crop={crop}: is smaller than screen_size={self.screen_size}. Pictures only shrink.")

    def _normalize(self) -> None:
        """Convert NumPy numbers, which would overflow, and write equal values alike: saved states compare them."""
        for name in (*LIMITS, "tap_frames"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("max_pool", "grayscale", "fire_reset", "episodic_life", "clip_reward", "render_full_screen"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        object.__setattr__(self, "sticky_actions", float(self.sticky_actions))
        for name in ("crop", "actions"):
            numbers = getattr(self, name)
            object.__setattr__(self, name, None if numbers is None else tuple(map(int, numbers)))

    @property
    def settings(self) -> list[int]:
        """Numbers for the native code, in the order of ``native/agent.h``."""
        assert self.actions is not None
        pool, sticky = self.max_pool and self.frame_skip > 1, int(self.sticky_actions * 2**31)
        taps = [action for action in self.actions if action] if self.tap_frames else []
        rows = (0, 2**30) if self.crop is None or self.render_full_screen else self.crop[:2]
        settings = [
            self.frame_skip, pool, self.noop_max, self.fire_reset, sticky, self.max_episode_frames, self.tap_frames,
            *rows, self.episodic_life, self.clip_reward, len(self.actions), len(self.actions) + len(taps),
        ]  # fmt: skip
        return [*map(int, settings), *self.actions, *taps]


def area_weights(size: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a resize by area, as OpenCV's ``INTER_AREA`` has them.

    Args:
        size: pixels before.
        to: pixels after.

    Returns:
        Indices ``(to, terms) int32`` of the pixels in each new pixel, and weights ``(to, terms) float32``, padded with
        weights of 0.
    """
    scale = size / to
    rows: list[list[tuple[int, float]]] = []
    for k in range(to):
        begin, end = k * scale, (k + 1) * scale
        width = min(scale, size - begin)
        last = min(int(np.floor(end)), size - 1)
        first = min(int(np.ceil(begin)), last)
        terms = [(first - 1, (first - begin) / width)] if first - begin > NEGLIGIBLE else []
        terms += [(pixel, 1.0 / width) for pixel in range(first, last)]
        if end - last > NEGLIGIBLE:
            terms.append((last, min(end - last, 1.0, width) / width))
        rows.append(terms)
    most = max(map(len, rows))
    table = np.array([terms + [(terms[-1][0], 0.0)] * (most - len(terms)) for terms in rows])
    return table[..., 0].astype(np.int32), table[..., 1].astype(np.float32)
