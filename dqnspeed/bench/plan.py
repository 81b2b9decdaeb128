"""What a suite measures: pieces, each a program that counts, and the choices of a training at equal work."""

from __future__ import annotations

import functools
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import hydra

from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.bench.measured_process import Program
from dqnspeed.cli.compose import as_meant, from_hydra, own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.preflight import check_run
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.backends import auto
from dqnspeed.envs.games import atari_game
from dqnspeed.exploration.base import Exploration
from dqnspeed.system import machine

STARTS = 500  # agent steps before the first update of trainings, whose warm-up is not measured
ALONE = (
    "tracking=local", "tracking.progress=off", "checkpoint=none", "stop.on=train", "stop.reward_bound=null",
    "stop.max_steps=null", "stop.max_minutes=null", "eval.every_steps=null",
)  # fmt: skip
BASELINE = "baseline"
FRAMES, PRODUCT, COPY = "raw frames of ALE", "matrix product", "memory copy"  # the names of floors


@dataclass(frozen=True)
class Bound:
    """What bounds a piece: the ``name`` of a floor, and how many of its units one of ``counted`` takes."""

    name: str
    counted: str
    each: float = 1.0


@dataclass(frozen=True)
class Made:
    """A piece, composed.

    Args:
        overrides: that make it of its reference; ``kinds``: of what they change, of
            :data:`dqnspeed.config.schema.KINDS`.
    """

    program: Program
    overrides: Sequence[str] = ()
    kinds: Sequence[str] = (changes.EXACT,)
    bound: Bound | None = None


@dataclass(frozen=True)
class Piece:
    """Something to measure.

    Args:
        counted: the name under which its program counts what ``unit`` names.
        make: composes it, or raises :class:`ConfigError` if it cannot be measured here.
        copies: processes that run at the same time, and whose speeds are added up.
    """

    group: str
    name: str
    unit: str
    counted: str
    make: Callable[[], Made]
    copies: int = 1


