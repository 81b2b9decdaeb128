"""``summary.json``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.protocol import protocol_of
from dqnspeed.system import atomic, machine, signing
from dqnspeed.tracking.run_folder import BEGUN, CONFIG, SUMMARY
from dqnspeed.training.run import Run

log = logging.getLogger(__name__)


def begun(run: RunConfig, label: str) -> dict[str, Any]:
    """The part of a summary that is known from the start of a run; ``label`` is its name."""
    return {
        "experiment": run.experiment.name,
        "label": label,
        "kind": list(run.experiment.kind),
        "algo": run.algo.name,
        "env": run.env.id,
        "protocol": protocol_of(run),
        "reward_bound": run.stop.reward_bound,
        "seed": run.seed,
    }


def save_start(folder: Path, options: Mapping[str, Any], start: Mapping[str, Any]) -> None:
    """Write the signed copy of the configuration, and ``start``, the part of the summary that is known by now."""
    for write, name, content in ((signing.write, CONFIG, options), (atomic.write_json, BEGUN, start)):
        try:
            write(folder / name, content)
        except OSError as error:
            log.warning("%s could not be written, training continues: %s", folder / name, error)


def close(run: Run, error: BaseException | None) -> dict[str, Any]:
    """Write and return the summary of a run that ended, by ``error`` or not."""
    summary = summarize(run, error)
    summary["callbacks"] = {name: round(seconds, 3) for name, seconds in run.callbacks.seconds.items()}
    summary["not_written"] = run.checkpoints.not_written()
    try:
        atomic.write_json(run.folder / SUMMARY, summary)
    except OSError as raised:
        summary["not_written"].append(f"{SUMMARY} ({raised.strerror})")
    run.callbacks.call("on_training_end", run, summary)
    return summary


def summarize(run: Run, error: BaseException | None) -> dict[str, Any]:
    """The contents of ``summary.json``.

    Speeds and the samples per step exclude the warm-up; of a resumed run only its last segment counts.
    """
    config, progress, interrupted = run.config, run.progress, isinstance(error, KeyboardInterrupt)
    speed, mean, max_steps = progress.speed_while_learning(run.updates), progress.returns.mean, config.stop.max_steps
    return {
        **begun(config, run.label),
        "solved": progress.time_to_solve_s is not None,
        "stopped_by": "SIGINT" if interrupted else "error" if error is not None else run.stop.reason,
        "error": None if error is None or interrupted else f"{type(error).__name__}: {error}",
        "time_to_solve_s": _rounded(progress.time_to_solve_s),
        "time_to_solve_avg_s": _rounded(progress.time_to_solve_avg_s),
        "execution": progress.execution,
        "acting": progress.acting,
        "replay_device": progress.replay_device,
        "startup": {part: round(seconds, 3) for part, seconds in progress.startup.items()},
        "wall_time_s": _rounded(progress.wall_time_s),
        "eval_time_s": _rounded(progress.eval_clock.now()),
        "evaluations": run.evaluator.count,
        "lost_s": _rounded(progress.lost_s),
        "time_is_lower_bound": progress.time_is_lower_bound,
        "agent_steps": progress.agent_steps,
        "frames": progress.agent_steps * config.wrappers.frame_skip,
        "episodes": progress.returns.ended,
        "updates": run.updates,
        "steps_per_second": _rounded(speed["perf/steps_per_second"]),
        "updates_per_second": _rounded(speed["perf/updates_per_second"]),
        "samples_per_step": _rounded(speed["perf/samples_per_step"]),
        "return_mean_100": _rounded(mean) if progress.returns.count else None,
        "return_mean_games": len(progress.returns.last),
        "eval_return_mean": _rounded(run.evaluator.mean),
        "resumed_at": progress.resumed_at,
        "begun_again": progress.begun_again,
        "steps_over_limit": max(0, progress.agent_steps - max_steps) if max_steps else 0,
        "peak_rss_mib": _rounded(machine.peak_rss_mib()),
        "peak_gpu_mib": _rounded(machine.peak_gpu_mib(run.device)),
        "lost_actors": progress.lost_actors,
        "busy": progress.busy,
        "benchmark": progress.benchmark and progress.busy is None,
        "machine": machine.describe(run.device),
        "versions": machine.versions(),
        "git_commit": machine.git_commit(),
    }


def _rounded(value: float | None) -> float | None:
    """``value`` for JSON; NaN and infinity become None."""
    return None if value is None or not math.isfinite(value) else round(value, 3)
