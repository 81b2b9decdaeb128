"""The standard protocol of Atari games, and how a run departs from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs.base import Wrappers
from dqnspeed.envs.games import MAX_EPISODE_FRAMES, AtariGame, atari_game

# Mnih et al. (2015), Methods, as in Stable-Baselines3 and CleanRL.
STANDARD: dict[str, Any] = {
    "noop_max": 30, "fire_reset": True, "frame_skip": 4, "tap_frames": 0, "max_pool": True, "episodic_life": True,
    "grayscale": True, "crop": None, "resize": 84, "resizer": "cv2", "interpolation": "area", "clip_reward": True,
    "stack": 4,
}  # fmt: skip


def protocol_of(run: RunConfig) -> str | None:
    """``standard``, ``standard (sticky 0.25)`` or ``custom`` with its departures; ``None`` if it is not a game of ALE.

    >>> protocol_of(dqnspeed.compose(["wrappers=standard", "wrappers.stack=2"]))
    'custom (wrappers.stack=2)'
    """
    game = atari_game(run.env)
    if game is None:
        return None
    departures = list(_departures(run, game))
    if departures:
        departures += [f"env.sticky_actions={game.sticky_actions:g}"] * (game.sticky_actions == 0.25)
        return f"custom ({', '.join(departures)})"
    return f"standard (sticky {game.sticky_actions:g})" if game.sticky_actions else "standard"


def _departures(run: RunConfig, game: AtariGame) -> Iterator[str]:
    for key, usual in STANDARD.items():
        if (value := getattr(run.wrappers, key)) != usual:
            yield f"wrappers.{key}={'null' if value is None else str(value).lower()}"
    rules = {"full_action_space": False, "max_episode_frames": MAX_EPISODE_FRAMES, "mode": None, "difficulty": None}
    for key, usual in rules.items():
        if (value := getattr(game, key)) != usual:
            yield f"env.{key}={str(value).lower()}"
    if typed(run.wrappers, Wrappers).adds_stages:
        yield f"wrappers={run.wrappers.name}"
    if game.sticky_actions not in (0, 0.25):
        yield f"env.sticky_actions={game.sticky_actions:g}"
