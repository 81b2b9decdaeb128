"""An image of the game, beside the frames of the observation and the action values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from dqnspeed.agents.saliency import tinted
from dqnspeed.tracking.video import picture

HEIGHT = 420  # pixels of the whole image
MARGIN, ROW_HEIGHT = 8, 22
PANEL_HEIGHT = HEIGHT - 2 * MARGIN
BACKGROUND, TEXT, BAR, CHOSEN = (18, 18, 22), (225, 225, 225), (70, 110, 160), (255, 170, 40)


class Overlay:
    """Draws the game, the frames of a stack of images, and the action values side by side.

    Args:
        names: names of the actions.
        stack: number of frames in an observation.
        largest: largest value of an observation.
        outputs: what the network computes for each action, in words.
    """

    def __init__(self, names: Sequence[str], stack: int, largest: float, outputs: str = "action values"):
        self._names, self._stack, self._largest, self._outputs = names, stack, largest, outputs
        self._low, self._high = np.inf, -np.inf  # action values so far

    def draw(
        self,
        game: np.ndarray,
        observation: np.ndarray,
        values: np.ndarray | None,
        action: int | None,
        caption: str,
        salient: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw one agent step as ``(H, W, 3) uint8``.

        Args:
            game: the rendered game ``(h, w, 3) uint8``.
            observation: input of the network ``(stack * C, ...)``.
            values: action values ``(num_actions,)``, or ``None`` if the game is over.
            action: the action taken, or ``None`` if the game is over.
            caption: a line of text below the values.
            salient: saliency ``(H, W)`` of the observation, which reddens its frames.
        """
        panels = [_scaled(game, PANEL_HEIGHT), self._draw_values(values, action, caption)]
        if observation.ndim == 3:
            panels.insert(1, self._draw_stack(observation, salient))
        canvas = Image.new("RGB", (MARGIN + sum(panel.width + MARGIN for panel in panels), HEIGHT), BACKGROUND)
        left = MARGIN
        for panel in panels:
            canvas.paste(panel, (left, MARGIN))
            left += panel.width + MARGIN
        return np.asarray(canvas)

    def _draw_stack(self, observation: np.ndarray, salient: np.ndarray | None) -> Image.Image:
        """The frames of a stack, the oldest at the top."""
        frames = observation.reshape(self._stack, -1, *observation.shape[1:])
        side = min(180, PANEL_HEIGHT // self._stack - 2)
        pictures = [picture(frame, self._largest) for frame in frames]
        tiles = [_scaled(one if salient is None else tinted(one, salient), side) for one in pictures]
        panel = Image.new("RGB", (max(tile.width for tile in tiles), PANEL_HEIGHT), BACKGROUND)
        for i, tile in enumerate(tiles):
            panel.paste(tile, (0, i * (side + 2)))
        return panel

    def _draw_values(self, values: np.ndarray | None, action: int | None, caption: str) -> Image.Image:
        panel = Image.new("RGB", (280, PANEL_HEIGHT), BACKGROUND)
        draw = ImageDraw.Draw(panel)
        draw.text((0, PANEL_HEIGHT - ROW_HEIGHT), caption, TEXT)
        if values is None:
            return panel
        draw.text((0, 3), self._outputs, TEXT)
        low, high = float(values.min()), float(values.max())
        self._low, self._high = min(self._low, low), max(self._high, high)
        # Bars compare the actions of this step; differences that are small against all values so far give short bars.
        span = max(high - low, (self._high - self._low) / 20, 1e-6)
        best = np.sort(np.argsort(-values)[: PANEL_HEIGHT // ROW_HEIGHT - 3])  # as many as fit
        for row, i in enumerate(best, start=1):
            top = row * ROW_HEIGHT
            text_colour, bar_colour = (CHOSEN, CHOSEN) if i == action else (TEXT, BAR)
            draw.text((0, top + 3), self._names[i][:12], text_colour)
            draw.rectangle((95, top + 3, 97 + int(100 * (values[i] - low) / span), top + ROW_HEIGHT - 6), bar_colour)
            draw.text((205, top + 3), f"{values[i]:+.3f}", TEXT)
        return panel


def _scaled(image: np.ndarray, height: int) -> Image.Image:
    """``image`` with this ``height`` in pixels, without smoothing."""
    small = Image.fromarray(image)
    return small.resize((max(1, round(small.width * height / small.height)), height), Image.Resampling.NEAREST)
