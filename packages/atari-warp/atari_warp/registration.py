"""Ids of Gymnasium, ``AtariWarp/Pong-v5`` and ``AtariWarp/PongNoFrameskip-v4``, with the defaults of ALE's."""

from __future__ import annotations

from typing import Any

import gymnasium

# Games with ids of both kinds, and games that ALE registers as v5 only. Reading games.yaml would take longer.
GAMES_OF_BOTH = """
    adventure air_raid alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk
    bowling boxing breakout carnival centipede chopper_command crazy_climber defender demon_attack double_dunk
    elevator_action enduro fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond
    journey_escape kangaroo krull kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong
    pooyan private_eye qbert riverraid road_runner robotank seaquest skiing solaris space_invaders star_gunner
    tennis time_pilot tutankham up_n_down venture video_pinball wizard_of_wor yars_revenge zaxxon
""".split()
GAMES_OF_V5 = """
    atlantis2 backgammon basic_math blackjack casino crossbow darkchambers donkey_kong earthworld entombed et
    flag_capture frogger galaxian hangman haunted_house human_cannonball kaboom keystone_kapers king_kong klax
    koolaid laser_gates lost_luggage mario_bros miniature_golf mr_do othello pacman pitfall2 sir_lancelot
    space_war superman surround tetris tic_tac_toe_3d trondead turmoil video_checkers video_chess video_cube
    word_zapper
""".split()
V5 = {
    "frameskip": 4,
    "repeat_action_probability": 0.25,
    "full_action_space": False,
    "max_num_frames_per_episode": 108_000,
}
NO_FRAMESKIP_V4 = {**V5, "frameskip": 1, "repeat_action_probability": 0.0}


def id_of(game: str, version: str = "-v5") -> str:
    """Id of a game, such as ``AtariWarp/SpaceInvaders-v5``."""
    return f"AtariWarp/{game.title().replace('_', '')}{version}"


def register_envs() -> None:
    """Register all games under ``AtariWarp/``, once."""
    for game in (*GAMES_OF_BOTH, *GAMES_OF_V5):
        _register(id_of(game), game, "make_v5", f"{__name__}:make_vec_v5")
    for game in GAMES_OF_BOTH:
        _register(id_of(game, "NoFrameskip-v4"), game, "make_no_frameskip_v4")


def make_v5(**keywords: Any) -> gymnasium.Env[Any, Any]:
    """Environment with the defaults of ``ALE/Pong-v5``."""
    from atari_warp.env import AtariEnv

    return AtariEnv(**{**V5, **keywords})


def make_no_frameskip_v4(**keywords: Any) -> gymnasium.Env[Any, Any]:
    """Environment with the defaults of ``PongNoFrameskip-v4``."""
    from atari_warp.env import AtariEnv

    return AtariEnv(**{**NO_FRAMESKIP_V4, **keywords})


def make_vec_v5(preset: str | None = None, **keywords: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Vector environment with the defaults of ``ALE/Pong-v5`` or of a preset."""
    from atari_warp.vector_env import AtariVectorEnv

    return AtariVectorEnv(preset=preset, **{**({} if preset else V5), **keywords})  # type: ignore[arg-type]


def _register(id_: str, game: str, make: str, make_vec: str | None = None) -> None:
    if id_ not in gymnasium.registry:
        gymnasium.register(id_, f"{__name__}:{make}", vector_entry_point=make_vec, kwargs={"game": game})
