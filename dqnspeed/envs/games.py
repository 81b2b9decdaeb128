"""ALE's games: which one an id names, its rules, its environment and its start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ale_py
import gymnasium
from ale_py.env import AtariEnv

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import EnvConfig
from dqnspeed.envs.wrappers import action_index

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner in every process
gymnasium.register_envs(ale_py)

MAX_EPISODE_FRAMES = 108_000  # 30 minutes of play; Machado et al. 2018, section 3


@dataclass(frozen=True)
class AtariGame:
    """A ROM and the rules of its games."""

    rom: str
    sticky_actions: float
    full_action_space: bool
    max_episode_frames: int
    mode: int | None = None
    difficulty: int | None = None


@cache
def _registered() -> dict[str, dict[str, object]]:
    return {
        name: dict(spec.kwargs)
        for name, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py")
    }


@cache
def _roms() -> set[str]:
    # ALE ships more ROMs, of games for several players, and exits the process when one is loaded.
    return {str(rules["game"]) for rules in _registered().values()}


def rom_of(env_id: str) -> str | None:
    """ROM that an id names (registered id or ROM name); ``None`` if it is not an ALE game."""
    env_id = _without_module(env_id)
    if env_id in _registered():
        return str(_registered()[env_id]["game"])
    return env_id if env_id in _roms() else None


def _without_module(env_id: str) -> str:
    """``env_id`` without the module ``ale_py:``, which is imported already."""
    return env_id.removeprefix("ale_py:")


def atari_game(env: EnvConfig) -> AtariGame | None:
    """ALE game that ``env.id`` names (registered id or ROM name); ``None`` if it is not an ALE game."""
    rom = rom_of(env.id)
    if rom is None:
        return None
    usual: dict[str, object] = {"game": rom, "repeat_action_probability": 0.0, "full_action_space": False}
    rules = _registered().get(_without_module(env.id), usual)
    sticky, full, frames = env.sticky_actions, env.full_action_space, env.max_episode_frames
    return AtariGame(
        rom=str(rules["game"]),
        sticky_actions=float(str(rules["repeat_action_probability"])) if sticky is None else sticky,
        full_action_space=bool(rules["full_action_space"]) if full is None else full,
        max_episode_frames=MAX_EPISODE_FRAMES if frames is None else frames,
        mode=env.mode,
        difficulty=env.difficulty,
    )


def check_id(env: EnvConfig) -> None:
    """Raise :class:`ConfigError`, naming the nearest ids, if ``env.id`` is neither ALE's nor Gymnasium's."""
    if (game := atari_game(env)) is not None:
        if env.kwargs:
            raise ConfigError(
                f"env.kwargs={dict(env.kwargs)}: ALE games take env.sticky_actions, env.full_action_space, "
                f"env.max_episode_frames, env.mode and env.difficulty instead."
            )
        for key, usual in (("observation_key", None), ("channels", "auto")):
            if getattr(env, key) != usual:
                raise ConfigError(
                    f"env.{key}={getattr(env, key)}: {env.id} is an ALE game, whose observations are known."
                )
        for key in ("mode", "difficulty"):
            if (chosen := getattr(game, key)) is not None and chosen not in (there := _has(game.rom)[key]):
                allowed = ", ".join(map(str, there))
                raise ConfigError(f"env.{key}={chosen}: ALE has no such {key} of {game.rom}; it has {allowed}.")
        return
    for key in ("sticky_actions", "full_action_space", "max_episode_frames", "mode", "difficulty"):
        if getattr(env, key) is not None:
            raise ConfigError(f"env.{key}={getattr(env, key)}: {env.id} is not an ALE game.")
    if ":" in env.id or env.id in gymnasium.registry:
        return
    near = nearest(env.id, [*gymnasium.registry, *_roms()])
    raise ConfigError(f"env.id={env.id}: no ALE game and no registered Gymnasium environment has this name{near}.")


@cache
def _has(rom: str) -> dict[str, list[int]]:
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path(rom))
    return {"mode": list(ale.getAvailableModes()), "difficulty": list(ale.getAvailableDifficulties())}


def make_atari(game: AtariGame, grayscale: bool = True, render_mode: str | None = None) -> gymnasium.Env:
    """ALE's own environment of a game, without sticky actions, one frame a step."""
    made: gymnasium.Env = AtariEnv(
        render_mode=render_mode,
        game=game.rom,
        mode=game.mode,
        difficulty=game.difficulty,
        obs_type="grayscale" if grayscale else "rgb",
        frameskip=1,
        repeat_action_probability=0.0,  # StickyActions does it: a saved state of ALE lacks the action to repeat
        full_action_space=game.full_action_space,
        max_num_frames_per_episode=game.max_episode_frames,
    )
    return made


@cache
def fire_index(game: AtariGame) -> int | None:
    """Index of FIRE; ``None`` if the game has no FIRE, or FIRE changes the reward (as the match in Haunted House)."""
    env = make_atari(game)
    try:
        fire = action_index(env, "FIRE")
        if fire is None:
            return None
        env.reset()  # a seed would load the game once more
        _, reward, terminated, truncated, _ = env.step(fire)
        return None if reward or terminated or truncated else fire
    finally:
        env.close()


@cache
def start_rewards(game: AtariGame, fire: bool, noop_max: int) -> dict[int, float] | None:
    """Total reward of FIRE and no-ops at a game's start (time in Skiing, walls in Entombed), by the frame of the game.

    ``None`` if there is no reward, as in most games.
    """
    if not noop_max:
        return None  # FIRE is pressed only where it brings no reward
    env = make_atari(game)
    try:
        noop, press = action_index(env, "NOOP"), fire_index(game) if fire else None
        frame, rewards = env.reset(seed=0)[1]["episode_frame_number"], [0.0]
        for action in [press] * (press is not None) + [noop] * (noop_max if noop is not None else 0):
            _, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
            rewards.append(rewards[-1] + float(reward))
        return {frame + i: reward for i, reward in enumerate(rewards)} if any(rewards) else None
    finally:
        env.close()
