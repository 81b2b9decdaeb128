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


def wants_window(options: PlayConfig) -> bool:
    """Whether games are shown; prints or raises what to do if they cannot be."""
    if options.window is False:
        return False
    needed = options.window is True
    shows = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    )
    if not shows and needed:
        raise ConfigError("window=true: there is no display here; record=true writes videos instead.")
    if not shows and not options.record:
        print("There is no display here, so the games are not shown; record=true writes videos of them.")
    if shows and importlib.util.find_spec("pygame") is None:
        if needed:
            raise ConfigError("window=true: needs pygame; pip install 'dqnspeed[play]' brings it.")
        if not options.record:
            print("The games are not shown; pip install 'dqnspeed[play]' brings the window.")
        return False
    if shows and (why := _cannot_open()):
        if needed:
            raise ConfigError(f"window=true: cannot be opened ({why}); record=true writes videos instead.")
        if not options.record:
            print(f"The games are not shown: a window cannot be opened ({why}); record=true writes videos of them.")
        return False
    return shows


def _cannot_open() -> str | None:
    """Why no window can be opened here."""
    import pygame

    try:
        pygame.display.init()
        driver = pygame.display.get_driver()
    except pygame.error as error:
        return str(error)
    finally:
        pygame.display.quit()
    # SDL takes one of these where a display does not answer, and shows nothing.
    unasked = driver in ("offscreen", "dummy") and not os.environ.get("SDL_VIDEODRIVER")
    return "the display does not answer" if unasked else None


class WindowClosedError(Exception):
    """The window was closed, which ends the play."""


class Screen:
    """A window that shows pictures at a fixed rate; closing it ends the play."""

    def __init__(self, fps: float):
        self._period, self._next = 1 / fps, 0.0
        self._window: Any = None

    def __enter__(self) -> Screen:
        import pygame

        pygame.display.init()
        return self

    def __exit__(self, *_: object) -> None:
        import pygame

        pygame.quit()

    def show(self, image: np.ndarray) -> None:
        """Show ``image`` ``(H, W, 3) uint8`` at its time.

        Raises:
            WindowClosedError: the window was closed.
        """
        import pygame

        scale = max(1, min(420 // image.shape[0], 1600 // image.shape[1]))
        size = (image.shape[1] * scale, image.shape[0] * scale)
        if self._window is None:
            self._window = pygame.display.set_mode(size)
            pygame.display.set_caption("dqnspeed")
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise WindowClosedError
        surface = pygame.surfarray.make_surface(image.transpose(1, 0, 2))
        self._window.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._period
