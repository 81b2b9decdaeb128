"""Window that shows a game, for ``render_mode="human"``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SCALE = (4, 3)  # pixels of the window for a pixel of the console, which is wide
FRAMES_PER_SECOND = 60


class Window:
    """Window of a game, which shows 60 frames a second.

    Raises:
        gymnasium.error.DependencyNotInstalled: pygame is not installed.
    """

    def __init__(self, title: str):
        try:
            import pygame
        except ImportError as error:
            raise gymnasium.error.DependencyNotInstalled(
                "render_mode=human: needs pygame. Install it with: pip install pygame-ce"
            ) from error
        self._pygame: Any = pygame
        pygame.display.init()
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()
        self._surface: Any = None

    def show(self, pixels: np.ndarray) -> None:
        """Show a picture ``(rows, columns, 3) uint8``, and wait until it is due."""
        size = pixels.shape[1] * SCALE[0], pixels.shape[0] * SCALE[1]
        if self._surface is None:
            self._surface = self._pygame.display.set_mode(size)
        picture = self._pygame.surfarray.make_surface(pixels.swapaxes(0, 1))
        self._surface.blit(self._pygame.transform.scale(picture, size), (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._clock.tick(FRAMES_PER_SECOND)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
