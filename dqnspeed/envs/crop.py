"""Which part of a game's pictures matters, by a rule."""

from __future__ import annotations

import dataclasses

import gymnasium
import numpy as np
from gymnasium import spaces

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig, WrappersConfig
from dqnspeed.envs.build import make_env
from dqnspeed.envs.spec import check_stages
from dqnspeed.system.errors import FOREIGN, kind_and_line

FRAMES = 4000  # of random play
QUIET = 3  # steps without a reward or an end, after which what changes is no score that follows it
_FOUND = dict[str, tuple[int, int, int, int] | None]()  # for the other jobs of a sweep in this process


def changing_part(env: EnvConfig, wrappers: WrappersConfig) -> tuple[int, int, int, int] | None:
    """The part of the image in which anything changes from step to step in random play, as ``wrappers.crop`` takes it,
    at least as large as ``wrappers.resize``; ``None`` where observations are no images.

    What changes only where points are made or a game ends is left out: borders, and displays of the score.

    Raises:
        ConfigError: the environment does not exist, does not fit the wrappers or breaks.
    """
    whole = dataclasses.replace(
        wrappers, backend="gymnasium", grayscale=False, crop=None, resize=None, max_pool=False, tap=0
    )
    check_stages(env, whole)
    key = repr((env, whole, wrappers.resize))
    if key in _FOUND:
        return _FOUND[key]
    try:
        game = make_env(env, whole)
        try:
            changed = _changes(game, FRAMES // wrappers.frame_skip)
        finally:
            game.close()
    except ConfigError:
        raise
    except FOREIGN as error:  # a user's environment may raise anything
        raise ConfigError(f"wrappers.crop=[]: random play of {env.id} failed ({kind_and_line(error)}).") from error
    part = None
    if changed is not None:
        (top, bottom), (left, right) = (_extent(np.any(changed, axis=axis), wrappers.resize or 1) for axis in (1, 0))
        part = top, bottom, left, right
    return _FOUND.setdefault(key, part)


def _changes(game: gymnasium.Env, steps: int) -> np.ndarray | None:
    """Which pixels ``(H, W)`` change in so many steps, or ``None`` if there are none."""
    space, actions = game.observation_space, game.action_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or not isinstance(actions, spaces.Discrete):
        return None
    rng, before, quiet = np.random.default_rng(0), np.array(game.reset(seed=0)[0]), 0
    changed = np.zeros(space.shape[1:], bool)
    for _ in range(steps):
        image, reward, terminated, truncated, _ = game.step(rng.integers(actions.n))
        quiet = 0 if reward or terminated or truncated else quiet + 1
        if quiet > QUIET:
            changed |= (image != before).any(axis=0)
        # An environment may draw into one array.
        before = np.array(game.reset()[0] if terminated or truncated else image)
    return changed


def _extent(changed: np.ndarray, least: int) -> tuple[int, int]:
    """From the first that is true to after the last, with more on both sides to be ``least``; all, if none is."""
    if not changed.any():
        return 0, len(changed)
    first, end = int(changed.argmax()), len(changed) - int(changed[::-1].argmax())
    missing = max(0, least - (end - first))
    first = max(0, min(first - missing // 2, len(changed) - least))
    return first, min(len(changed), max(end, first + least))
