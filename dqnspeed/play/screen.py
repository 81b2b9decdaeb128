"""A window that shows games."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import Any

import numpy as np

from dqnspeed.config.options import ConfigError
from dqnspeed.play.options import PlayConfig

ELSEWHERE = "screen=web shows them in a browser, and record=true writes videos."


def wants_window(options: PlayConfig) -> bool:
    """Whether games are shown in a window.

    Raises:
        ConfigError: ``screen=window`` asks for a window, and none can be opened.
    """
    if options.screen == "none":
        return False
    problem = _window_problem()
    if problem and options.screen:
        raise ConfigError(f"screen=window: {problem}")
    if problem and not options.record:
        print(f"The games are not shown: {problem}")
    return not problem


def _window_problem() -> str:
    """Reason why no window can be opened here, and a fix; empty if a window can be opened."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in displays):
        return f"there is no display here. {ELSEWHERE}"
    if importlib.util.find_spec("pygame") is None:
        return "pygame is not installed. pip install 'dqnspeed[play]' installs it."
    import pygame

    problem = ""
    try:
        pygame.display.init()
        # SDL chooses one of these drivers, which show nothing, if a display does not answer.
        if pygame.display.get_driver() in ("offscreen", "dummy") and not os.environ.get("SDL_VIDEODRIVER"):
            problem = "the display does not answer"
    except pygame.error as error:
        problem = str(error)
    finally:
        pygame.display.quit()
    return problem and f"a window cannot be opened ({problem}). {ELSEWHERE}"


class WindowClosedError(Exception):
    """Raised if the user closes the window, which ends the play."""


class Screen:
    """A window that shows images at a fixed rate."""

    def __init__(self, fps: float):
        import pygame

        pygame.display.init()
        self._pygame = pygame
        self._period, self._next = 1 / fps, 0.0
        self._window: Any = None

    def close(self) -> None:
        self._pygame.quit()

    def show(self, image: np.ndarray) -> None:
        """Wait for the time of ``image`` ``(H, W, 3) uint8``, and show it.

        Raises:
            WindowClosedError: the user has closed the window.
        """
        pygame = self._pygame
        scale = max(1, min(420 // image.shape[0], 1600 // image.shape[1]))
        size = (image.shape[1] * scale, image.shape[0] * scale)
        surface = pygame.surfarray.make_surface(image.transpose(1, 0, 2))
        if self._window is None:
            # pygame would load an icon of its own, and a signal that arrives meanwhile would be lost.
            pygame.display.set_icon(pygame.transform.scale(surface, (32, 32)))
            self._window = pygame.display.set_mode(size)
            pygame.display.set_caption("dqnspeed")
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosedError
        self._window.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._period
