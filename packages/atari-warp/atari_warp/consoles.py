"""Many Atari 2600 consoles that play one game: their state on a device, and the launches that advance it."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.console_data import palette, power_on_memory, power_on_timers
from atari_warp.cpu_launch import packed
from atari_warp.games import EmulatorError, Game, find_game, read_rom
from atari_warp.kernel_cache import compiled
from atari_warp.memory_limit import check_memory
from atari_warp.pictures import Pictures
from atari_warp.reset_pool import pool_size
from atari_warp.threads import ConsoleThreads, split_evenly
from atari_warp.translation import Translation, load_kernels, translation_of

if TYPE_CHECKING:
    from typing_extensions import Self

WIDTH = 160
# Consoles in one block of a GPU diverge and run one after another, so a block is as small as the GPU has room for.
BLOCK_SIZES = (4, 8, 16, 32)
BLOCKS_PER_SM = 12  # limited by registers; the compiler's count for an H100
STATE_BYTES = 1024  # of one console, approximately
MEMORY_BYTES = 256  # RAM of console and cartridge, with which the state of a console begins
FIELDS = ("turn", "frames", "score", "lives", "over", "cycles", "pc", "a", "x", "y", "s")  # int32 after the memory
NO_CONSOLES = slice(0, 0)
NO_LIMIT = 2**31 - 1  # frames of a game
SCRIPT_FRAMES = 2048  # room for the two starts of any mode; the longest are 1,488 frames together


class Consoles:
    """Base class of :class:`atari_warp.Emulator` and :class:`atari_warp.ConsoleBatch`.

    Results are NumPy arrays. On a GPU they are copies, for which the host waits.

    Args:
        game: ALE's name of a game, such as ``space_invaders``, or a :class:`Game` at another mode or difficulty.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, or a device of torch or Warp with such a name.
        rom: a ROM file to play instead of ale-py's.
        threads: CPU threads; each steps its share of the consoles.
        settings: numbers for ``native/agent.h``, or chance of a repeated action, times 2**31, and frames of a game.
        compile_rom: translate the game's code to C++ and compile it, which makes frames faster on a CPU. A child
            process does so once, in some seconds; meanwhile the game is interpreted.
        reset_pool: additional consoles that prepare the next games, see :class:`atari_warp.ConsoleBatch`.
        trace: record which bytes of the ROM are executed as instructions.

    Raises:
        EmulatorError: the game or device is unknown, the cartridge is not supported, memory is too small, or Warp
            cannot compile the kernel.

    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int,
        device: str = "cpu",
        rom: Path | None = None,
        threads: int = 1,
        settings: Sequence[int] = (0, NO_LIMIT),
        compile_rom: bool = False,
        reset_pool: int | None = 0,
        trace: bool = False,
    ):
        self.game = find_game(game) if isinstance(game, str) else game
        for name, count in (("num_envs", num_envs), ("threads", threads)):
            if not isinstance(count, (int, np.integer)) or count < 1:
                raise EmulatorError(f"{name}={count}: must be an integer of at least 1.")
        num_envs, threads = int(num_envs), int(threads)  # NumPy integers would overflow
        self.num_envs, self.device = num_envs, _device(device)
        if reset_pool is not None and not (isinstance(reset_pool, (int, np.integer)) and reset_pool >= 0):
            raise EmulatorError(f"reset_pool={reset_pool}: must be an integer of at least 0.")
        self.reset_pool = pool_size(reset_pool, num_envs, self.device.is_cuda)
        consoles = num_envs + self.reset_pool
        needed = num_envs * self._bytes_per_env() + self.reset_pool * Consoles._bytes_per_env(self)
        check_memory(num_envs, needed, self.device)
        ints = functools.partial(wp.array, dtype=int, device=self.device)
        code = read_rom(self.game, rom)
        self._kernel: Any = kernels.run_with()
        self._translation: Translation | None = None
        if self.device.is_cpu:
            load_kernels()
            self._translation = translation_of(self.game, rom, code) if compile_rom and not trace else None
        cartridge, memory, tables = np.frombuffer(code, np.uint8), power_on_memory(), self.game.rules.tables()
        facts, script, timers = (
            np.array(numbers, np.int32).reshape(-1)
            for numbers in (self.game.facts, self.game.script, power_on_timers())
        )
        made_of = (cartridge, memory, tables, facts, script, timers)
        self._version = hashlib.sha256(b"".join([kernels.hash_of_sources(), *map(bytes, made_of)])).hexdigest()[:16]
        self._rom, self._memory = (wp.array(given, dtype=wp.uint8, device=self.device) for given in (cartridge, memory))
        self._facts, self._timers, self._tables, self._script = map(
            ints, (facts, timers, tables, np.zeros(2 * SCRIPT_FRAMES, np.int32))
        )
        self._script[: len(script)].assign(script)
        self._trace = wp.zeros(len(code) if trace else 0, dtype=wp.uint8, device=self.device)
        zeros = functools.partial(wp.zeros, device=self.device)
        self._mask, self._actions = (zeros(num_envs, dtype=int) for _ in range(2))
        self._seeds = zeros(num_envs, dtype=wp.uint64)
        self._settings = ints(settings)
        self._answers = zeros((consoles, kernels.ANSWERS), dtype=int)
        self._screens = zeros((consoles, 3, self.game.rows, WIDTH), dtype=wp.uint8)
        self._state = zeros((1, 8), dtype=wp.uint8)
        compiled(self._kernel, lambda: self._launch_of(slice(0, 1))).launch()
        size, self._agent_at = map(int, self._answers.numpy()[0, :2])
        self._state = zeros((consoles, size), dtype=wp.uint8)
        self._answers.zero_()
        self._threads = ConsoleThreads(num_envs, 1 if self.device.is_cuda else threads)
        self._tensors = dict[str, Any]()
        self._is_closed, self._process = False, os.getpid()
        self._coloring = dict[tuple[int, int], Pictures]()  # made when they are first needed
        self._record_launches()

    @property
    def reward(self) -> np.ndarray:
        """Reward of the last step, ``(N,) int32``."""
        return self._outcome(kernels.REWARD)

    @property
    def terminated(self) -> np.ndarray:
        """Whether the game, or the agent's episode, has ended, ``(N,) bool``."""
        return np.asarray(self._outcome(kernels.TERMINATED) != 0)

    @property
    def truncated(self) -> np.ndarray:
        """Whether a time limit has ended the game, ``(N,) bool``."""
        return np.asarray(self._outcome(kernels.TRUNCATED) != 0)

    @property
    def lives(self) -> np.ndarray:
        """Lives left, ``(N,) int32``; 0 in a game without lives."""
        return self._outcome(kernels.LIVES)

    def ram(self) -> np.ndarray:
        """Memory of the consoles, ``(N, 128) uint8``; on a CPU a view, which may be written to."""
        return np.asarray(self._state.numpy()[: self.num_envs, :128])

    def screen(self) -> np.ndarray:
        """Newest pictures as colour numbers of the console, ``(N, rows, 160) uint8``; see :meth:`rgb`."""
        turns = self._field("turn")
        return np.asarray(self._screens.numpy()[np.arange(self.num_envs), turns])

    def rgb(self) -> np.ndarray:
        """Newest pictures, ``(N, rows, 160, 3) uint8``."""
        return self._colored(slice(0, self.num_envs))

    def render(self, env_index: int) -> np.ndarray:
        """Newest picture of one console, ``(rows, 160, 3) uint8``."""
        first = range(self.num_envs)[env_index]
        return np.asarray(self._colored(slice(first, first + 1))[0])

    def save_state(self) -> dict[str, np.ndarray]:
        """State of all games in progress, as NumPy arrays."""
        return {
            "game": np.array(self.game.label),
            "version": np.array(self._version),
            "consoles": self._state[: self.num_envs].numpy().copy(),
            "screens": self._screens[: self.num_envs].numpy().copy(),
            "answers": self._answers[: self.num_envs].numpy().copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the result of :meth:`save_state`, which may come from another device.

        Raises:
            EmulatorError: the state has another game, mode, number of consoles, ROM or preprocessing, or was saved by
                another version of the emulator or of the game's rules.
        """
        self._check_games(state)
        if str(state["version"]) != self._version or state["screens"].shape[1:] != self._screens.shape[1:]:
            raise EmulatorError(
                "state: has another ROM, preprocessing, version of the emulator or of the game's rules."
            )
        self._state[: self.num_envs].assign(state["consoles"])
        self._screens[: self.num_envs].assign(state["screens"])
        self._answers[: self.num_envs].assign(state["answers"])

    def _check_games(self, state: Mapping[str, np.ndarray]) -> None:
        if not isinstance(state, Mapping) or "consoles" not in state:
            raise EmulatorError(f"state={type(state).__name__}: must be a result of save_state().")
        if str(state["game"]) != self.game.label or len(state["consoles"]) != self.num_envs:
            saved = f"{len(state['consoles'])} consoles with {state['game']}"
            raise EmulatorError(f"state: has {saved}, and is loaded into {self.num_envs} with {self.game.label}.")

    def registers(self) -> dict[str, np.ndarray]:
        """Registers of the processors, cycles of the frame, and the game's frames, score, lives and end.

        Returns:
            ``(N,) int32`` by name.
        """
        numbers = self._numbers()
        return {name: np.array(numbers[:, k]) for k, name in enumerate(FIELDS) if name != "turn"}

    def wait_until_compiled(self) -> None:
        """Wait for the translation of the game's code, and play with it from now on.

        Raises:
            EmulatorError: the translation cannot be compiled.
        """
        if self._translation is not None:
            self._translation.wait()
            self._use_translation()

    def close(self) -> None:
        """End the threads. Later steps raise :class:`EmulatorError`."""
        self._is_closed = True
        self._threads.close()

    def __getstate__(self) -> Any:
        raise TypeError(f"{type(self).__name__}: cannot be copied or pickled. Make another one and use save_state().")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def trace(self) -> np.ndarray:
        """Executed bytes of the ROM, ``(bytes,) uint8``, see ``Console::trace``; empty without ``trace=True``."""
        return np.array(self._trace.numpy())

    def _outcome(self, column: int) -> np.ndarray:
        return np.array(self._answers.numpy()[: self.num_envs, column])

    def _field(self, name: str) -> np.ndarray:
        return np.array(self._numbers()[:, FIELDS.index(name)])

    def _numbers(self) -> np.ndarray:
        """``(N, fields) int32`` of :data:`FIELDS`; for one console on a CPU, a view that changes with it."""
        at = slice(MEMORY_BYTES, MEMORY_BYTES + 4 * len(FIELDS))
        # Slicing with Warp is slower than with NumPy, but copies less from a GPU.
        state = self._state[: self.num_envs]
        bytes_ = state.numpy()[:, at] if self.device.is_cpu else state[:, at].numpy()
        return np.ascontiguousarray(bytes_).view(np.int32)

    def _colored(self, consoles: slice) -> np.ndarray:
        key = consoles.start, consoles.stop
        if key not in self._coloring:
            state, screens = self._state[consoles], self._screens[consoles]
            self._coloring[key] = Pictures(state, screens, palette(self.game.pal))
        self._coloring[key].update()
        return np.array(self._coloring[key].array.numpy())

    def _bytes_per_env(self) -> int:
        return 3 * self.game.rows * WIDTH + STATE_BYTES

    def _load(self) -> None:
        """Insert the cartridge and start the game as ALE does: first at its default mode, then at the chosen one."""
        self._mask.fill_(1)
        self._run(kernels.LOAD)
        if self.game.mode is not None or self.game.difficulty is not None:
            self._run(kernels.START)

    def _start(self, mask: Any = None) -> None:
        if mask is None:
            self._mask.fill_(1)
        else:
            self._give("mask", self._mask, mask)
        self._run(kernels.START)

    def _play(self, actions: Any, frames: int, drawn: int) -> None:
        self._give("actions", self._actions, actions)
        self._run(kernels.PLAY, frames, drawn)

    def _give(self, name: str, to: Any, values: Any) -> None:
        """Copy an argument into the array that launches read."""
        if type(values).__module__ == "torch" and values.is_cuda:
            if name != "mask" and values.is_floating_point():
                raise EmulatorError(f"{name}: has dtype {values.dtype}, expected integers.")
            if str(values.dtype) != "torch.int32":
                if self.device.is_capturing:
                    raise EmulatorError(f"{name}: has dtype {values.dtype}, expected torch.int32 in a CUDA graph.")
                if name == "actions" and values.element_size() > 4:
                    values = values.clamp(-(2**31), 2**31 - 1)  # neither bound is an action
                values = (values != 0 if name == "mask" else values).int()
            self._tensors[name] = values.contiguous()  # kept alive until the next copy
            values = wp.from_torch(self._tensors[name])
        if isinstance(values, wp.array):
            if values.shape != to.shape or values.device != self.device or values.dtype != to.dtype:
                found = f"shape {values.shape} and dtype {values.dtype.__name__} on {values.device}"
                raise EmulatorError(
                    f"{name}: has {found}, expected {to.shape} and {to.dtype.__name__} on {self.device}."
                )
            wp.copy(to, values)
            return
        if self.device.is_capturing:
            raise EmulatorError(
                f"{name}: is on the host, where a CUDA graph cannot read it again. Pass an array on {self.device}."
            )
        given = np.asarray(values)
        if name == "mask":
            given = given != 0
        if given.shape != to.shape:
            raise EmulatorError(f"{name}: has shape {given.shape}, expected ({self.num_envs},).")
        if given.dtype.kind not in "iub":
            raise EmulatorError(f"{name}: has dtype {given.dtype}, expected integers.")
        if name == "actions" and given.dtype.itemsize > 4:
            given = np.clip(given, -(2**31), 2**31 - 1)  # neither bound is an action
        if self.device.is_cpu:
            to.numpy()[:] = given
        else:
            to.assign(given)

    def _launch_of(self, consoles: slice, pool: slice = NO_CONSOLES) -> Any:
        """Recorded launch for some consoles; its order and numbers of frames are set before each use."""
        count = consoles.stop - consoles.start
        rows = [consoles.start, count, pool.start, self.num_envs]
        game = [self._rom, self._trace, self._facts, self._tables, self._script]
        common = [self._timers, self._memory, self._settings]
        given = [self._seeds, self._mask, self._actions]
        inputs = [kernels.SIZE, *rows, self._state, self._screens, *game, *common, *given, 0, 0, self._answers]
        recorded = wp.launch(
            self._kernel, dim=count + pool.stop - pool.start, inputs=inputs, device=self.device, record_cmd=True,
            block_dim=self._block_size(),
        )  # fmt: skip
        return packed(recorded)

    def _record_launches(self) -> None:
        pool_parts = split_evenly(self.reset_pool, len(self._threads.parts), self.num_envs)
        self._launches = [self._launch_of(*each) for each in zip(self._threads.parts, pool_parts, strict=True)]
        self._given = dict[str, int]()

    def _use_translation(self) -> None:
        """Play with the translated code, if it is ready. Both kernels have the same state."""
        if self._translation is not None and self._translation.is_ready:
            self._kernel = self._translation.kernel
            self._translation = None
            self._record_launches()

    def _block_size(self) -> int:
        room = BLOCKS_PER_SM * self.device.sm_count if self.device.is_cuda else 0
        return next((size for size in BLOCK_SIZES if size * room >= self.num_envs + self.reset_pool), BLOCK_SIZES[-1])

    def _run(self, order: int, frames: int = 0, drawn: int = 0) -> None:
        if os.getpid() != self._process:
            raise EmulatorError(f"{type(self).__name__}: belongs to the parent process. Make one in this process.")
        if self._is_closed:
            raise EmulatorError(f"{type(self).__name__}: was closed. Make another one.")
        self._use_translation()
        given = {"order": order, "frames": frames, "drawn": drawn}
        if given != self._given:
            for launch, name in itertools.product(self._launches, given):
                launch.set_param_by_name(name, given[name])
            self._given = given

        def play(part: int) -> None:
            self._launches[part].launch()
            self._after_launch(order, part)

        self._threads.run(play)

    def _after_launch(self, order: int, part: int) -> None:
        """Hook for subclasses, called after the consoles of a part have been advanced."""


def checked_seeds(seeds: Any) -> Any:
    """Seeds as an array; raises :class:`EmulatorError` unless they are integers from 0 to 2**64 - 1."""
    if isinstance(seeds, wp.array):
        return seeds
    problem = f"seeds={seeds}: must be integers from 0 to 2**64 - 1, on the host."
    try:
        known = [isinstance(one, (int, np.integer)) and one >= 0 for one in np.asarray(seeds, object).flat]
        given = np.asarray(seeds, np.uint64)
    except (OverflowError, TypeError, ValueError) as error:
        raise EmulatorError(problem) from error
    if not all(known):
        raise EmulatorError(problem)
    return given


def has_cuda() -> bool:
    """Whether Warp can use a GPU here, which may differ from torch."""
    return bool(wp.is_cuda_available())


def _device(name: Any) -> Any:
    try:
        if str(name).startswith("cuda") and not has_cuda():  # Warp would print errors of its own
            raise ValueError("no CUDA device")
        return wp.get_device(str(name))
    except (ValueError, RuntimeError) as error:
        available = ", ".join(device.alias for device in wp.get_devices())
        raise EmulatorError(f"device={name}: not available. Choose one of {available}.") from error
