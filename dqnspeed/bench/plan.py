"""The pieces of a bench, and the overrides that give every training the same work."""

from __future__ import annotations

import functools
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.bench.measured_process import Program
from dqnspeed.bench.workloads import Workload
from dqnspeed.cli.compose import from_hydra, own_hydra
from dqnspeed.cli.errors import as_config_error
from dqnspeed.cli.preflight import check_run, compose_line
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.backends import auto
from dqnspeed.envs.games import atari_game
from dqnspeed.exploration.base import Exploration
from dqnspeed.system import machine

LEARNING_STARTS = 500  # agent steps before the first update, since the warm-up is not measured
# A measured training records little and never ends.
ENDLESS = (
    "tracking=local", "tracking.progress=off", "checkpoint=none", "stop.on=train", "stop.reward_bound=null",
    "stop.max_steps=null", "stop.max_minutes=null", "eval.every_steps=null",
)  # fmt: skip
START = "from dqnspeed.bench.workloads import main; main()"  # Python code of a measured process
TRAININGS, LIMITS = "trainings", "limits"  # groups of pieces
BASELINE = "baseline"
Function = Callable[[Workload, Counter], None]
# The group of each workload, and the work whose speed is measured.
WORKLOADS: dict[Function, tuple[str, str]] = {
    workloads.train: (TRAININGS, STEPS),
    workloads.step_envs: ("envs", STEPS),
    workloads.write_replay: ("replay", workloads.TRANSITIONS),
    workloads.sample_replay: ("replay", workloads.BATCHES),
    workloads.act: ("acting", workloads.ACTIONS),
    workloads.update: ("update", UPDATES),
    workloads.transfer_batches: ("transfer", workloads.BATCHES),
    workloads.play_ale: (LIMITS, workloads.FRAMES),
    workloads.multiply_matrices: (LIMITS, workloads.FLOP),
    workloads.copy_memory: (LIMITS, workloads.BYTES),
}


@dataclass(frozen=True)
class ComposedWorkload:
    """A piece, ready to start.

    Attributes:
        overrides: difference from the reference; ``kind``: their kind of change, of
            :data:`dqnspeed.config.schema.KINDS`.
    """

    program: Program
    overrides: Sequence[str] = ()
    kind: str = changes.EXACT


@dataclass(frozen=True)
class Piece:
    """A whole training or a part of one, to be measured.

    Attributes:
        counted: name of the work whose speed is measured.
        compose: prepares the piece; raises :class:`ConfigError` if it cannot be measured here.
        reference: the piece to compare with.
        copies: processes that run at the same time, whose speeds are added up.
    """

    group: str
    name: str
    counted: str
    compose: Callable[[], ComposedWorkload]
    reference: Piece | None = None
    copies: int = 1


