"""Images and videos of games that are played."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dqnspeed.agents.agent import Agent
from dqnspeed.agents.overlay import Overlay
from dqnspeed.agents.saliency import saliency
from dqnspeed.envs import Step, VectorEnv
from dqnspeed.execution.arrays import host
from dqnspeed.play.options import PlayConfig
from dqnspeed.tracking.run_folder import VIDEOS
from dqnspeed.tracking.video import Film, enlarge

MIN_VIDEO_WIDTH = 160  # as Atari's


@contextlib.contextmanager
def print_write_errors(path: Path, cleanup: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Print a sentence and call ``cleanup`` if ``path`` cannot be written in the block, instead of ending the play."""
    try:
        yield
    except (OSError, ModuleNotFoundError) as error:
        cleanup()
        why = getattr(error, "strerror", None) or error
        print(f"dqnspeed: {path}: cannot be written ({why}).", file=sys.stderr, flush=True)


class Recorder:
    """Renders games, one image before each step and one at the end, and records videos if ``record`` is set."""

    def __init__(
        self, env: VectorEnv, agent: Agent, names: list[str], options: PlayConfig, fps: float, renders: bool = True
    ):
        self._env, self._fps, self._renders, self._records = env, fps, renders, options.record
        self._folder = agent.output / VIDEOS
        self._film: Film | None = None
        spec = agent.spec
        has_overlay = options.overlay or options.saliency
        self._overlay = Overlay(names, spec.stack, spec.largest, agent.outputs) if has_overlay else None
        self._agent = agent if options.saliency else None
        self._before: np.ndarray | None = None  # the image before the step
        self._steps, self._total = 0, 0.0

    def start(self) -> None:
        """Render the first image after the reset; later calls do nothing."""
        if self._renders and self._before is None:
            self._before = self._env.render()

    def add(self, observation: np.ndarray, values: np.ndarray, action: int, step: Step) -> list[np.ndarray]:
        """Record a step.

        Args:
            observation: input of the network ``(stack * C, ...)``.
            values: outputs of the network ``(num_actions,)``.

        Returns:
            The image before the step, and the last image if the game has ended; none if the step only started a game,
            or nothing is rendered.
        """
        if not self._renders:
            return []
        image, self._before = self._before, self._env.render()
        if image is None or (step.first[0] and not self._steps):
            return []
        if self._records and not self._steps:
            self._film = Film(self._folder, self._fps)
        self._steps += 1
        caption = f"step {self._steps:,}   reward so far {self._total:g}"
        images = [self._drawn(image, observation, values, action, caption)]
        self._total += float(step.rewards[0])
        if step.episodes:
            frame = host(step.frames[0])
            stack = np.concatenate([observation[len(frame) :], frame])
            images.append(self._drawn(self._before, stack, None, None, f"the end   return {self._total:g}"))
        if self._film is not None:
            with print_write_errors(self._folder, self.close):
                for image in images:
                    self._film.add(enlarge(image, MIN_VIDEO_WIDTH))
        return images

    def _drawn(
        self, image: np.ndarray, observation: np.ndarray, values: np.ndarray | None, action: int | None, caption: str
    ) -> np.ndarray:
        if self._overlay is None:
            return image
        salient = None if self._agent is None else saliency(self._agent, observation)
        return self._overlay.draw(image, observation, values, action, caption, salient)

    def end(self, name: str) -> Path | None:
        """End the video of a game.

        Returns:
            The video, called ``name`` or a similar name if that is taken; ``None`` if none was written.
        """
        self._steps, self._total = 0, 0.0
        if self._film is None:
            return None
        numbered = (name.replace("_episode_", f"_{number}_episode_", 1) for number in itertools.count(2))
        paths = (self._folder / name for name in itertools.chain([name], numbered))
        path = next(path for path in paths if not path.exists())  # another play may have taken the name meanwhile
        with print_write_errors(path, self.close):
            self._film.end(path)
        written = path if self._film is not None else None
        self.close()
        return written

    def close(self) -> None:
        """Delete the video of a game that has not ended."""
        if self._film is not None:
            self._film.close()
        self._film = None
