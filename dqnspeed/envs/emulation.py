"""Games of the emulator, as a run asks for them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, WrappersConfig
from dqnspeed.envs.ale import fire_index
from dqnspeed.envs.backends import Backend
from dqnspeed.envs.games import AtariGame
from dqnspeed.envs.wrappers import with_taps
from dqnspeed.system import machine
from dqnspeed.system.startup import startup

if TYPE_CHECKING:
    from atari_warp import Preprocessing  # brought by an extra


MISSING = "atari-warp is not installed. Install it with pip install 'dqnspeed[emulator]'."
OPTIONS = {  # of arguments that the emulator names in its errors
    "game": "env.id", "mode": "env.mode", "difficulty": "env.difficulty", "num_envs": "num_envs",
    "screen_size": "wrappers.resize", "crop": "wrappers.crop", "reset_pool": "wrappers.spares",
    "device": "wrappers.device", "threads": "parallelism.env_threads",
}  # fmt: skip


def check_emulated(game: AtariGame, wrappers: WrappersConfig) -> None:
    """Raise :class:`ConfigError` if ``wrappers=emulator`` cannot play this game as ``wrappers`` say."""
    with _one_sentence():
        from atari_warp import check_playable, find_game, has_cuda

        check_playable(game.rom, game.mode, game.difficulty)
        _preprocessing(game, wrappers)
        first = find_game(game.rom).at(game.mode, game.difficulty).first_frame
    if game.max_episode_frames <= first:
        raise ConfigError(
            f"env.max_episode_frames={game.max_episode_frames}: with wrappers=emulator this game begins with frame "
            f"{first}; give more."
        )
    if wrappers.device == "cuda" and not has_cuda():
        raise ConfigError("wrappers.device=cuda: there is no CUDA device here.")


@contextlib.contextmanager
def _one_sentence() -> Iterator[None]:
    """An error of the emulator as one of the configuration, with the name of the option."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"wrappers=emulator: {MISSING}") from error
    except (ImportError, ValueError) as error:
        argument, _, value = str(error).partition("=")
        value, _, problem = value.partition(": ")
        if argument in OPTIONS and problem:
            raise ConfigError(
                f"{OPTIONS[argument]}={value}: {problem} This is a limit of wrappers=emulator."
            ) from error
        raise ConfigError(f"wrappers=emulator: {error}") from error


def emulator_device(run: RunConfig) -> str:
    """Where games are played, ``cpu`` or ``cuda``."""
    return "cuda" if run.wrappers.backend == "emulator" and run.wrappers.device == "cuda" else "cpu"


def emulated(game: AtariGame, run: RunConfig, overlap: bool, whole: bool) -> Backend:
    with _one_sentence():
        from atari_warp import ACTIONS, ConsoleBatch, find_game

        from dqnspeed.envs.emulated import EmulatorBackend

        where = emulator_device(run)
        # Actors set their share of the cores; an evaluation runs alone and may use all.
        threads = run.parallelism.env_threads or min(run.num_envs, machine.cores())
        stages = dataclasses.replace(_preprocessing(game, run.wrappers), render_full_screen=whole)
        played = find_game(game.rom).at(game.mode, game.difficulty)
        with startup.within("compilation"):
            consoles = ConsoleBatch(
                played, run.num_envs, where, stages, threads=threads, compile_rom=run.wrappers.translate,
                reset_pool=run.wrappers.spares,
            )  # fmt: skip
        names = [ACTIONS[action] for action in stages.actions or ()]
        return EmulatorBackend(consoles, with_taps(names) if stages.tap_frames else names, overlap)


def _preprocessing(game: AtariGame, wrappers: WrappersConfig) -> Preprocessing:
    from atari_warp import Preprocessing, find_game

    played = find_game(game.rom)
    actions = played.legal if game.full_action_space else played.minimal
    crop = None
    if wrappers.crop is not None:
        top, bottom, left, right = wrappers.crop
        crop = (top, bottom, left, right)
    return Preprocessing(
        frame_skip=wrappers.frame_skip,
        tap_frames=wrappers.tap_frames,
        max_pool=wrappers.max_pool,
        grayscale=wrappers.grayscale,
        crop=crop,
        screen_size=wrappers.resize,
        noop_max=wrappers.noop_max if 0 in actions else 0,
        fire_reset=wrappers.fire_reset and fire_index(game) is not None,
        sticky_actions=game.sticky_actions,
        max_episode_frames=game.max_episode_frames,
        actions=actions,
    )
