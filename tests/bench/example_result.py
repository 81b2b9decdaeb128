"""An example result with invented figures."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from dqnspeed.bench.result import Interval, Measurement, Recommendation, Result
from dqnspeed.bench.session import with_pairs
from dqnspeed.config.changes import EQUIVALENT, EXACT

REPEATS, NOISE = 12, 0.02
BEST = ["backend=ale", "parallelism=overlap", "execution=lean"]
STEPS, UPDATES = "agent steps/s", "updates/s"

# Name, speed, reference and kind of trainings; the name holds the overrides.
TRAININGS = (
    ("baseline", 93.0, None, EXACT),
    ("backend=ale", 101.0, 93.0, EQUIVALENT),
    ("execution=lean", 121.0, 93.0, EQUIVALENT),
    ("backend=ale execution=lean", 139.0, 93.0, EQUIVALENT),
    (" ".join(BEST), 158.0, 93.0, EQUIVALENT),
    ("execution.channels_last=true", 93.0, 93.0, EQUIVALENT),
)
PIECES = (
    ("envs", "as they are", STEPS, 640.0, None),
    ("envs", "backend=ale", STEPS, 3300.0, 640.0),
    ("replay", "write", "transitions/s", 410_000.0, None),
    ("acting", "batch 16", "observations/s", 2_900.0, None),
    ("update", "32", UPDATES, 44.0, None),
    ("update", "32 execution.precision=bf16", UPDATES, 71.0, 44.0),
    ("limits", "matrix product in fp32", "FLOP/s", 2.5e11, None),
)


def measured(row: Measurement, speed: float, reference: float | None) -> Measurement:
    """``row`` with pairs around these speeds; neighbours share most of the noise."""
    random = np.random.default_rng([0, *row.name.encode()])
    shared = random.normal(1, NOISE, REPEATS)
    values, references = (shared * random.normal(1, NOISE / 4, REPEATS) for _ in range(2))
    pairs = zip(references * (reference or 0.0), values * speed, strict=True)
    return with_pairs(row, [[float(before) if reference else None, float(value)] for before, value in pairs])


def make_result(**changes: Any) -> Result:
    """A whole result, with these ``changes``."""
    return dataclasses.replace(_make(), **changes)


@functools.cache
def _make() -> Result:
    def row(group: str, name: str, unit: str, speed: float, reference: float | None, **facts: Any) -> Measurement:
        made = Measurement(group, name, unit, **facts)
        return measured(made, speed, reference)

    trainings = [
        row("trainings", name, STEPS, speed, reference, kind=kind, overrides=name.split() if reference else [])
        for name, speed, reference, kind in TRAININGS
    ]  # fmt: skip
    failed = Measurement("trainings", "execution=compiled", STEPS, error="execution=compiled: needs a C++ compiler.")
    pieces = [row(*piece) for piece in PIECES]
    kinds = dict(zip(BEST, (EQUIVALENT, EXACT, EQUIVALENT), strict=True))
    return Result(
        command="python -m dqnspeed.bench",
        started="2026-01-31T12:00:00",
        ended="2026-01-31T12:09:31",
        suite="quick",
        env="PongNoFrameskip-v4",
        overrides=[],
        machine={"platform": "Linux", "cpu": "Imagined Processor", "cores": 2, "memory_gib": 24.0, "gpu": None},
        versions={"python": "3.11.7", "torch": "2.13.0"},
        commit="0123456789abcdef",
        disturbances=["another process (make) keeps 0.4 cores busy."],
        measurements=[*trainings, failed, *pieces],
        bottlenecks=["the baseline: the learner's updates take 71 % of the host's time."],
        recommendation=Recommendation(
            BEST, f"python -m dqnspeed.train {' '.join(BEST)}", kinds,
            Interval(1.70, 1.66, 1.73), Interval(1.67, 1.61, 1.72), "Whole trainings gained 1.67×, as expected.",
        ),
    )  # fmt: skip
