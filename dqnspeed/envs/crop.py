"""Which part of a game's pictures matters, by a rule."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs.backends.base import Backend
from dqnspeed.envs.backends.gymnasium import Gymnasium
from dqnspeed.envs.build import make_vector_env
from dqnspeed.envs.spec import describe
from dqnspeed.system.messages import FOREIGN, kind_and_line

KEEPS = (0.0, 0.5, 0.75, 0.9)  # probability that a game's player presses on: who does reaches what others do not
DECISIONS = 800  # of each game
QUIET = 3  # decisions without a reward or an end, after which what changes is no score that follows it
FEW = 0.1  # with fewer quiet decisions than this share, nothing tells a score from play
MARGIN = 40  # of how many rows (columns) one more is kept on each side
_FOUND = dict[str, tuple[int, int, int, int] | None]()  # for the other jobs of a sweep in this process


def changing_part(run: RunConfig) -> tuple[int, int, int, int] | None:
    """The part of the image in which anything changes from step to step in random play, as ``wrappers.crop`` takes it,
    at least as large as ``wrappers.resize``; ``None`` where observations are no images.

    What changes only where points are made or a game ends is left out: borders, and most displays of the score. The
    seed of ``run`` does not matter.

    Raises:
        ConfigError: the environment does not exist, does not fit the wrappers or breaks.
    """
    backend = typed(run.backend, Backend).for_random_play() or Gymnasium("gymnasium")
    wrappers = dataclasses.replace(
        run.wrappers, grayscale=False, crop=None, resize=None, tap_frames=0, episodic_life=False
    )
    whole = dataclasses.replace(run, num_envs=len(KEEPS), wrappers=wrappers, backend=backend)
    key = repr((run.env, wrappers, backend, run.wrappers.resize))
    if key in _FOUND:
        return _FOUND[key]
    spec = describe(whole)
    if len(spec.frame_shape) != 3:
        return _FOUND.setdefault(key, None)
    try:
        changed = _changes(whole, spec.num_actions)
    except ConfigError:
        raise
    except FOREIGN as error:  # a user's environment may raise anything
        said = kind_and_line(error.__cause__ or error)
        raise ConfigError(f"wrappers.crop=[]: random play of {run.env.id} failed ({said}).") from error
    (top, bottom), (left, right) = (_extent(np.any(changed, axis=axis), run.wrappers.resize or 1) for axis in (1, 0))
    return _FOUND.setdefault(key, (top, bottom, left, right))


def _changes(run: RunConfig, num_actions: int) -> np.ndarray:
    """Mask ``(H, W) bool`` of the pixels that change in random play."""
    rng, keeps = np.random.default_rng(0), np.array(KEEPS)
    with contextlib.closing(make_vector_env(run)) as games:
        before = np.array(games.reset(list(range(len(keeps)))))
        actions, quiet, quiet_ones = np.zeros(len(keeps), int), np.zeros(len(keeps), int), 0.0
        always, quietly = (np.zeros(before.shape[2:], bool) for _ in range(2))
        for _ in range(DECISIONS):
            actions = np.where(rng.random(len(keeps)) < keeps, actions, rng.integers(num_actions, size=len(keeps)))
            games.send(actions)
            step = games.recv()
            ends = step.terminated | step.truncated
            quiet = np.where((step.raw.rewards != 0) | ends | step.first, 0, quiet + 1)
            frames = np.array(step.frames)  # which the next step writes into
            changed = (frames != before).any(axis=1)
            always |= changed[~step.first].any(axis=0)
            quietly |= changed[quiet > QUIET].any(axis=0)
            quiet_ones += float((quiet > QUIET).mean())
            before = frames
    return quietly if quiet_ones >= FEW * DECISIONS else always


def _extent(changed: np.ndarray, least: int) -> tuple[int, int]:
    """From the first that is true to after the last, with a margin and more on both sides to be ``least``; all, if none
    is."""
    if not changed.any():
        return 0, len(changed)
    margin = len(changed) // MARGIN
    first = max(0, int(changed.argmax()) - margin)
    end = min(len(changed), len(changed) - int(changed[::-1].argmax()) + margin)
    missing = max(0, least - (end - first))
    first = max(0, min(first - missing // 2, len(changed) - least))
    return first, min(len(changed), max(end, first + least))
