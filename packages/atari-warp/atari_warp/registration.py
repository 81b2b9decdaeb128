"""Ids of Gymnasium, ``AtariWarp/Pong-v5`` and ``AtariWarp/PongNoFrameskip-v4``, with the defaults of ALE's."""

from __future__ import annotations

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
MAX_FRAMES = 108_000


def id_of(game: str, version: str = "v5") -> str:
    """Id of a game, such as ``AtariWarp/SpaceInvaders-v5``, or with ``NoFrameskip-v4`` the other kind."""
    return f"AtariWarp/{game.title().replace('_', '')}{'' if version.startswith('NoFrameskip') else '-'}{version}"


def register_envs() -> None:
    """Register all games under ``AtariWarp/``, once."""
    for game in (*GAMES_OF_BOTH, *GAMES_OF_V5):
        _register(id_of(game), game, frameskip=4, repeat_action_probability=0.25)
    for game in GAMES_OF_BOTH:
        _register(id_of(game, "NoFrameskip-v4"), game, frameskip=1, repeat_action_probability=0.0)


def _register(id_: str, game: str, frameskip: int, repeat_action_probability: float) -> None:
    if id_ in gymnasium.registry:
        return
    gymnasium.register(
        id_,
        entry_point="atari_warp.env:AtariEnv",
        vector_entry_point="atari_warp.vector_env:AtariVectorEnv",
        kwargs={
            "game": game,
            "repeat_action_probability": repeat_action_probability,
            "full_action_space": False,
            "frameskip": frameskip,
            "max_num_frames_per_episode": MAX_FRAMES,
        },
    )
