"""What a suite measures: pieces, each a program that counts, and the choices of a training at equal work."""

from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import hydra
import PIL

from dqnspeed.bench import work
from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.subject import Program
from dqnspeed.cli.compose import from_hydra, own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.preflight import check_run
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.games import atari_game
from dqnspeed.system import machine

# The work of the learner that every training does: what is compared is engineering.
WORK = ("algo.batch_size=32", "algo.steps_per_update=4", "algo.learning_starts=500")
ALONE = (
    "tracking=local", "tracking.progress=off", "checkpoint=none", "stop.on=train", "stop.reward_bound=null",
    "stop.max_steps=null", "stop.max_minutes=null", "eval.every_steps=null",
)  # fmt: skip
LADDER = ("no_torch_no_grad", "n_envs", "process", "tweaked_n_envs", "tweaked_process", "chapter6_dqn")
BASELINE = "baseline"
FRAMES, PRODUCT, COPY = "raw frames of ALE", "matrix product", "memory copy"  # the names of floors


@dataclass(frozen=True)
class Bound:
    """What bounds a piece: the ``name`` of a floor, and how many of its units one of ``counted`` takes."""

    name: str
    counted: str
    each: float = 1.0


@dataclass(frozen=True)
class Piece:
    """Something to measure.

    Args:
        counted: the name under which the program counts what ``unit`` names.
        program: ``None`` where ``error`` says why there is none.
        kinds: of the changes that ``overrides`` make of the reference, of :data:`dqnspeed.config.schema.KINDS`.
        copies: processes that run at the same time, and whose speeds are added up.
    """

    group: str
    name: str
    unit: str
    counted: str
    program: Program | None
    overrides: Sequence[str] = ()
    kinds: Sequence[str] = (changes.EXACT,)
    bound: Bound | None = None
    copies: int = 1
    version: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Plan:
    """Composes what a suite measures.

    Args:
        overrides: of ``dqnspeed.train``, for everything that is measured.
    """

    overrides: Sequence[str]
    seed: int
    full: bool = False
    reference: RunConfig = field(init=False)
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        """Compose and check the reference.

        Raises:
            ConfigError: it cannot be trained here.
        """
        with own_hydra(), as_config_error(self.overrides):
            run = from_hydra(hydra.compose("config", overrides=list(self.overrides)))
        if not run.has_replay:
            raise ConfigError(f"algo={run.algo.name}: the bench holds updates and steps at one ratio, for which an "
                              "algorithm with a replay is needed; use algo=dqn.")  # fmt: skip
        run, spec = self.compose()
        object.__setattr__(self, "reference", run)
        object.__setattr__(self, "spec", spec)

    def lines(self, *overrides: str) -> list[str]:
        """All overrides of a training at equal work; of one key the last counts, and those of the user before ours."""
        named = changes.keys_of(self.overrides)
        ours = [line for line in WORK if not changes.keys_of([line]) & named]
        every = [*self.overrides, *ours, f"seed={self.seed}", *ALONE, *overrides]
        return list({line.partition("=")[0]: line for line in every}.values())

    def compose(self, *overrides: str) -> tuple[RunConfig, EnvSpec]:
        """A training at equal work, checked; raises :class:`ConfigError`."""
        lines = self.lines(*overrides)
        with own_hydra(), as_config_error(lines):
            run = from_hydra(hydra.compose("config", overrides=lines))
            return run, check_run(run)

    @property
    def is_atari(self) -> bool:
        return atari_game(self.reference.env) is not None

    def training(self, name: str, *overrides: str, group: str = "rungs") -> Piece:
        """A whole training at equal work, whose actor processes are held to the same ratio of steps and updates."""
        try:
            run, spec = self.compose(*overrides)
            if run.replay_ratio is None:
                overrides = (*overrides, f"parallelism.replay_ratio={self.reference.replay_ratio:g}")
                run, spec = self.compose(*overrides)
        except ConfigError as error:
            return Piece(group, name, "agent steps/s", STEPS, None, overrides, error=str(error).rstrip("."))
        return Piece(
            group, name, "agent steps/s", STEPS, _program("training", run, spec), overrides,
            changes.kinds([changes.EXACT], changes.differences(run, self.reference)),
            Bound(_product(run), work.FLOP),
        )  # fmt: skip

    def baseline(self) -> Piece:
        return self.training(BASELINE)

    def rung(self, *overrides: str) -> Piece:
        return self.training(" ".join(overrides), *overrides)

    def axes(self) -> dict[str, list[tuple[str, ...]]]:
        """The choices that are not the reference's own, by what they choose."""
        threads = [f"execution.threads={count}" for count in _powers_of_two(machine.cores())]
        compiled = ["execution=compiled"] if self.full and shutil.which("c++") else []
        axes = {
            "wrappers": ["wrappers=native"] if self.is_atari else [],
            "execution": ["execution=lean", "execution.precision=bf16", "execution.channels_last=true", *compiled],
            "threads": threads if len(threads) > 1 and self.on_cpu else [],
            "num_envs": ["num_envs=4", "num_envs=8"] if self.full else ["num_envs=4"],
        }
        named = changes.keys_of(self.overrides)
        own = {"threads": "execution.threads"}
        choices: dict[str, list[tuple[str, ...]]] = {
            name: [(one,) for one in found] for name, found in axes.items() if own.get(name, name) not in named
        }
        if "parallelism" not in named:
            ratio = f"parallelism.replay_ratio={self.reference.replay_ratio:g}"
            choices["parallelism"] = [("parallelism=overlap",), ("parallelism=process", ratio)]
        return choices

    @property
    def on_cpu(self) -> bool:
        return machine.pick_device(self.reference.device).type == "cpu"

    def ladder(self) -> list[Piece]:
        """The rungs of the ladder at equal work."""
        if not self.is_atari or {"experiment", "wrappers"} & changes.keys_of(self.overrides):
            return []
        return [self.rung(f"experiment={name}") for name in LADDER]

    def floors(self) -> Iterator[Piece]:
        """What this machine can do at most."""
        run, spec, cores = self.reference, self.spec, machine.cores()
        if self.is_atari:
            frames = _program("frames", run, spec)
            yield Piece("floors", FRAMES, "frames/s", work.FRAMES, frames, copies=cores)
        for precision in ("fp32", "bf16"):
            made = self.compose(f"execution.precision={precision}")
            yield Piece("floors", f"{PRODUCT} in {precision}", "FLOP/s", work.FLOP, _program("multiply", *made))
        yield Piece("floors", COPY, "bytes/s", work.BYTES, _program("copy", run, spec))

    def pieces(self) -> Iterator[tuple[Piece, Piece | None]]:
        """The parts of a training, each with its reference if it has one."""
        yield from self._envs()
        if self.is_atari and self.reference.wrappers.resize and self.reference.wrappers.backend == "gymnasium":
            yield from self._resizers()
        for name, piece, unit in (("write", "write", work.TRANSITIONS), ("sample 32", "sample", work.BATCHES)):
            made = self._piece("replay", name, piece, unit, bound=Bound(COPY, work.BYTES))
            yield made, None
        for size in (1, 8, 16):
            name = "1 game" if size == 1 else f"{size} games"
            bound = Bound(_product(self.reference), work.FLOP)
            yield self._piece("acting", name, "act", work.ACTIONS, size=size, bound=bound), None
        yield from self._updates()
        if not self.on_cpu:
            first = self._piece("transfer", "pinned", "transfer", work.BATCHES)
            yield first, None
            yield self._piece("transfer", "not pinned", "transfer", work.BATCHES, "execution.pin_memory=false"), first

    def _envs(self) -> Iterator[tuple[Piece, Piece | None]]:
        bound = Bound(FRAMES, STEPS, self.reference.wrappers.frame_skip) if self.is_atari else None

        def piece(name: str, *overrides: str) -> Piece:
            return self._piece("envs", name, "envs", STEPS, *overrides, bound=bound)

        first = piece("as they are")
        yield first, None
        choices: list[tuple[str, ...]] = [("num_envs=4", "parallelism=overlap")]
        if self.is_atari:
            choices += [("wrappers=tweaked",), ("wrappers=native",), ("wrappers=native", "num_envs=8")]
            if machine.cores() > 1:
                choices.append(("wrappers=native", "num_envs=8", "parallelism.env_threads=1"))
        for choice in choices:
            yield piece(" ".join(choice), *choice), first

    def _resizers(self) -> Iterator[tuple[Piece, Piece | None]]:
        pillow = "Pillow-SIMD" if ".post" in PIL.__version__ else "Pillow"
        first = self._piece("resize", "cv2, area", "resize", work.IMAGES)
        yield first, None
        for name, filtered in (("area", "area"), ("bicubic", "bicubic")):
            overrides = ("wrappers.resizer=pillow", f"wrappers.interpolation={filtered}")
            yield self._piece("resize", f"{pillow}, {name}", "resize", work.IMAGES, *overrides), first

    def _updates(self) -> Iterator[tuple[Piece, Piece | None]]:
        axes = self.axes()
        for size in (32, 128, 512):
            batch = f"algo.batch_size={size}"
            capacity = self.reference.replay.capacity
            if size > capacity:
                continue
            first = self._update(f"{size}", size, batch)
            yield first, None
            choices = [*axes.get("execution", []), *axes.get("threads", [])]
            for choice in choices if size == 32 or self.full else [("execution=lean",)]:
                yield self._update(f"{size} {' '.join(choice)}", size, batch, *choice), first

    def _update(self, name: str, size: int, *overrides: str) -> Piece:
        return self._piece("update", name, "update", UPDATES, *overrides, size=size, bound=Bound(PRODUCT, work.FLOP))

    def _piece(
        self, group: str, name: str, piece: str, counted: str, *overrides: str, size: int = 32,
        bound: Bound | None = None,
    ) -> Piece:  # fmt: skip
        unit = f"{counted}/s"
        try:
            run, spec = self.compose(*overrides)
        except ConfigError as error:
            return Piece(group, name, unit, counted, None, overrides, error=str(error).rstrip("."))
        if bound is not None and bound.name == PRODUCT:
            bound = Bound(_product(run), bound.counted)
        kinds = changes.kinds([changes.EXACT], changes.differences(run, self.reference))
        return Piece(group, name, unit, counted, _program(piece, run, spec, size), overrides, kinds, bound)


def _product(run: RunConfig) -> str:
    return f"{PRODUCT} in {run.execution.precision}"


def _program(piece: str, run: RunConfig, spec: EnvSpec, size: int = 32) -> Program:
    arguments = pickle.dumps(work.Work(piece, run, spec, size))
    return Program([sys.executable, "-m", "dqnspeed.bench.child"], arguments)


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... and ``most``."""
    return sorted({most, *(1 << bit for bit in range(most.bit_length()) if 1 << bit <= most)})
