"""Gymnasium environment of one Atari game."""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import error, spaces, utils
from gymnasium.utils import seeding

from atari_warp.ale_interface import ALEInterface, check_known
from atari_warp.ale_state import ALEState
from atari_warp.games import ACTIONS

KEYS = {"UP": "w", "DOWN": "s", "LEFT": "a", "RIGHT": "d", "FIRE": " "}
NOOP_KEY = "e"
RENDER_MODES = ["human", "rgb_array"]


class AtariEnv(gymnasium.Env[np.ndarray, Any], utils.EzPickle):
    """Atari game with the arguments, spaces and results of ``ale_py.env.AtariEnv``.

    Observations, rewards and ends equal ALE's bit for bit. Repeated actions of ``repeat_action_probability`` are drawn
    from other random numbers. Defaults follow Machado et al. 2018.

    Args:
        game: ALE's name of a game, such as ``space_invaders``.
        mode, difficulty: ALE's numbers; ``None`` means the default.
        obs_type: ``rgb`` ``(rows, 160, 3)``, ``grayscale`` ``(rows, 160)`` or ``ram`` ``(128,)``, all ``uint8``.
        frameskip: frames that an action lasts, or a range ``(low, high)`` without ``high``, from which each step draws.
        repeat_action_probability: probability that a frame repeats the action of the previous frame.
        full_action_space: all legal actions, in most games 18, instead of the actions with an effect.
        continuous, continuous_action_threshold: must have their defaults; continuous actions are not supported.
        max_num_frames_per_episode: frames after which a game is truncated; ``None`` means no limit.
        render_mode: ``rgb_array``, ``human`` for a window, or ``None``.
        sound_obs: must be ``False``; the emulator has no sound.
        compile_rom: compile the game's code for more frames per second; until that is done, the code is interpreted.

    Raises:
        gymnasium.error.Error: an argument cannot be used.
        UnknownGameError: the game is unknown.
        RuntimeError: the game has no such mode or difficulty.

    Attributes:
        ale: the :class:`ALEInterface` of the game.
    """

    metadata = {"render_modes": RENDER_MODES, "render_fps": 30}

    def __init__(
        self,
        game: str,
        mode: int | None = None,
        difficulty: int | None = None,
        obs_type: Literal["rgb", "grayscale", "ram"] = "rgb",
        frameskip: tuple[int, int] | int = 4,
        repeat_action_probability: float = 0.25,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        max_num_frames_per_episode: int | None = None,
        render_mode: Literal["human", "rgb_array"] | None = None,
        sound_obs: bool = False,
        compile_rom: bool = True,
    ):
        _check_options(obs_type, frameskip, repeat_action_probability, render_mode, continuous, sound_obs)
        _check_limit(max_num_frames_per_episode)
        check_known(game)
        utils.EzPickle.__init__(
            self, game, mode, difficulty, obs_type, frameskip, repeat_action_probability, full_action_space, continuous,
            continuous_action_threshold, max_num_frames_per_episode, render_mode, sound_obs, compile_rom,
        )  # fmt: skip
        self.render_mode = render_mode
        self._game, self._mode, self._difficulty = game, mode, difficulty
        self._frameskip = frameskip
        self.ale = ALEInterface(compile_rom)
        self.ale.setFloat("repeat_action_probability", repeat_action_probability)
        if max_num_frames_per_episode is not None:
            self.ale.setInt("max_num_frames_per_episode", max_num_frames_per_episode)
        self.ale.setBool("display_screen", render_mode == "human")
        self.seed_game()
        self.load_game()
        self._action_set = self.ale.getLegalActionSet() if full_action_space else self.ale.getMinimalActionSet()
        self._action_numbers = [action.value for action in self._action_set]
        self.action_space = spaces.Discrete(len(self._action_set))
        self._observe = {
            "rgb": self.ale.getScreenRGB, "grayscale": self.ale.getScreenGrayscale, "ram": self.ale.getRAM,
        }[obs_type]  # fmt: skip
        rows, columns = self.ale.getScreenDims()
        shape = {"rgb": (rows, columns, 3), "grayscale": (rows, columns), "ram": (self.ale.getRAMSize(),)}[obs_type]
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def seed_game(self, seed: int | None = None) -> tuple[int, int]:
        """Seed the frame skip and the repeated actions, which start with the next :meth:`load_game`.

        Returns:
            Both seeds.
        """
        of_numpy, of_actions = np.random.SeedSequence(seed).generate_state(n_words=2)
        self._np_random, _ = seeding.np_random(int(of_numpy))
        self.ale.setInt("random_seed", int(of_actions))
        return of_numpy, of_actions

    def load_game(self) -> None:
        """Load the ROM, and choose mode and difficulty."""
        self.ale.loadROM(self._game)
        if self._mode is not None:
            self.ale.setMode(self._mode)
        if self._difficulty is not None:
            self.ale.setDifficulty(self._difficulty)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next game, or with a ``seed`` the first game after the console is switched on.

        Returns:
            Observation, and ``lives``, ``episode_frame_number``, ``frame_number`` and with a seed ``seeds``.
        """
        super().reset(seed=seed, options=options)
        seeds = None if seed is None else self.seed_game(seed)
        if seeds is not None:
            self.load_game()
        self.ale.reset_game()
        observation, info = self._observe(), self._info()
        return observation, info if seeds is None else {**info, "seeds": seeds}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play the frames of one action.

        Args:
            action: index into the action set.

        Returns:
            Observation, points, whether the game is over, whether its time is up, and ``lives``,
            ``episode_frame_number`` and ``frame_number``.

        Raises:
            IndexError, TypeError: the action is no index of the action set.
        """
        skip = self._frameskip
        frames = skip if isinstance(skip, int) else int(self.np_random.integers(*skip))
        ale = self.ale
        try:
            number = self._action_numbers[action]
        except (IndexError, TypeError) as problem:
            most = len(self._action_numbers) - 1
            raise type(problem)(f"action={action!r}: must be an integer from 0 to {most}.") from problem
        reward = float(ale.play(number, frames))
        over = ale.game_over(with_truncation=False)
        return self._observe(), reward, over, ale.game_truncated(), self._info()

    def render(self) -> np.ndarray | None:
        """Return the picture ``(rows, 160, 3) uint8`` with ``render_mode="rgb_array"``.

        Raises:
            gymnasium.error.Error: there is no render mode.
        """
        if self.render_mode == "human":
            return None
        if self.render_mode is None:
            raise error.Error("render_mode=None: nothing is rendered. Make the environment with rgb_array or human.")
        return self.ale.getScreenRGB()

    def close(self) -> None:
        """Free the console. Later calls raise an error."""
        self.ale.close()

    def get_keys_to_action(self) -> dict[tuple[str, ...], int]:
        """Action by the keys that press it: w, a, s and d for directions, space for FIRE, and e for NOOP."""
        keys = [
            tuple(key for part, key in KEYS.items() if part in meaning) or (NOOP_KEY,)
            for meaning in self.get_action_meanings()
        ]
        return {pressed: action for action, pressed in enumerate(keys)}

    def get_action_meanings(self) -> list[str]:
        """Names of the actions."""
        return [ACTIONS[number] for number in self._action_numbers]

    def clone_state(self, include_rng: bool = False) -> ALEState:
        """Return the state of the game.

        Args:
            include_rng: with the random numbers of repeated actions.
        """
        return self.ale.cloneState(include_rng=include_rng)

    def restore_state(self, state: ALEState) -> None:
        """Continue from a state of the same game.

        Raises:
            EmulatorError: the state is of another game or version of the emulator.
        """
        self.ale.restoreState(state)

    def _info(self) -> dict[str, Any]:
        ale = self.ale
        return {
            "lives": ale.lives(),
            "episode_frame_number": ale.getEpisodeFrameNumber(),
            "frame_number": ale.getFrameNumber(),
        }


