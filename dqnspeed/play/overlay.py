"""The frames of an observation and the action values, drawn beside the game."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from dqnspeed.tracking.video import picture

HEIGHT = 420  # pixels of the whole picture
MARGIN, ROW = 8, 22
BACKGROUND, TEXT, BAR, CHOSEN = (18, 18, 22), (225, 225, 225), (70, 110, 160), (255, 170, 40)


class Overlay:
    """Puts the game, the frames of the stack (of images) and the action values side by side.

    Args:
        names: of the actions, in their order; ``stack``: frames in an observation.
        largest: magnitude that observations can have; ``what``: what the network computes for each action.
    """

    def __init__(self, names: Sequence[str], stack: int, largest: float, what: str = "action values"):
        self._names, self._stack, self._largest, self._what = names, stack, largest, what
        self._low, self._high = np.inf, -np.inf  # action values so far

    def draw(
        self, game: np.ndarray, observation: np.ndarray, q: np.ndarray | None, action: int | None, caption: str
    ) -> np.ndarray:
        """The picture ``(H, W, 3) uint8`` of one agent step.

        Args:
            game: the game's own picture ``(h, w, 3) uint8``.
            observation: of the network, ``(stack * C, ...)``.
            q: action values ``(num_actions,)``; ``action``: the one taken; ``None``: the game is over.
            caption: a line of text below the values.
        """
        panels = [_fit(game, HEIGHT - 2 * MARGIN), self._values(q, action, caption)]
        if observation.ndim == 3:
            panels.insert(1, self._stack_of(observation))
        width = sum(panel.width + MARGIN for panel in panels) + MARGIN
        canvas = Image.new("RGB", (width, HEIGHT), BACKGROUND)
        left = MARGIN
        for panel in panels:
            canvas.paste(panel, (left, MARGIN))
            left += panel.width + MARGIN
        return np.asarray(canvas)

    def _stack_of(self, observation: np.ndarray) -> Image.Image:
        """The stack from its oldest frame (top) to its newest."""
        frames = observation.reshape(self._stack, -1, *observation.shape[1:])
        side = min(180, (HEIGHT - 2 * MARGIN) // self._stack - 2)
        tiles = [_fit(picture(frame, self._largest), side) for frame in frames]
        column = Image.new("RGB", (max(tile.width for tile in tiles), HEIGHT - 2 * MARGIN), BACKGROUND)
        for i, tile in enumerate(tiles):
            column.paste(tile, (0, i * (side + 2)))
        return column

    def _values(self, q: np.ndarray | None, action: int | None, caption: str) -> Image.Image:
        panel = Image.new("RGB", (280, HEIGHT - 2 * MARGIN), BACKGROUND)
        draw = ImageDraw.Draw(panel)
        draw.text((0, HEIGHT - 2 * MARGIN - ROW), caption, TEXT)
        if q is None:
            return panel
        self._low, self._high = min(self._low, float(q.min())), max(self._high, float(q.max()))
        # Bars compare the actions of this step, and are short if the differences are small against all values so far.
        span = max(float(q.max() - q.min()), (self._high - self._low) / 20, 1e-6)
        draw.text((0, 3), self._what, TEXT)
        room = (HEIGHT - 2 * MARGIN) // ROW - 3
        shown = sorted(np.argsort(-q)[:room]) if len(q) > room else range(len(q))  # the best, if not all fit
        for line, i in enumerate(shown, start=1):
            top, colour = line * ROW, CHOSEN if i == action else BAR
            draw.text((0, top + 3), self._names[i][:12], TEXT if i != action else CHOSEN)
            length = 2 + int(100 * float(q[i] - q.min()) / span)
            draw.rectangle((95, top + 3, 95 + length, top + ROW - 6), colour)
            draw.text((205, top + 3), f"{q[i]:+.3f}", TEXT)
        return panel


def _fit(image: np.ndarray, height: int) -> Image.Image:
    """``image`` scaled to ``height`` without smoothing."""
    small = Image.fromarray(image)
    return small.resize((max(1, round(small.width * height / small.height)), height), Image.Resampling.NEAREST)