class Plan:
    """Composes what a suite measures.

    Every training does the learner's work of the reference, in updates of one size at one ratio of updates and steps,
    and explores as the reference does at last, when almost every action takes the network: what is compared is
    engineering.

    Args:
        overrides: of ``dqnspeed.train``, for everything that is measured.
        full: all choices, those that take long too.

    Attributes:
        reference: the baseline; ``spec``: its shapes.
        ratio: samples trained on for each agent step; ``starts``: agent steps before the first update.

    Raises:
        ConfigError: the reference cannot be trained here.
    """

    def __init__(self, overrides: Sequence[str], full: bool = False):
        self.overrides, self.full = list(overrides), full
        self._composed: dict[tuple[str, ...], tuple[RunConfig, EnvSpec]] = {}
        run = self._composed_of(self.overrides)
        if not run.has_replay:
            raise ConfigError(
                f"algo={run.algo.name}: has no replay, and the bench compares trainings that do the same updates for "
                f"the same steps; use algo=dqn."
            )
        algo, start = cast("Any", run.algo), getattr(typed(run.exploration, Exploration).settled(), "start", None)
        held = run.samples_per_step
        self.ratio = algo.batch_size / algo.steps_per_update if held is None else held
        needs = getattr(algo, "least_start", lambda _: 0)  # a plugin's may have none
        self.starts = max(STARTS, needs(run))
        self._work = [*_work_of(run), *self._held(run)]
        self._pinned = [*self._work, *([] if start is None else [f"exploration.start={start:g}"])]
        self.reference, self.spec = self.compose()
        self.starts = cast("Any", self.reference.algo).learning_starts  # the user's, if there is one

    def lines(self, *overrides: str) -> list[str]:
        """All overrides of a training at equal work; of one key the last counts."""
        every = [
            f"algo.learning_starts={self.starts}",
            *self.overrides,
            *self._pinned,
            *ALONE,
            *overrides,
        ]
        return list({line.partition("=")[0]: line for line in every}.values())

    def to_paste(self, *overrides: str) -> list[str]:
        """The user's overrides with ``overrides``, and with the work of the reference where they would change it."""
        run = self._composed_of([*self.overrides, *overrides])
        missing = [line for line in self._work if line not in _work_of(run)]
        return [*self.overrides, *overrides, *missing]

    def compose(self, *overrides: str) -> tuple[RunConfig, EnvSpec]:
        """A training at equal work, checked; raises :class:`ConfigError`."""
        lines = self.lines(*overrides)
        if tuple(lines) not in self._composed:
            run = self._composed_of(lines)
            self._composed[tuple(lines)] = run, check_run(run)
        return self._composed[tuple(lines)]

    def _composed_of(self, lines: list[str]) -> RunConfig:
        with own_hydra(), as_config_error(lines):
            return from_hydra(hydra.compose("config", overrides=as_meant(lines)))

    def _held(self, run: RunConfig) -> list[str]:
        """What holds actor processes to the ratio of steps and updates, if ``run`` has such that are free of it."""
        return [f"parallelism.samples_per_step={self.ratio:g}"] if run.samples_per_step is None else []

    @property
    def equal_work(self) -> str:
        """What every training does, as a sentence."""
        return f"All at {self.ratio:g} samples per step, in updates of {self.reference.algo.batch_size}."

    @property
    def is_atari(self) -> bool:
        return atari_game(self.reference.env) is not None

    @functools.cached_property
    def _backends(self) -> list[str]:
        """Overrides for the other backends that can play the reference, the slowest first."""
        playable = reversed(auto.playable(self.reference))
        return [f"backend={name}" for name in playable if name != self.reference.backend.name]

    @property
    def on_cpu(self) -> bool:
        return machine.pick_device(self.reference.device).type == "cpu"

    @property
    def on_cuda(self) -> bool:
        return machine.pick_device(self.reference.device).type == "cuda"

    def kinds(self, overrides: Sequence[str], beside: Sequence[str] = ()) -> list[str]:
        """The kinds of what ``overrides`` change of the reference with those ``beside``."""
        run, reference = self.compose(*beside, *overrides)[0], self.compose(*beside)[0]
        return changes.kinds([changes.EXACT], changes.differences(run, reference))

    def training(self, name: str, *overrides: str, group: str = "rungs") -> Piece:
        """A whole training at equal work, whose actor processes are held to the same ratio of steps and updates."""

        def make() -> Made:
            held = (*overrides, *self._held(self.compose(*overrides)[0]))
            run, spec = self.compose(*held)
            bound = Bound(_product(run), workloads.FLOP)
            return Made(_program(workloads.training, run, spec), held, self.kinds(held), bound)

        return Piece(group, name, f"{STEPS}/s", STEPS, make)

    def baseline(self) -> Piece:
        return self.training(BASELINE)

    def rung(self, *overrides: str) -> Piece:
        return self.training(" ".join(overrides), *overrides)

    def axes(self) -> dict[str, list[tuple[str, ...]]]:
        """The choices that are not the reference's own, by what they choose."""
        threads = [f"execution.threads={count}" for count in _powers_of_two_below(machine.cores())]
        compiled = ["execution=compiled"] if self.full and shutil.which("c++") else []
        if self.on_cuda:
            joined = ["execution=graph execution.compile=true"] if compiled else []
            low = "execution=graph execution.precision=bf16 execution.channels_last=true"
            compiled += ["execution=graph", *joined, low]
        axes = {
            "backend": self._backends,
            "execution": ["execution=lean", "execution.precision=bf16", "execution.channels_last=true", *compiled],
            "threads": threads if self.on_cpu else [],
            "num_envs": ["num_envs=4", "num_envs=8"] if self.full else ["num_envs=4"],
        }
        named = changes.keys_of(self.overrides)
        choices: dict[str, list[tuple[str, ...]]] = {
            name: [tuple(one.split()) for one in found if not changes.keys_of(one.split()) & named]
            for name, found in axes.items()
        }
        if "parallelism" not in named:
            choices["parallelism"] = [("parallelism=overlap",), ("parallelism=process",)]
        return choices

    def floors(self) -> Iterator[Piece]:
        """What this machine can do at most."""
        if self.is_atari:
            yield self._piece("floors", FRAMES, workloads.frames, workloads.FRAMES, copies=machine.cores())
        for precision in ("fp32", "bf16"):
            name, override = f"{PRODUCT} in {precision}", f"execution.precision={precision}"
            yield self._piece("floors", name, workloads.multiply, workloads.FLOP, beside=[override])
        yield self._piece("floors", COPY, workloads.copy, workloads.BYTES)

    def pieces(self) -> Iterator[tuple[Piece, Piece | None]]:
        """The parts of a training, each with its reference if it has one."""
        yield from self._envs()
        for name, piece, unit in (
            ("write", workloads.write, workloads.TRANSITIONS),
            ("sample 32", workloads.sample, workloads.BATCHES),
        ):
            made = self._piece("replay", name, piece, unit, bound=Bound(COPY, workloads.BYTES))
            yield made, None
        for size in (1, 8, 16):
            name = "1 game" if size == 1 else f"{size} games"
            bound = Bound(PRODUCT, workloads.FLOP)
            yield self._piece("acting", name, workloads.act, workloads.ACTIONS, size=size, bound=bound), None
        yield from self._updates()
        if not self.on_cpu:
            first = self._piece("transfer", "pinned", workloads.transfer, workloads.BATCHES)
            yield first, None
            yield (
                self._piece(
                    "transfer", "not pinned", workloads.transfer, workloads.BATCHES, "execution.pin_memory=false"
                ),
                first,
            )

    def _envs(self) -> Iterator[tuple[Piece, Piece | None]]:
        bound = Bound(FRAMES, STEPS, self.reference.wrappers.frame_skip) if self.is_atari else None

        def piece(name: str, *overrides: str) -> Piece:
            return self._piece("envs", name, workloads.envs, STEPS, *overrides, bound=bound)

        first = piece("as they are")
        yield first, None
        choices: list[tuple[str, ...]] = [("num_envs=4", "parallelism=overlap")]
        if self.is_atari:
            choices.append(("wrappers=tweaked",))
        for one in self._backends:
            choices += [(one,), (one, "num_envs=8")]
            if machine.cores() > 1:
                choices.append((one, "num_envs=8", "backend.threads=1"))
        for choice in choices:
            yield piece(" ".join(choice), *choice), first

    def _updates(self) -> Iterator[tuple[Piece, Piece | None]]:
        axes = self.axes()
        for size in (32, 128, 512):
            if size > self.reference.replay.buffer_size:
                continue
            first = self._update(f"batch {size}", size)
            yield first, None
            choices = [*axes.get("execution", []), *axes.get("threads", [])]
            graphs = [choice for choice in choices if "execution=graph" in choice]
            for choice in choices if size == 32 or self.full else graphs or choices[:1]:
                yield self._update(f"batch {size} {' '.join(choice)}", size, *choice), first

    def _update(self, name: str, size: int, *overrides: str) -> Piece:
        bound, batch = Bound(PRODUCT, workloads.FLOP), (f"algo.batch_size={size}",)
        return self._piece("update", name, workloads.update, UPDATES, *overrides, size=size, bound=bound, beside=batch)

    def _piece(
        self, group: str, name: str, piece: Callable[[workloads.Work, Counter], None], counted: str, *overrides: str,
        size: int = 32, bound: Bound | None = None, beside: Sequence[str] = (), copies: int = 1,
    ) -> Piece:  # fmt: skip
        def make() -> Made:
            run, spec = self.compose(*beside, *overrides)
            own = bound
            if own is not None and own.name == PRODUCT:
                own = Bound(_product(run), own.counted)
            return Made(_program(piece, run, spec, size), overrides, self.kinds(overrides, beside), own)

        return Piece(group, name, f"{counted}/s", counted, make, copies)


def _work_of(run: RunConfig) -> list[str]:
    algo: Any = run.algo  # one that learns from a replay
    return [f"algo.batch_size={algo.batch_size}", f"algo.steps_per_update={algo.steps_per_update}"]


def _product(run: RunConfig) -> str:
    return f"{PRODUCT} in {run.execution.precision}"


def _program(
    piece: Callable[[workloads.Work, Counter], None], run: RunConfig, spec: EnvSpec, size: int = 32
) -> Program:
    arguments = pickle.dumps(workloads.Work(piece, run, spec, size))
    return Program([sys.executable, "-m", "dqnspeed.bench.child"], arguments)


def _powers_of_two_below(limit: int) -> list[int]:
    return [1 << bit for bit in range(limit.bit_length()) if 1 << bit < limit]
