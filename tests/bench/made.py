"""A result as a bench would have it, made of numbers that nobody measured."""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np

from dqnspeed.bench.result import (
    Disturbances,
    Floor,
    Interval,
    Measurement,
    Recommendation,
    Result,
    ToSolve,
)

BEST = ["wrappers=native", "parallelism=overlap", "execution=lean", "execution.threads=1"]
FLOOR_OF_UPDATES = "the network's operations at the rate of a matrix product"
FLOOR_OF_STEPS = "ALE's raw frames on these cores"


def measure(
    group: str, name: str, unit: str, value: float, reference: float | None = None, spread: float = 0.02,
    repeats: int = 12, seed: int = 0, **others: object,
) -> Measurement:  # fmt: skip
    """A measurement of ``repeats`` pairs around these speeds, whose neighbours share half of the noise."""
    random = np.random.default_rng([seed, *name.encode()])
    shared = random.normal(1, spread, repeats)
    values = value * shared * random.normal(1, spread / 2, repeats)
    references = None if reference is None else reference * shared * random.normal(1, spread / 2, repeats)
    made = Measurement(group, name, unit, value=round(float(np.median(values)), 3), **others)  # type: ignore[arg-type]
    if references is None:
        return dataclasses.replace(made, pairs=[[None, round(float(one), 3)] for one in values])
    ratios = values / references
    chosen = np.median(random.choice(ratios, (400, repeats)), axis=1)
    low, high = np.quantile(chosen, [0.025, 0.975])
    return dataclasses.replace(
        made,
        pairs=[[round(float(one), 3), round(float(two), 3)] for one, two in zip(references, values, strict=True)],
        reference=round(float(np.median(references)), 3),
        ratio=Interval(float(np.median(ratios)), float(low), float(high)),
    )


def make_result(faster: float = 1.0, seed: int = 0, **changes: object) -> Result:
    """A whole result; every speed is ``faster`` times what it is without."""

    def rung(overrides: str, speed: float, kind: str = "exact") -> Measurement:
        steps, reference = speed * faster, 93 * faster
        return measure(
            "rungs", overrides or "baseline", "agent steps/s", steps, reference if overrides else None, seed=seed,
            kind=kind, overrides=overrides.split(), updates=round(steps / 4, 2),
            floor=Floor(FLOOR_OF_UPDATES, 231.0, steps / 231),
        )  # fmt: skip

    def piece(group: str, name: str, unit: str, speed: float, reference: float | None = None, **others: object) -> Measurement:
        reference = reference and reference * faster
        return measure(group, name, unit, speed * faster, reference, spread=0.03, seed=seed, **others)

    rungs = [
        rung("", 93),
        rung("wrappers=native", 101, "equivalent"),
        rung("parallelism=overlap", 104),
        rung("wrappers=native parallelism=overlap", 118, "equivalent"),
        rung("execution=lean", 121, "equivalent"),
        rung("wrappers=native execution=lean", 139, "equivalent"),
        rung("wrappers=native parallelism=overlap execution=lean", 158, "equivalent"),
        rung(" ".join(BEST), 166, "equivalent"),
        rung("execution.threads=1", 93.4),
        rung("execution.channels_last=true", 92.1, "equivalent"),
        rung("execution.pin_memory=false", 92.8),
        Measurement(
            "rungs", "execution=compiled", "agent steps/s", "equivalent", ["execution=compiled"],
            error="execution.compile=true: needs a C++ compiler, and there is none here",
        ),
    ]  # fmt: skip
    peers = [
        piece("peers", "stable-baselines3 DQN, same work", "agent steps/s", 78, 93, version="2.9.2"),
        piece("peers", "stable-baselines3 PPO, its own work", "agent steps/s", 240, 93, version="2.9.2", kind="changes the algorithm"),
        Measurement("peers", "torchrl DQN, same work", "agent steps/s", error="is not installed; pip install 'dqnspeed[peers]' brings it"),
    ]
    pieces = [
        *(
            piece("envs", f"{stack}, {games} games, {threads} threads", "agent steps/s", speed * scale, 640 * scale if stack != "deepmind" else None, floor=Floor(FLOOR_OF_STEPS, 6500.0, speed * scale / 6500))
            for stack, speed in (("deepmind", 640), ("tweaked", 980), ("native", 3300))
            for games, threads, scale in ((1, 1, 1.0), (8, 2, 1.8))
        ),
        piece("resize", "cv2", "frames/s", 15_400),
        piece("resize", "pillow", "frames/s", 8_300, 15_400),
        piece("resize", "ale", "frames/s", 15_900, 15_400),
        piece("replay", "write, 8 games", "transitions/s", 410_000),
        piece("replay", "sample, batch 32", "samples/s", 96_000),
        *(piece("acting", f"{games} games", "agent steps/s", speed) for games, speed in ((1, 640), (8, 2300), (16, 2900))),
        *(
            piece("update", f"batch {batch}, {option}", "updates/s", speed * gain, None if option == "fp32" else speed)
            for batch, speed in ((32, 44), (128, 11.6), (512, 2.7))
            for option, gain in (("fp32", 1.0), ("bf16", 1.62), ("channels_last", 1.004))
        ),
    ]  # fmt: skip
    best = Interval(1.78, 1.74, 1.83)
    line = f"python -m dqnspeed.train env=pong {' '.join(BEST)}"
    whole = Result(
        command="python -m dqnspeed.bench suite=quick peers=true",
        started="2026-01-31T12:00:00",
        ended="2026-01-31T12:09:31",
        suite="quick",
        env="PongNoFrameskip-v4",
        seed=0,
        overrides=["env=pong"],
        machine={
            "platform": "Linux-6.1-x86_64", "cpu": "Imagined 2-Core Processor", "cores": 2, "memory_gib": 24.0,
            "device": "cpu", "gpu": None, "omp": {},
        },
        versions={"python": "3.11.7", "dqnspeed": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
        commit="0123456789abcdef0123456789abcdef01234567",
        complete=True,
        disturbances=Disturbances([], ["another process (make) took 0.4 of the cores"]),
        measurements=[*rungs, *peers, *pieces],
        walls=["The learner's convolutions take 71 % of the time, at 43 % of what these cores do in a matrix product."],
        recommendation=Recommendation(
            BEST, line, {override: "equivalent" if "=native" in override or "lean" in override else "exact" for override in BEST},
            best, Interval(1.75, 1.69, 1.81), True, "This line is the fastest that learns the same.",
        ),
        to_solve=ToSolve("python -m dqnspeed.train experiment=speedrun", "about 7 minutes on two cores"),
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]
