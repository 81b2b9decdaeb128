"""Stable-Baselines3's ``VecEnv`` over :class:`~atari_warp.AtariVectorEnv`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from atari_warp.games import EmulatorError
from atari_warp.vector_env import AtariVectorEnv

try:
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.monitor import Monitor, ResultsWriter
except ImportError as error:
    raise ImportError("atari_warp.sb3: needs Stable-Baselines3. pip install 'stable-baselines3>=2.6'.") from error

FIXED: dict[str, Any] = {"array": "numpy", "autoreset_mode": AutoresetMode.SAME_STEP, "life_loss_info": False}


class VecEnv(vec_env.VecEnv):  # type: ignore[misc]
    """Atari games for Stable-Baselines3, in place of ``make_atari_env`` and ``VecFrameStack``.

    A lost life ends an episode of the agent, as in ``make_atari_env``. ``info["episode"]`` has the statistics of whole
    games: ``r``, the points, ``l``, the frames, and ``t``, seconds since the start. Observations are channels-first, as
    ``CnnPolicy`` takes them.

    Args:
        game: ALE's name of a game, such as ``"pong"``.
        num_envs: environments.
        seed: seed of the first environment; the others have the next numbers.
        monitor_dir: folder for ``monitor.csv``, which ``load_results`` reads; ``None`` writes no file.
        preset: preset of :class:`~atari_warp.AtariVectorEnv`.
        options: other keywords of :class:`~atari_warp.AtariVectorEnv`.

    Raises:
        EmulatorError: an option cannot be used.

    Attributes:
        env: the environment below.
    """

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        seed: int | None = None,
        monitor_dir: str | Path | None = None,
        preset: Literal["standard", "machado"] | None = "standard",
        **options: Any,
    ):
        for name in FIXED.keys() & options.keys():
            raise EmulatorError(f"{name}={options[name]}: is chosen by VecEnv. Leave this keyword out.")
        self.env = AtariVectorEnv(game, num_envs, preset=preset, **FIXED, **options)
        space, shape = self.env.single_observation_space, self.env.single_observation_space.shape or ()
        self._is_color = len(shape) == 4  # (stack_num, height, width, 3)
        if self._is_color:
            stack_num, height, width, channels = shape
            space = gymnasium.spaces.Box(0, 255, (stack_num * channels, height, width), np.uint8)
        super().__init__(num_envs, space, self.env.single_action_space)
        self._started = time.time()
        self._results: Any = None
        if monitor_dir is not None:
            header = {"t_start": self._started, "env_id": game}
            self._results = ResultsWriter(str(Path(monitor_dir, Monitor.EXT)), header)
        self._points = np.zeros(num_envs)
        if seed is not None:
            self.seed(seed)

    def reset(self) -> np.ndarray:
        """Start a game in each environment.

        Returns:
            Observations ``(N, stack_num, height, width) uint8``; in colour ``(N, 3 * stack_num, height, width)``.
        """
        seeds = None if None in self._seeds else np.array(self._seeds)
        observations, info = self.env.reset(seed=seeds)
        self._reset_seeds()
        self._points[:] = 0
        self.reset_infos = _split(info)
        return self._channels_first(observations)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Play one step of each game.

        Returns:
            Observations as of :meth:`reset`, rewards ``(N,) float32``, dones ``(N,) bool`` and an info for each
            environment. An environment that is done has started its next episode; its info has
            ``terminal_observation``, and ``episode`` if the game is over.
        """
        observations, rewards, terminated, truncated, info = self.env.step(self._actions)
        dones, infos = terminated | truncated, _split(info)
        points = info["unclipped_reward"]
        if dones.any():
            endings = info["final_info"]
            points = points + np.where(dones, endings["unclipped_reward"], 0)  # the first step of the next life, too
            last, ended = self._channels_first(info["final_obs"]), _split(endings)
            for i in np.flatnonzero(dones).tolist():
                self.reset_infos[i], infos[i] = infos[i], {**ended[i], "terminal_observation": last[i]}
        self._points += points
        for i, one in enumerate(infos):
            one["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            # A continued game has more frames than before the lost life.
            if dones[i] and self.reset_infos[i]["episode_frame_number"] <= one["episode_frame_number"]:
                one["episode"] = self._finish_game(i, one["episode_frame_number"])
        return self._channels_first(observations), rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        """Release the games and close the file of results."""
        self.env.close()
        if self._results is not None:
            self._results.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Attribute of :attr:`env`, which all environments share."""
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of :attr:`env`.

        Raises:
            ValueError: ``indices`` leaves an environment out.
        """
        self._check_all("set_attr", indices)
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of :attr:`env` once; each environment has the result.

        Raises:
            ValueError: ``method_name`` is ``"reset"`` or ``"step"``, which do not belong to one environment.
        """
        if method_name in ("reset", "step"):
            raise ValueError(f"method_name={method_name}: all environments do it together. Call VecEnv.{method_name}.")
        result = getattr(self.env, method_name)(*args, **kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Whether environments have a wrapper: ``Monitor`` is True, as ``info["episode"]`` has its statistics."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Screens of all games, ``(rows, 160, 3) uint8`` each."""
        images = self.env.render()
        return [None] * self.num_envs if images is None else list(images)

    def set_options(self, options: Any = None) -> None:
        """Refuse options of a reset.

        Raises:
            ValueError: there are options; a reset of all games takes none.
        """
        if options:
            raise ValueError(f"options={options}: a reset takes none. Give keywords to VecEnv.")

    def _check_all(self, name: str, indices: Any) -> None:
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ValueError(f"indices={indices}: {name} changes all environments. Leave indices out.")

    def _channels_first(self, observations: np.ndarray) -> np.ndarray:
        if not self._is_color:
            return observations
        return np.moveaxis(observations, -1, 2).reshape(self.num_envs, *self.observation_space.shape)

    def _finish_game(self, i: int, frames: int) -> dict[str, float]:
        seconds = round(time.time() - self._started, 6)
        statistics = {"r": float(self._points[i]), "l": frames, "t": seconds}
        self._points[i] = 0
        if self._results is not None:
            self._results.write_row(statistics)
        return statistics


def _split(info: dict[str, Any]) -> list[dict[str, Any]]:
    """Information on each environment, from arrays ``(N,)``."""
    columns = {name: values.tolist() for name, values in info.items() if not name.startswith(("_", "final_"))}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
