"""Many consoles that play one game."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.colors import palette
from atari_warp.compiling import compiled
from atari_warp.games import ACTIONS, EmulatorError, Game, find, rom_of
from atari_warp.memory import check_memory
from atari_warp.power_on import memory_at_first, timers
from atari_warp.spares import spares_of
from atari_warp.threads import Threads, shares
from atari_warp.translation import NONE, translated

WIDTH = 160
# Consoles in a block of a GPU, which does different things for them one after another: as few as there is room for. A
# multiprocessor has registers for so many BLOCKS at once, by its compiler for an H100.
SIZES, BLOCKS = (4, 8, 16, 32), 12
CONSOLE = 1024  # bytes of a console, about
NOBODY = slice(0, 0)
MEMORY = 256  # bytes of a console, the cartridge's among them, with which its state begins
# Consoles that are watched, for how many steps of how many frames; as often at most, while that brings so much more
# code to light, and no longer once so many instructions are known: all 4,462 of Solaris are slower, by 15%, than the
# 3,731 of its first round.
TRACED, TRACED_STEPS, TRACED_SKIP = 8, 300, 4
TRACED_ROUNDS, GROWTH, LARGE = 6, 1.02, 3000
FIELDS = ("turn", "frames", "score", "lives", "over", "cycles", "pc", "a", "x", "y", "s")  # integers that follow


class Emulator:
    """``num_envs`` Atari 2600 consoles with one game, frame by frame equal to ALE's.

    :meth:`ram` and the attributes are Warp arrays on ``device``, which :func:`warp.to_torch` shares with torch without
    a copy; the next step writes into them. All else is given as NumPy's arrays, for which the host waits for the
    device.

    Attributes:
        outcomes: ``(N, 4) int32``: points of the last step, end and truncation (0 or 1), and the lives that are left.
        reward, terminated, truncated, lives: the same, ``(N,) int32`` each. A game that has ended stands still.
        screens: ``(N, 3, rows, 160) uint8``, the two pictures that frames are drawn to in turn, and one that is kept
            at times; :meth:`screen` gives the newest ones.

    Args:
        game: a name of ALE's, as ``space_invaders``; ``find("breakout").at(mode=4)`` is one at another mode.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` (CUDA has not been run yet), or torch's or Warp's of such a name.
        rom: of another file than ale-py's.
        threads: that play, on a CPU; each has its share of the consoles.
        stages: of a preprocessing; see :class:`atari_warp.Games`.
        translate: the game's code is compiled first, which takes a while, once: frames then take less time on a CPU.
        spares: more consoles, without players; see :class:`atari_warp.Games`.

    Raises:
        EmulatorError: no such game or device, a cartridge that is not supported, too little memory, or Warp cannot
            compile it.
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int = 1,
        device: str = "cpu",
        rom: Path | None = None,
        threads: int = 1,
        stages: Sequence[int] = (0,),
        translate: bool = False,
        spares: int | None = 0,
    ):
        self.game = find(game) if isinstance(game, str) else game
        for name, count in (("num_envs", num_envs), ("threads", threads)):
            if not isinstance(count, (int, np.integer)) or count < 1:
                raise EmulatorError(f"{name}={count}: takes a whole number, at least 1.")
        num_envs, threads = int(num_envs), int(threads)  # NumPy's would overflow
        self.num_envs, self.device = num_envs, _device(device)
        if spares is not None and not (isinstance(spares, (int, np.integer)) and spares >= 0):
            raise EmulatorError(f"spares={spares}: takes a whole number, at least 0.")
        self.spares = spares_of(spares, num_envs, self.device.is_cuda)
        consoles = num_envs + self.spares
        check_memory(num_envs, num_envs * self._bytes_each() + self.spares * Emulator._bytes_each(self), self.device)
        ints = functools.partial(wp.array, dtype=int, device=self.device)
        code = rom_of(self.game, rom)
        self._kernel = kernels.run_with(
            _translation(self.game, rom, code) if translate and self.device.is_cpu else NONE
        )
        cartridge, memory, tables = np.frombuffer(code, np.uint8), memory_at_first(), self.game.rules.tables()
        facts, script, at_starts = (
            np.array(numbers, np.int32).reshape(-1) for numbers in (self.game.facts, self.game.script, timers())
        )
        made_of = (cartridge, memory, tables, facts, script, at_starts)
        self._version = hashlib.sha256(b"".join([kernels.hash_of_sources(), *map(bytes, made_of)])).hexdigest()[:16]
        self._rom, self._memory = (wp.array(given, dtype=wp.uint8, device=self.device) for given in (cartridge, memory))
        self._facts, self._script, self._timers, self._tables = map(ints, (facts, script, at_starts, tables))
        self._trace = wp.zeros(self._traced(code), dtype=wp.uint8, device=self.device)
        zeros = functools.partial(wp.zeros, device=self.device)
        self._mask, self._actions = (zeros(num_envs, dtype=int) for _ in range(2))
        self._seeds = zeros(num_envs, dtype=wp.uint64)
        self._stages = ints(stages)
        self._answers = zeros((consoles, kernels.ANSWERS), dtype=int)
        self._screens = zeros((consoles, 3, self.game.rows, WIDTH), dtype=wp.uint8)
        self._state = zeros((1, 8), dtype=wp.uint8)
        compiled(self._kernel, lambda: self._prepared(slice(0, 1))).launch()
        self._state = zeros((consoles, int(self._answers.numpy()[0, 0])), dtype=wp.uint8)
        self._answers.zero_()
        self.screens = self._screens[:num_envs]
        self.outcomes = self._answers[:num_envs, : kernels.REWARD]
        self.reward, self.terminated, self.truncated, self.lives = (
            self._answers[:num_envs, column]
            for column in (kernels.REWARD, kernels.TERMINATED, kernels.TRUNCATED, kernels.LIVES)
        )
        self._threads = Threads(num_envs, 1 if self.device.is_cuda else threads)
        spare_parts = shares(self.spares, len(self._threads.parts), num_envs)
        self._launches = [self._prepared(*each) for each in zip(self._threads.parts, spare_parts, strict=True)]
        self._given, self._tensors = dict[str, int](), dict[str, Any]()
        self._load()

    def reset(self, mask: Any = None) -> None:
        """Start the game anew, on all consoles or where ``mask`` ``(N,)`` is not 0, as ``terminated`` is; of its types
        see :meth:`step`."""
        if mask is None:
            self._mask.fill_(1)
        else:
            self._give("mask", self._mask, mask)
        self._run(kernels.START)

    def step(self, actions: Any, frames: int = 1, seen: int = 1) -> None:
        """Play ``frames`` frames, of which the last ``seen`` are drawn; a game that is over stands still.

        Args:
            actions: ``(N,)`` of ALE's numbers, as a Warp array of ``int32`` or a tensor of torch's usual stream, on the
                device, or anything like an array; what is no action is NOOP.

        Raises:
            EmulatorError: an argument cannot be used.
        """
        whole = all(isinstance(number, (int, np.integer)) for number in (frames, seen))
        if not whole or not 0 <= seen <= frames or not 0 < frames < 2**31:
            raise EmulatorError(
                f"frames={frames}, seen={seen}: whole numbers, and of at least one frame as many are seen, or fewer."
            )
        self._give("actions", self._actions, actions)
        self._run(kernels.PLAY, frames, seen)

    def ram(self) -> Any:
        """The consoles' memory, ``(N, 128) uint8``."""
        return self._state[: self.num_envs, :128]

    def screen(self) -> np.ndarray:
        """The newest pictures as colours of the console, ``(N, rows, 160) uint8``; see :func:`rgb`."""
        turns = self._field("turn")
        return np.asarray(self.screens.numpy()[np.arange(self.num_envs), turns])

    def rgb(self) -> np.ndarray:
        """The newest pictures, ``(N, rows, 160, 3) uint8``."""
        return np.asarray(palette(self.game.pal)[self.screen()])

    def picture(self, console: int) -> np.ndarray:
        """The newest picture of one console, ``(rows, 160, 3) uint8``."""
        newest = self.screens[int(console)].numpy()[self._field("turn")[console]]
        return np.asarray(palette(self.game.pal)[newest])

    def save_state(self) -> dict[str, np.ndarray]:
        """All that the games in progress are."""
        return {
            "game": np.array(self.game.label),
            "version": np.array(self._version),
            "consoles": self._state[: self.num_envs].numpy().copy(),
            "screens": self.screens.numpy().copy(),
            "answers": self._answers[: self.num_envs].numpy().copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a :meth:`save_state`, also of another device.

        Raises:
            EmulatorError: it is of another game or mode of it, of more or fewer consoles, of another ROM or
                preprocessing, or of another version of the emulator or of the game's rules.
        """
        if str(state["game"]) != self.game.label or len(state["consoles"]) != self.num_envs:
            there = f"{len(state['consoles'])} consoles with {state['game']}"
            raise EmulatorError(f"state: is of {there}, and these are {self.num_envs} with {self.game.label}.")
        if str(state["version"]) != self._version or state["screens"].shape != self.screens.shape:
            raise EmulatorError(
                "state: is of another ROM or preprocessing, or another version of the emulator or the game's rules."
            )
        self._state[: self.num_envs].assign(state["consoles"])
        self.screens.assign(state["screens"])
        self._answers[: self.num_envs].assign(state["answers"])

    def registers(self) -> dict[str, np.ndarray]:
        """The processors' registers, cycles of the frame, and of the game frames, score, lives and end, ``(N,) int32``
        each."""
        numbers = self._numbers()
        return {name: np.array(numbers[:, k]) for k, name in enumerate(FIELDS) if name != "turn"}

    def close(self) -> None:
        """End the threads; one plays what is played later."""
        self._threads.close()

    def _field(self, name: str) -> np.ndarray:
        return np.array(self._numbers()[:, FIELDS.index(name)])

    def _numbers(self) -> np.ndarray:
        """``(N, fields) int32``, of :data:`FIELDS`; of one console on a CPU they change with it."""
        at = slice(MEMORY, MEMORY + 4 * len(FIELDS))
        # A slice by Warp takes longer than one by NumPy, but spares a copy of all consoles from a GPU.
        state = self._state[: self.num_envs]
        bytes_ = state.numpy()[:, at] if self.device.is_cpu else state[:, at].numpy()
        return np.ascontiguousarray(bytes_).view(np.int32)

    def _bytes_each(self) -> int:
        return 3 * self.game.rows * WIDTH + CONSOLE

    def _load(self) -> None:
        self._mask.fill_(1)
        self._run(kernels.LOAD)  # with the game's usual start, as ALE does
        if self.game.mode is not None or self.game.difficulty is not None:
            self._run(kernels.START)

    def _give(self, name: str, to: Any, values: Any) -> None:
        """Copy an argument to where launches read it."""
        if type(values).__module__ == "torch" and values.is_cuda:
            if name != "mask" and values.is_floating_point():
                raise EmulatorError(f"{name}: is of {values.dtype}, and takes whole numbers.")
            if str(values.dtype) != "torch.int32":
                if self.device.is_capturing:
                    raise EmulatorError(f"{name}: is of {values.dtype}; a graph takes torch.int32.")
                if name == "actions" and values.element_size() > 4:
                    values = values.clamp(-(2**31), 2**31 - 1)  # neither is an action
                values = (values != 0 if name == "mask" else values).int()
            self._tensors[name] = values.contiguous()  # until the next is copied
            values = wp.from_torch(self._tensors[name])
        if isinstance(values, wp.array):
            if values.shape != to.shape or values.device != self.device or values.dtype != to.dtype:
                there = f"of shape {values.shape} on {values.device} of {values.dtype.__name__}"
                wanted = f"{to.shape} on {self.device} of {to.dtype.__name__}"
                raise EmulatorError(f"{name}: an array {there}, and takes {wanted}.")
            wp.copy(to, values)
            return
        if self.device.is_capturing:
            raise EmulatorError(
                f"{name}: is on the host, where a graph cannot read it again; give it on {self.device}."
            )
        given = np.asarray(values)
        if name == "mask":
            given = given != 0
        if given.shape != to.shape:
            raise EmulatorError(f"{name}: has the shape {given.shape}, and takes ({self.num_envs},).")
        if given.dtype.kind not in "iub":
            raise EmulatorError(f"{name}: is of {given.dtype}, and takes whole numbers.")
        if name == "actions" and given.dtype.itemsize > 4:
            given = np.clip(given, -(2**31), 2**31 - 1)  # neither is an action
        if self.device.is_cpu:
            to.numpy()[:] = given
        else:
            to.assign(given)

    def _prepared(self, these: slice, spares: slice = NOBODY) -> Any:
        """The launch for these consoles, whose order, number of frames and of those that are seen follow."""
        count = these.stop - these.start
        rows = [these.start, count, spares.start, self.num_envs]
        game = [self._rom, self._trace, self._facts, self._tables, self._script]
        common = [self._timers, self._memory, self._stages]
        given = [self._seeds, self._mask, self._actions]
        inputs = [kernels.SIZE, *rows, self._state, self._screens, *game, *common, *given, 0, 0, self._answers]
        return wp.launch(
            self._kernel, dim=count + spares.stop - spares.start, inputs=inputs, device=self.device, record_cmd=True,
            block_dim=self._block(),
        )  # fmt: skip

    def _block(self) -> int:
        room = BLOCKS * self.device.sm_count if self.device.is_cuda else 0
        return next((size for size in SIZES if size * room >= self.num_envs + self.spares), SIZES[-1])

    def _run(self, order: int, frames: int = 0, seen: int = 0) -> None:
        given = {"order": order, "frames": frames, "seen": seen}
        if given != self._given:
            for launch, name in itertools.product(self._launches, given):
                launch.set_param_by_name(name, given[name])
            self._given = given

        def play(part: int) -> None:
            self._launches[part].launch()
            self._after(order, part)

        self._threads.run(play)

    def _traced(self, code: bytes) -> int:
        """Bytes of the ROM of which it is written down whether they are instructions."""
        return 0

    def _after(self, order: int, part: int) -> None:
        """What else is done with the consoles of a part."""


class _Traced(Emulator):
    """One that writes down which instructions are executed."""

    def _traced(self, code: bytes) -> int:
        return len(code)

    def trace(self) -> np.ndarray:
        return np.array(self._trace.numpy())


@functools.cache
def _translation(game: Game, rom: Path | None, code: bytes) -> str:
    """Of what is executed while players press anything; ``code``: what is in ``rom``."""
    draws = np.random.default_rng(0)
    traced = _Traced(game, TRACED, rom=rom)
    known, seen = 0, 1
    for _ in range(TRACED_ROUNDS):
        if seen <= GROWTH * known or seen > LARGE:
            break
        for _ in range(TRACED_STEPS):
            traced.step(draws.integers(len(ACTIONS), size=TRACED), TRACED_SKIP, 0)
            if traced.terminated.numpy().any():
                traced.reset(traced.terminated)
        known, seen = seen, int(np.count_nonzero(traced.trace()))
    return translated(game, code, traced.trace())


def has_cuda() -> bool:
    """Whether Warp can use a GPU here, which may not be so where torch can."""
    return bool(wp.is_cuda_available())


def _device(name: Any) -> Any:
    try:
        return wp.get_device(str(name))
    except (ValueError, RuntimeError) as error:
        there = ", ".join(device.alias for device in wp.get_devices())
        raise EmulatorError(f"device={name}: is not here; there is {there}.") from error
