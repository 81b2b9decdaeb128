"""Gymnasium vector environment over many consoles."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import error
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from atari_warp import kernels
from atari_warp.console_batch import ConsoleBatch
from atari_warp.games import ACTIONS, EmulatorError, find_game
from atari_warp.preprocessing import Preprocessing
from atari_warp.ram_stack import RAM_BYTES, RamStack
from atari_warp.steps import Steps

PRESETS: dict[str, dict[str, Any]] = {
    "standard": {
        "start_order": "noops_then_fire", "stack_padding": "repeat", "episodic_life": True, "on_life_loss": "continue",
        "count_start_frames": True,
    },
    "machado": {
        "repeat_action_probability": 0.25, "full_action_space": True, "noop_max": 0, "use_fire_reset": False,
        "count_start_frames": True,
    },
}  # fmt: skip
INFO = {"lives": kernels.LIVES, "frame_number": kernels.FRAMES, "episode_frame_number": kernels.EPISODE_FRAMES}

Arrays = tuple[Any, Any, Any, Any, dict[str, Any]]  # observations, rewards, terminations, truncations, info


class AtariVectorEnv(VectorEnv[Any, Any, Any]):
    """Many games of ALE that are played at once, with the keywords of ``ale_py.vector_env.AtariVectorEnv``.

    Args:
        game: ALE's name of a game, such as ``"space_invaders"``.
        num_envs: number of games.
        preset: keywords that are set together; a keyword given beside a preset wins. ``"standard"`` is the protocol of
            Mnih et al. (2015), as in Stable-Baselines3 and CleanRL: 1 to 30 no-ops and then FIRE, lost lives end
            episodes but not games, clipped rewards, stacks that begin with copies of the first frame. ``"machado"`` is
            the protocol of Machado et al. (2018): sticky actions with probability 0.25, all actions, whole games.
        batch_size: 0 or ``num_envs``; no other number is supported.
        num_threads: CPU threads; 0 takes one for each core, and at most ``num_envs``.
        thread_affinity_offset: -1; no other number is supported.
        full_action_space: all legal actions, in most games 18, instead of the minimal set.
        actions: ALE numbers of the actions, instead of one of these two sets.
        continuous: ``False``; continuous actions are not supported.
        continuous_action_threshold: ignored.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, see :class:`gymnasium.vector.AutoresetMode`.
        mode, difficulty: ALE's numbers; ``None`` takes the default.
        obs_type: ``"image"``, or ``"ram"`` for stacks of 128 bytes of memory.
        array: ``"numpy"`` returns new arrays. ``"torch"`` returns tensors: observations share memory with the games on
            ``device``, and the next step overwrites them; the rest is on the host.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        compile_rom: translate the game's code to C++ and compile it, which makes frames faster on a CPU.
        reset_pool: additional consoles that start games ahead, see :class:`ConsoleBatch`.
        render_mode: ``"rgb_array"`` or ``None``.
        preprocessing: keywords of :class:`Preprocessing`, such as ``frameskip``, ``img_height`` and ``noop_max``.

    Raises:
        EmulatorError: a keyword has a wrong value; a ``ValueError``.
        TypeError: a keyword is unknown.
        gymnasium.error.Error: ``frameskip`` is not an integer of at least 1.

    Attributes:
        action_set: ALE numbers of the actions.
    """

    closed = True  # Gymnasium 1.1 closes an environment that was never made

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        preset: Literal["standard", "machado"] | None = None,
        batch_size: int = 0,
        num_threads: int = 0,
        thread_affinity_offset: int = -1,
        full_action_space: bool | None = None,
        actions: Sequence[int] | None = None,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        mode: int | None = None,
        difficulty: int | None = None,
        obs_type: Literal["image", "ram"] = "image",
        array: Literal["numpy", "torch"] = "numpy",
        device: str = "cpu",
        compile_rom: bool = True,
        reset_pool: int | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        **preprocessing: Any,
    ):
        if not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise EmulatorError(f"num_envs={num_envs}: must be an integer of at least 1.")
        _refuse_unsupported(num_envs, batch_size, thread_affinity_offset, continuous)
        for name, value, known in (
            ("preset", preset, (None, *PRESETS)),
            ("obs_type", obs_type, ("image", "ram")),
            ("array", array, ("numpy", "torch")),
            ("render_mode", render_mode, (None, "rgb_array")),
        ):
            if value not in known:
                raise EmulatorError(f"{name}={value}: must be {' or '.join(map(str, known))}.")
        for option, needs_torch in ((f"array={array}", array == "torch"), (f"device={device}", device != "cpu")):
            if needs_torch and importlib.util.find_spec("torch") is None:
                raise EmulatorError(f"{option}: needs PyTorch. pip install torch.")
        chosen = {**(PRESETS[preset] if preset else {}), **preprocessing}
        by_preset = chosen.pop("full_action_space", False)
        played = find_game(game).at(mode, difficulty)
        full = by_preset if full_action_space is None else full_action_space
        self.action_set = tuple((played.legal if full else played.minimal) if actions is None else actions)
        chosen |= {"actions": self.action_set, "render_full_screen": render_mode is not None}
        options = _preprocessing(chosen, can_fire=1 in self.action_set)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as wrong:
            known_modes = ", ".join(each.value for each in AutoresetMode)
            raise EmulatorError(f"autoreset_mode={autoreset_mode}: must be one of {known_modes}.") from wrong
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": ["rgb_array"]}
        self.metadata["render_fps"] = 60 / options.frameskip
        self.render_mode = render_mode
        if not isinstance(num_threads, (int, np.integer)) or num_threads < 0:
            raise EmulatorError(f"num_threads={num_threads}: must be an integer of at least 0.")
        threads = min(num_threads or _cores(), num_envs)
        self.consoles = ConsoleBatch(
            played, num_envs, device, options, threads=threads, compile_rom=compile_rom, reset_pool=reset_pool,
            observes=obs_type == "image",
        )  # fmt: skip
        self.num_envs = num_envs
        self._options = options
        self._steps = Steps(self.consoles)
        self._torch = array == "torch"
        self._ram = RamStack(self.consoles, options) if obs_type == "ram" else None
        shape: tuple[int, ...] = (
            options.stack_num,
            *options.picture_shape(played.rows),
            *(() if options.grayscale else (3,)),
        )
        self.single_observation_space = Box(0, 255, (options.stack_num, RAM_BYTES) if self._ram else shape, np.uint8)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        presses = sum(action > 0 for action in self.action_set) if options.tap_frames else 0
        self._action_count = len(self.action_set) + presses
        self.single_action_space = Discrete(self._action_count)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, bool)  # environments whose episodes have ended
        self._process = os.getpid()
        self.closed = False

    def reset(
        self, *, seed: int | Sequence[int] | np.ndarray | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start games.

        With ``on_life_loss="continue"`` and without a seed, an environment that has lost a life keeps its game.

        Args:
            seed: an integer of the first environment, from which the others count up, or one for each environment that
                is reset. Without a seed, random numbers go on; the first reset draws seeds.
            options: ``{"reset_mask": mask}`` with ``(num_envs,) bool`` resets some environments.

        Returns:
            Observations ``(num_envs, *single_observation_space.shape) uint8`` and ``info``.
        """
        self._check_usable()
        mask = _reset_mask(options, self.num_envs)
        if mask is not None and not mask.all() and not self.consoles.has_games:
            raise RuntimeError(f"reset_mask={mask}: the first reset must reset all environments.")
        if mask is None:
            self._steps.finish()
        self._steps.check_idle()
        count = self.num_envs if mask is None else int(mask.sum())
        if seed is None and not self.consoles.has_games:
            seed = [int(word) for word in np.random.SeedSequence().generate_state(count, np.uint64)]
        if seed is not None:
            seeds = np.zeros(self.num_envs, np.uint64)
            seeds[slice(None) if mask is None else mask] = _seeds(seed, count)
            self._steps.run(lambda: self.consoles.reset(seeds, mask))
        elif count:
            self._steps.run(lambda: self.consoles.restart(mask))
        self._over[slice(None) if mask is None else mask] = False
        numbers = self._steps.numbers()
        if not count:
            numbers[kernels.LEFT_OUT] = 1
        return self._observations(numbers), self._info(numbers)

    def step(self, actions: Any) -> Arrays:
        """Play one action in each game.

        Args:
            actions: ``(num_envs,)`` integers, a NumPy array or a tensor. With sticky actions, ``~a`` is action ``a``
                that always takes effect.

        Returns:
            Observations, rewards ``(num_envs,) int32``, terminations and truncations ``(num_envs,) bool``, and ``info``
            with ``env_id``, ``lives``, ``frame_number``, ``episode_frame_number`` and the points themselves,
            ``unclipped_reward``, ``(num_envs,) int32`` each. In ``SAME_STEP`` mode, where an episode
            has ended, also ``final_obs`` and ``final_info`` of its last step, with the masks ``_final_obs`` and
            ``_final_info``.

        Raises:
            AssertionError: ``actions`` have a wrong shape or dtype, or are out of range; on a GPU the range is not
                checked.
            RuntimeError: no game has started, or in ``DISABLED`` mode an episode has ended and was not reset.
            gymnasium.error.ClosedEnvironmentError: the environment was closed.
        """
        given = self._checked(actions)
        self._steps.run(lambda: self.consoles.step(given))
        return self._results()

    def send(self, actions: Any) -> None:
        """Begin a step with ``actions`` as :meth:`step` takes them; the games play beside the caller."""
        given = self._checked(actions)
        own = given.copy() if isinstance(given, np.ndarray) else given.clone()  # as the caller may change them
        self._steps.begin(lambda: self.consoles.step(own))

    def recv(self) -> Arrays:
        """Wait for the step that :meth:`send` began, and return its results as :meth:`step` does."""
        self._check_usable()
        if not self._steps.finish():
            raise RuntimeError("recv: no step has begun. Call send() first.")
        return self._results()

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Newest pictures ``(rows, 160, 3) uint8`` of all games; ``None`` without a ``render_mode``."""
        self._check_usable()
        self._steps.finish(keep=True)
        return tuple(self.consoles.rgb()) if self.render_mode else None

    def get_action_meanings(self) -> list[str]:
        """ALE's names of the actions, followed by the names of the taps."""
        names = [ACTIONS[action] for action in self.action_set]
        return names + [f"{name} TAP" for name in names if name != "NOOP" and self._options.tap_frames]

    def save_state(self) -> dict[str, np.ndarray]:
        """State of all games, as NumPy arrays, for :meth:`load_state`."""
        self._check_usable()
        self._steps.check_idle()
        ram = {} if self._ram is None else {"ram_stack": np.array(self._ram.stack)}
        return {**self.consoles.save_state(), "over": self._over.copy(), **ram}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the result of :meth:`save_state` of an environment with the same game and keywords.

        Raises:
            EmulatorError: the state belongs to other games or keywords.
        """
        self._check_usable()
        self._steps.check_idle()
        if not isinstance(state, Mapping) or "over" not in state or ("ram_stack" in state) != (self._ram is not None):
            raise EmulatorError("state: must be a result of save_state() with the same keywords.")
        self.consoles.load_state(state)
        self._over[:] = state["over"]
        if self._ram is not None:
            self._ram.stack[:] = state["ram_stack"]

    def close_extras(self, **kwargs: Any) -> None:
        if os.getpid() != self._process:
            return  # threads and games are the parent's
        self._steps.finish()
        self._steps.close()
        self.consoles.close()

    def __getstate__(self) -> Any:
        raise TypeError("AtariVectorEnv: cannot be copied or pickled. Make another one and use save_state().")

    def _results(self) -> Arrays:
        numbers = self._steps.numbers()
        rewards = numbers[kernels.REWARD]
        terminated, truncated = numbers[kernels.TERMINATED] != 0, numbers[kernels.TRUNCATED] != 0
        observations = self._observations(numbers)
        over = terminated | truncated
        if self._options.life_loss_info and not self._options.episodic_life:
            over = numbers[kernels.ENDED] != 0  # a reported life does not end the game
        if self.autoreset_mode is not AutoresetMode.SAME_STEP or not over.any():
            self._over = over
            return observations, *map(self._given, (rewards, terminated, truncated)), self._info(numbers)
        final = self._final(numbers, over)
        final["final_obs"] = observations.clone() if self._torch else observations
        self._steps.run(lambda: self.consoles.restart(over))
        numbers = self._steps.numbers()
        observations = self._observations(numbers)
        return observations, *map(self._given, (rewards, terminated, truncated)), {**self._info(numbers), **final}

    def _observations(self, numbers: np.ndarray) -> Any:
        if self._ram is not None:
            return self._given(self._ram.push(numbers).copy())
        found: Any = self.consoles.observations_tensor() if self._torch else self.consoles.observations
        if not self._options.grayscale:
            found = found.reshape(self.num_envs, self._options.stack_num, 3, *found.shape[2:])
            found = found.permute(0, 1, 3, 4, 2) if self._torch else found.transpose(0, 1, 3, 4, 2)
        return found if self._torch else found.copy()

    def _info(self, numbers: np.ndarray) -> dict[str, Any]:
        info = {"env_id": np.arange(self.num_envs, dtype=np.int32)}
        info |= {name: numbers[column] for name, column in INFO.items()}
        return {**info, "unclipped_reward": numbers[kernels.POINTS]}

    def _final(self, numbers: np.ndarray, over: np.ndarray) -> dict[str, Any]:
        """Information on the last step of the episodes that are ``over``, as Gymnasium gives it."""
        info = self._info(numbers)
        info |= {f"_{name}": over for name in tuple(info)}
        return {"_final_obs": over, "final_info": info, "_final_info": over}

    def _given(self, values: np.ndarray) -> Any:
        """Array or tensor of the values, as ``array`` asks for."""
        if not self._torch:
            return values
        import torch

        return torch.from_numpy(np.ascontiguousarray(values))

    def _checked(self, actions: Any) -> Any:
        """``actions``, if a step can be played with them."""
        self._check_usable()
        if not self.consoles.has_games:
            raise RuntimeError("step: no game has started. Call reset() first.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            ended = np.flatnonzero(self._over).tolist()
            raise RuntimeError(f"step: episodes of environments {ended} have ended. Reset them with a reset_mask.")
        if type(actions).__module__ == "torch" and actions.is_cuda:
            if actions.is_floating_point() or tuple(actions.shape) != (self.num_envs,):
                raise AssertionError(
                    f"actions: {tuple(actions.shape)} {actions.dtype}, not ({self.num_envs},) integers."
                )
            return actions.clamp(-(2**31), 2**31 - 1).int()  # on the caller's stream; neither bound is an action
        values = np.asarray(actions)
        if values.dtype.kind not in "iu" or values.shape != (self.num_envs,):
            raise AssertionError(
                f"actions: have shape {values.shape} and dtype {values.dtype}, expected ({self.num_envs},) integers."
            )
        count = self._action_count
        least = -count if self._options.repeat_action_probability else 0
        played = values[~self._over] if self._over.any() else values  # the others start an episode and ignore theirs
        if played.size and (played.min() < least or played.max() >= count):
            raise AssertionError(f"actions={values}: must be from {least} to {count - 1}.")
        return values

    def _check_usable(self) -> None:
        if self.closed:
            raise error.ClosedEnvironmentError("AtariVectorEnv: was closed. Make another one.")
        if os.getpid() != self._process:
            raise RuntimeError("AtariVectorEnv: belongs to the parent process. Make one in this process.")


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _refuse_unsupported(num_envs: int, batch_size: int, thread_affinity_offset: int, continuous: bool) -> None:
    if batch_size not in (0, num_envs):
        raise EmulatorError(f"batch_size={batch_size}: only num_envs is supported. Use ale_py's AtariVectorEnv.")
    if thread_affinity_offset != -1:
        raise EmulatorError(f"thread_affinity_offset={thread_affinity_offset}: is not supported. Use taskset.")
    if continuous:
        raise EmulatorError("continuous=True: continuous actions are not supported. Use ale_py's AtariVectorEnv.")


def _preprocessing(keywords: dict[str, Any], can_fire: bool) -> Preprocessing:
    """Preprocessing of an environment whose game may take no FIRE or no NOOP."""
    frameskip = keywords.get("frameskip", 4)
    if type(frameskip) is not int or frameskip <= 0:
        raise error.Error(f"frameskip={frameskip}: Invalid frameskip, must be an integer of at least 1.")
    if keywords.get("start_order") == "noops_then_fire" and 0 not in keywords["actions"]:
        keywords["noop_max"] = 0
    keywords["use_fire_reset"] = bool(keywords.get("use_fire_reset", True)) and can_fire
    known = [each.name for each in dataclasses.fields(Preprocessing)]
    for name in keywords:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise TypeError(f"{name}: unknown keyword." + (f" Did you mean {near[0]}?" if near else ""))
    return Preprocessing(**keywords)


def _reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray | None:
    if options is None or "reset_mask" not in options:
        return None
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"reset_mask={mask}: must be a boolean NumPy array.")
    if mask.shape != (num_envs,):
        raise ValueError(f"reset_mask: has shape {mask.shape}, expected ({num_envs},).")
    return mask


def _seeds(seed: Any, count: int) -> np.ndarray:
    """Seeds of ``count`` environments, ``uint64``."""
    if isinstance(seed, (int, np.integer)):
        values = [int(seed) + k for k in range(count)]
    elif isinstance(seed, (np.ndarray, list, tuple)):
        if not all(isinstance(one, (int, np.integer)) for one in np.asarray(seed, object).flat):
            raise TypeError(f"seed={seed}: must be integers.")
        values = [int(one) for one in np.asarray(seed, object).flat]
    else:
        raise TypeError(f"seed={seed}: must be an integer, or an array of one integer for each environment.")
    if len(values) != count:
        raise ValueError(f"seed: has {len(values)} numbers, expected {count}, one for each environment that is reset.")
    if not all(0 <= value < 2**64 for value in values):
        raise ValueError(f"seed={seed}: must be from 0 to 2**64 - 1.")
    return np.array(values, np.uint64)
