"""Pictures and films of games."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dqnspeed.algorithms import algorithm_of
from dqnspeed.envs import Step, VectorEnv
from dqnspeed.execution.arrays import host
from dqnspeed.play.options import PlayConfig
from dqnspeed.play.overlay import Overlay
from dqnspeed.play.player import Player
from dqnspeed.tracking.run_folder import VIDEOS
from dqnspeed.tracking.video import Film, enlarge

LEAST_WIDTH = 160  # of a film, as Atari's are


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """A file that cannot be written is a sentence, and play goes on."""
    try:
        yield
    except OSError as error:
        print(f"dqnspeed: {path}: cannot be written ({error.strerror or error}).", file=sys.stderr, flush=True)


class Recorder:
    """Renders games, one picture for each step and one of the end, and films them if asked."""

    def __init__(self, env: VectorEnv, player: Player, names: list[str], options: PlayConfig, fps: float):
        self._env, self._player, self._records, self._fps = env, player, options.record, fps
        self._folder = player.folder / VIDEOS
        self._film: Film | None = None  # of this game; none either where it cannot be written
        what = algorithm_of(player.run).outputs
        self._overlay = Overlay(names, player.spec.stack, player.spec.largest, what) if options.overlay else None
        self._before: np.ndarray | None = None  # the picture before the step
        self._steps, self._total = 0, 0.0

    def start(self) -> None:
        """Render the first picture, after the reset; later calls do nothing."""
        if self._before is None:
            self._before = self._env.render()

    def add(self, observation: np.ndarray, action: int, step: Step) -> list[np.ndarray]:
        """The picture in which the action of a finished step was chosen, and the last one if the game is over; none if
        the step only started a game."""
        image, self._before = self._before, self._env.render()
        if image is None or (step.first[0] and not self._steps):
            return []
        if self._records and not self._steps:
            self._film = Film(self._folder, self._fps)
        self._steps += 1
        caption = f"step {self._steps:,}   reward so far {self._total:g}"
        shown = [self._picture(image, observation, self._player.q, action, caption)]
        self._total += float(step.rewards[0])
        if step.episodes:
            frame = host(step.frames[0])
            stack = np.concatenate([observation[len(frame) :], frame])
            shown.append(self._picture(self._before, stack, None, None, f"the end   return {self._total:g}"))
        for picture in shown:
            if self._film is not None:
                with self._told(self._folder):
                    self._film.add(enlarge(picture, LEAST_WIDTH))
        return shown

    def _picture(
        self, image: np.ndarray, observation: np.ndarray, q: np.ndarray | None, action: int | None, caption: str
    ) -> np.ndarray:
        return image if self._overlay is None else self._overlay.draw(image, observation, q, action, caption)

    def end(self, name: str) -> Path | None:
        """Begin the next game; returns the film of the one that ended if it could be written, by ``name`` if that is
        free."""
        film, path = self._film, self._folder / name
        self._steps, self._total = 0, 0.0
        if film is not None:
            with self._told(path):
                for number in itertools.count(2):  # another play of the same run may have chosen the name meanwhile
                    if not path.exists():
                        break
                    path = self._folder / name.replace("_episode_", f"_{number}_episode_", 1)
                film.end(path)
        written = path if self._film is not None else None
        self.close()
        return written

    def close(self) -> None:
        """Delete the film of a game that has not ended."""
        if self._film is not None:
            self._film.close()
        self._film = None

    @contextlib.contextmanager
    def _told(self, path: Path) -> Iterator[None]:
        """Inside, what cannot be written is told, and filmed no more."""
        with told(path):
            try:
                yield
            except OSError:
                self.close()
                raise
