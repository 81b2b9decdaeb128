"""``wrappers.crop=[]``: the part of the image that changes in random play."""

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

KEEP_CHANCES = (0.0, 0.5, 0.75, 0.9)  # of repeating an action, in each game: repeating reaches other parts of a game
DECISIONS = 800  # of each game
QUIET_DECISIONS = 3  # without a reward or an end, after which a change is no score that follows one
MIN_QUIET_SHARE = 0.1  # of all decisions; with fewer, all changes count
MARGIN_DIVISOR = 40  # of the height (width), for the margin on each side
_CROPS = dict[str, tuple[int, int, int, int] | None]()  # found for other jobs of a sweep in this process


def find_crop(run: RunConfig) -> tuple[int, int, int, int] | None:
    """Part of the image in which anything changes from step to step in random play; ``None`` if there are no images.

    Pixels that change only when points are made or a game ends are left out: borders, and most displays of the score.
    The seed of ``run`` does not matter.

    Returns:
        ``(top, bottom, left, right)``, as ``wrappers.crop`` takes it, at least as large as ``wrappers.resize``.

    Raises:
        ConfigError: the environment does not exist, does not fit the wrappers or breaks.
    """
    backend = typed(run.backend, Backend).for_random_play() or Gymnasium("gymnasium")
    wrappers = dataclasses.replace(
        run.wrappers, grayscale=False, crop=None, resize=None, tap_frames=0, episodic_life=False
    )
    whole = dataclasses.replace(run, num_envs=len(KEEP_CHANCES), wrappers=wrappers, backend=backend)
    key = repr((run.env, wrappers, backend, run.wrappers.resize))
    if key in _CROPS:
        return _CROPS[key]
    spec = describe(whole)
    if len(spec.frame_shape) != 3:
        return _CROPS.setdefault(key, None)
    try:
        changed = _changes(whole, spec.num_actions)
    except ConfigError:
        raise
    except FOREIGN as error:  # a user's environment may raise anything
        reason = kind_and_line(error.__cause__ or error)
        raise ConfigError(f"wrappers.crop=[]: random play of {run.env.id} failed ({reason}).") from error
    (top, bottom), (left, right) = (_extent(np.any(changed, axis=axis), run.wrappers.resize or 1) for axis in (1, 0))
    return _CROPS.setdefault(key, (top, bottom, left, right))


def _changes(run: RunConfig, num_actions: int) -> np.ndarray:
    """Mask ``(H, W) bool`` of the pixels that change in random play."""
    rng, keeps = np.random.default_rng(0), np.array(KEEP_CHANCES)
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
            frames = np.array(step.frames)  # the next step writes into the engine's array
            changed = (frames != before).any(axis=1)
            always |= changed[~step.first].any(axis=0)
            quietly |= changed[quiet > QUIET_DECISIONS].any(axis=0)
            quiet_ones += float((quiet > QUIET_DECISIONS).mean())
            before = frames
    return quietly if quiet_ones >= MIN_QUIET_SHARE * DECISIONS else always


def _extent(changed: np.ndarray, least: int) -> tuple[int, int]:
    """Range from the first true element to after the last, with a margin, at least ``least`` long; all if none is."""
    if not changed.any():
        return 0, len(changed)
    margin = len(changed) // MARGIN_DIVISOR
    first = max(0, int(changed.argmax()) - margin)
    end = min(len(changed), len(changed) - int(changed[::-1].argmax()) + margin)
    missing = max(0, least - (end - first))
    first = max(0, min(first - missing // 2, len(changed) - least))
    return first, min(len(changed), max(end, first + least))
