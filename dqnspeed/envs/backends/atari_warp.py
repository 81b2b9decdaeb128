"""``backend=atari_warp``: consoles of dqnspeed's own emulator, on threads of a CPU or on a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs.backends.base import Backend, Engine, NotInstalledError
from dqnspeed.envs.base import Wrappers
from dqnspeed.envs.games import fire_index
from dqnspeed.system import machine
from dqnspeed.system.startup import startup

MISSING = "atari-warp is not installed. Install it with pip install 'dqnspeed[emulator]'."


@register("backend", "atari_warp")
@dataclass(frozen=True)
class AtariWarp(Backend):
    """Batched Atari emulator whose frames equal ALE's."""

    priority = 20
    threads: int = option(
        "threads that step games, in each actor; 0: cores are divided between games and learner", ge=0, default=0
    )
    device: str = option(
        "device of the emulator; auto is the CPU, since no GPU has been measured",
        choices=("auto", "cpu", "cuda"),
        default="auto",
    )
    compile_rom: bool = option(
        "compile the ROM to native code, faster on a CPU; games are interpreted until that is done, once", default=True
    )
    reset_pool: int | None = option(
        "more consoles, which play games' starts ahead, at most one for each environment; null: a quarter of them on a "
        "GPU, and none on a CPU",
        ge=0,
        default=None,
    )

    def check(self, run: RunConfig) -> None:
        self.game_of(run)
        self.check_stages(run)
        wrappers = typed(run.wrappers, Wrappers)
        if wrappers.resize is None and wrappers.crop is not None:
            raise self.refusal(f"crops only images that it resizes, and wrappers.crop={wrappers.crop} comes without")

    def check_here(self, run: RunConfig) -> None:
        game = self.game_of(run)
        with self._emulator_errors():
            from atari_warp import Preprocessing, check_playable, find_game, has_cuda

            check_playable(game.rom, game.mode, game.difficulty)
            Preprocessing(**self._preprocessing(run))
            first = find_game(game.rom).at(game.mode, game.difficulty).first_frame
        if game.max_episode_frames <= first:
            raise self.refusal(
                f"begins this game with frame {first}, and env.max_episode_frames={game.max_episode_frames} ends it"
            )
        if self.device == "cuda" and not has_cuda():
            raise ConfigError("backend.device=cuda: there is no CUDA device here. Use backend.device=cpu.")

    def make(self, run: RunConfig, overlap: bool, render_mode: str | None, seeds: Sequence[int]) -> Engine:
        with self._emulator_errors():
            from atari_warp import AtariVectorEnv

            from dqnspeed.envs.backends._warp_engine import WarpEngine

            game = self.game_of(run)
            with startup.within("compilation"):
                env = AtariVectorEnv(
                    game.rom,
                    run.num_envs,
                    # Actors set their share of the cores; an evaluation runs alone and may use all.
                    num_threads=self.threads or min(run.num_envs, machine.cores()),
                    full_action_space=game.full_action_space,
                    mode=game.mode,
                    difficulty=game.difficulty,
                    array="torch",
                    device="cuda" if self.device == "cuda" else "cpu",
                    compile_rom=self.compile_rom,
                    reset_pool=self.reset_pool,
                    render_mode=None if render_mode is None else "rgb_array",
                    **self._preprocessing(run),
                )
            return WarpEngine(env, overlap)

    def compile_games(self, run: RunConfig) -> None:
        if self.compile_rom:
            from atari_warp import Emulator, find_game

            game = self.game_of(run)
            Emulator(find_game(game.rom).at(game.mode, game.difficulty), compile_rom=True).wait_until_compiled()

    def for_random_play(self) -> Backend:
        return dataclasses.replace(self, threads=0, device="cpu", compile_rom=False, reset_pool=0)

    @contextlib.contextmanager
    def _emulator_errors(self) -> Iterator[None]:
        """Turn an error of the emulator into a :class:`ConfigError`."""
        try:
            yield
        except ConfigError:
            raise
        except ModuleNotFoundError as error:
            raise NotInstalledError(f"backend={self.name}: {MISSING}") from error
        except ImportError as error:
            raise NotInstalledError(f"backend={self.name}: {error} Use backend=auto.") from error
        except ValueError as error:
            raise ConfigError(f"backend={self.name}: {error} Use backend=auto.") from error

    def _preprocessing(self, run: RunConfig) -> dict[str, Any]:
        """Keywords of :class:`atari_warp.Preprocessing`."""
        game, wrappers = self.game_of(run), run.wrappers
        return {
            "frameskip": wrappers.frame_skip,
            "tap_frames": wrappers.tap_frames,
            "maxpool": wrappers.max_pool,
            "final_frame": "newest",
            "grayscale": wrappers.grayscale,
            "crop": tuple(wrappers.crop) if wrappers.crop else None,
            "img_height": wrappers.resize,
            "img_width": wrappers.resize,
            "noop_max": wrappers.noop_max,
            "use_fire_reset": wrappers.fire_reset and fire_index(game) is not None,
            "start_order": "noops_then_fire",
            "stack_num": 1,  # stacks are built from single frames, the same for every backend
            "reward_clipping": False,  # returns are of the unclipped game
            "repeat_action_probability": game.sticky_actions,
            "max_num_frames_per_episode": game.max_episode_frames,
            "count_start_frames": True,
        }