def _check_options(
    obs_type: Any, frameskip: Any, repeat_action_probability: Any, render_mode: Any, continuous: Any, sound_obs: Any
) -> None:
    """Raise :class:`gymnasium.error.Error` for an argument that cannot be used."""
    if obs_type not in ("rgb", "grayscale", "ram"):
        raise error.Error(f"obs_type={obs_type}: must be rgb, grayscale or ram.")
    skips = frameskip if isinstance(frameskip, tuple) else (frameskip, math.inf)
    if type(frameskip) not in (int, tuple) or len(skips) != 2 or not all(type(k) is int for k in skips[:1]):
        raise error.Error(f"frameskip={frameskip}: must be an integer, or a tuple of two integers.")
    if not 0 < skips[0] < skips[1] or (isinstance(frameskip, tuple) and type(skips[1]) is not int):
        raise error.Error(f"frameskip={frameskip}: must be positive, and in a tuple the second number is larger.")
    if not isinstance(repeat_action_probability, (int, float, np.number)) or not 0 <= repeat_action_probability <= 1:
        raise error.Error(f"repeat_action_probability={repeat_action_probability}: must be a number from 0 to 1.")
    if render_mode not in (None, *RENDER_MODES):
        raise error.Error(f"render_mode={render_mode}: must be rgb_array, human or None.")
    if continuous:
        raise error.Error("continuous=True: continuous actions are not supported. Use ale_py for continuous actions.")
    if sound_obs:
        raise error.Error("sound_obs=True: the emulator has no sound. Use ale_py for observations with sound.")


def _check_limit(frames: Any) -> None:
    """Raise an error for a time limit that cannot be used."""
    if frames is None:
        return
    if not isinstance(frames, (int, np.integer)):
        raise TypeError(f"max_num_frames_per_episode={frames}: must be an integer or None.")
    if not 0 <= frames < 2**31:
        raise error.Error(f"max_num_frames_per_episode={frames}: must be from 0, which means no limit, to 2**31 - 1.")
