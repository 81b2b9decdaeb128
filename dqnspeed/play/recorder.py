"""Pictures of a game."""

from __future__ import annotations

import numpy as np

from dqnspeed.algorithms import algorithm_of
from dqnspeed.envs import Step, VectorEnv
from dqnspeed.play.options import PlayConfig
from dqnspeed.play.overlay import Overlay
from dqnspeed.play.player import Player


class Recorder:
    """Renders a game, one picture for each step, and keeps the pictures if they are to be recorded."""

    def __init__(self, env: VectorEnv, player: Player, names: list[str], options: PlayConfig):
        self._env, self._player, self._keeps = env, player, options.record
        what = algorithm_of(player.run).outputs
        self._overlay = Overlay(names, player.spec.stack, player.spec.largest, what) if options.overlay else None
        self._images: list[np.ndarray] = []
        self._before: np.ndarray | None = None  # the picture before the step
        self._steps, self._total = 0, 0.0

    def start(self) -> None:
        """Render the first picture, after the reset; later calls do nothing."""
        if self._before is None:
            self._before = self._env.render()

    def add(self, observation: np.ndarray, action: int, step: Step) -> np.ndarray | None:
        """The picture in which the action of a finished step was chosen; ``None`` if the step only started a game."""
        image, self._before = self._before, self._env.render()
        if image is None or (step.first[0] and not self._steps):
            return None
        self._steps += 1
        if self._overlay is not None:
            caption = f"step {self._steps:,}   reward so far {self._total:g}"
            image = self._overlay.draw(image, observation, self._player.q, action, caption)
        self._total += float(step.rewards[0])
        if self._keeps:
            self._images.append(image)
        return image

    def take(self) -> list[np.ndarray]:
        """Return the recorded pictures of the game that ended, and start the next game."""
        images, self._images = self._images, []
        self._steps, self._total = 0, 0.0
        return images