class Plan:
    """Composes the pieces of a bench.

    Every training does the learner's work of the baseline: updates of one batch size at one ratio of updates and
    steps. Exploration is at its final value, when almost every action takes the network. So ratios compare engineering.

    Args:
        overrides: of ``dqnspeed.train``, for all pieces.
        full: include choices that take long.

    Attributes:
        reference: configuration of the baseline; ``spec``: its shapes; ``device``: its device.
        game: the Atari game, if the environment is one.
        samples_per_step: samples trained on per agent step.
        learning_starts: agent steps before the first update.

    Raises:
        ConfigError: the baseline cannot be trained here.
    """

    def __init__(self, overrides: Sequence[str], full: bool = False):
        self.overrides, self.full = list(overrides), full
        run, _ = _checked(tuple(self.overrides))
        if not run.has_replay:
            raise ConfigError(
                f"algo={run.algo.name}: has no replay, and the bench compares trainings with equal updates for equal "
                f"steps. Use algo=dqn."
            )
        algo, exploration = cast("Any", run.algo), typed(run.exploration, Exploration).settled()
        held = run.samples_per_step
        self.samples_per_step = algo.batch_size / algo.steps_per_update if held is None else held
        least_start = getattr(algo, "least_start", lambda _: 0)  # a plugin's algorithm may have none
        self.learning_starts = max(LEARNING_STARTS, least_start(run))
        self._work = [*_work_of(run), *self._fixed_ratio(run)]
        self._explored = [f"exploration.start={exploration.start:g}"] if hasattr(exploration, "start") else []
        self.reference, self.spec = self.compose()
        self.device = machine.pick_device(self.reference.device)
        self.learning_starts = cast("Any", self.reference.algo).learning_starts  # the user's number wins
        self.game = atari_game(self.reference.env)

    @property
    def equal_work(self) -> str:
        """A sentence on the work of every training."""
        return f"All at {self.samples_per_step:g} samples per step, in updates of {self.reference.algo.batch_size}."

    def equal_work_overrides(self, *overrides: str) -> list[str]:
        """All overrides of a training at equal work, of each key the last."""
        lines = [
            f"algo.learning_starts={self.learning_starts}", *self.overrides, *self._work, *self._explored, *ENDLESS,
            *overrides,
        ]  # fmt: skip
        return list({line.partition("=")[0]: line for line in lines}.values())

    def command_overrides(self, *overrides: str) -> list[str]:
        """The user's overrides and ``overrides``, with the work of the baseline where these would change it."""
        run, _ = _checked((*self.overrides, *overrides))
        return [*self.overrides, *overrides, *(line for line in self._work if line not in _work_of(run))]

    def compose(self, *overrides: str) -> tuple[RunConfig, EnvSpec]:
        """A checked training at equal work; raises :class:`ConfigError`."""
        return _checked(tuple(self.equal_work_overrides(*overrides)))

    def kinds(self, overrides: Sequence[str], shared: Sequence[str] = ()) -> list[str]:
        """Kinds of change by ``overrides``, the most severe last, of the baseline with the overrides ``shared``."""
        run, reference = self.compose(*shared, *overrides)[0], self.compose(*shared)[0]
        return changes.kinds([changes.EXACT], changes.differences(run, reference))

    @functools.cached_property
    def baseline(self) -> Piece:
        return self._piece(workloads.train, BASELINE)

    def training(self, *overrides: str, name: str = "", group: str = "") -> Piece:
        """A whole training at equal work, to be compared with the baseline."""
        piece = self._piece(workloads.train, name or " ".join(overrides), overrides, reference=self.baseline)
        return replace(piece, group=group or TRAININGS)

    def choices(self) -> dict[str, list[tuple[str, ...]]]:
        """Overrides to try, by what they choose, without the groups and keys that the user has set."""
        on_cuda, compiles = self.device.type == "cuda", self.full and shutil.which("c++")
        threads = [1 << bit for bit in range(machine.cores().bit_length()) if 1 << bit < machine.cores()]
        found = {
            "backend": self._backends,
            "execution": [
                "execution=lean", "execution.precision=bf16", "execution.channels_last=true",
                *(["execution=compiled"] if compiles else []),
                *(["execution=graph"] if on_cuda else []),
                *(["execution=graph execution.compile=true"] if compiles and on_cuda else []),
                *(["execution=graph execution.precision=bf16 execution.channels_last=true"] if on_cuda else []),
            ],
            "threads": [f"execution.threads={count}" for count in threads if self.device.type == "cpu"],
            "num_envs": ["num_envs=4", "num_envs=8"] if self.full else ["num_envs=4"],
            "parallelism": ["parallelism=overlap", "parallelism=process"],
        }  # fmt: skip
        named = changes.keys_of(self.overrides)
        return {
            name: [tuple(line.split()) for line in lines if not changes.keys_of(line.split()) & named]
            for name, lines in found.items()
        }

    def limits(self) -> Iterator[Piece]:
        """Pieces that measure the machine without code of a training."""
        if self.game:
            yield replace(self._piece(workloads.play_ale, "raw frames of ALE"), copies=machine.cores())
        for precision in ("fp32", "bf16"):
            shared = [f"execution.precision={precision}"]
            yield self._piece(workloads.multiply_matrices, f"matrix product in {precision}", shared=shared)
        yield self._piece(workloads.copy_memory, "memory copy")

    def parts(self) -> Iterator[Piece]:
        """The parts of a training, with their references."""
        yield from self._envs()
        yield self._piece(workloads.write_replay, "write")
        yield self._piece(workloads.sample_replay, "sample 32")
        for size in (1, 8, 16):
            yield self._piece(workloads.act, f"batch {size}", size=size)
        yield from self._updates()
        if self.device.type != "cpu":
            pinned = self._piece(workloads.transfer_batches, "pinned")
            pageable = ["execution.pin_memory=false"]
            yield pinned
            yield self._piece(workloads.transfer_batches, "not pinned", pageable, reference=pinned)

    def _envs(self) -> Iterator[Piece]:
        reference = self._piece(workloads.step_envs, "as they are")
        yield reference
        tried = ["num_envs=4 parallelism=overlap", *(["wrappers=tweaked"] if self.game else [])]
        for backend in self._backends:
            tried += [backend, f"{backend} num_envs=8"]
            if machine.cores() > 1:
                tried.append(f"{backend} num_envs=8 backend.threads=1")
        for overrides in tried:
            yield self._piece(workloads.step_envs, overrides, overrides.split(), reference=reference)

    def _updates(self) -> Iterator[Piece]:
        choices = self.choices()
        tried = [*choices["execution"], *choices["threads"]]
        graphs = [overrides for overrides in tried if "execution=graph" in overrides]
        for size in (32, 128, 512):
            if size > self.reference.replay.buffer_size:
                continue
            name, shared = f"batch {size}", [f"algo.batch_size={size}"]
            reference = self._piece(workloads.update, name, size=size, shared=shared)
            yield reference
            for overrides in tried if size == 32 or self.full else graphs or tried[:1]:
                changed = f"{name} {' '.join(overrides)}"
                yield self._piece(workloads.update, changed, overrides, size, shared, reference)

    @functools.cached_property
    def _backends(self) -> list[str]:
        """Overrides for the other backends that can play the baseline, the slowest first."""
        playable = reversed(auto.playable(self.reference))
        return [f"backend={name}" for name in playable if name != self.reference.backend.name]

    def _piece(
        self, function: Function, name: str, overrides: Sequence[str] = (), size: int = 32,
        shared: Sequence[str] = (), reference: Piece | None = None,
    ) -> Piece:  # fmt: skip
        group, counted = WORKLOADS[function]

        def compose() -> ComposedWorkload:
            changed = [*overrides, *self._fixed_ratio(self.compose(*shared, *overrides)[0])]
            run, spec = self.compose(*shared, *changed)
            program = Program([sys.executable, "-c", START], pickle.dumps(Workload(function, run, spec, size)))
            return ComposedWorkload(program, changed, self.kinds(changed, shared)[-1])

        return Piece(group, name, counted, compose, reference)

    def _fixed_ratio(self, run: RunConfig) -> list[str]:
        """The override that fixes the ratio of updates and steps, for actor processes that leave it free."""
        return [f"parallelism.samples_per_step={self.samples_per_step:g}"] if run.samples_per_step is None else []


@functools.cache
def _checked(overrides: tuple[str, ...]) -> tuple[RunConfig, EnvSpec]:
    with own_hydra(), as_config_error(overrides):
        run = from_hydra(compose_line(overrides))
    return run, check_run(run)


def _work_of(run: RunConfig) -> list[str]:
    algo: Any = run.algo  # has a replay
    return [f"algo.batch_size={algo.batch_size}", f"algo.steps_per_update={algo.steps_per_update}"]
