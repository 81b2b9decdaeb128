"""The command ``train``: compose and check a configuration and train, or resume a run."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from dqnspeed import envs
from dqnspeed.actors import ActorError
from dqnspeed.algorithms.update_metrics import NotFiniteError
from dqnspeed.cli import compose, optuna_search, trust
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.app import check_flags, one_sentence, run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.cli.sweep import record_failure, sweep, take_options
from dqnspeed.cli.sweep_record import Line, outcome, searched
from dqnspeed.config import changes
from dqnspeed.execution.graph import CaptureError
from dqnspeed.execution.threads import set_threads
from dqnspeed.system import machine, messages
from dqnspeed.system.signals import EXIT_CODES, PREEMPTING
from dqnspeed.system.startup import startup
from dqnspeed.tracking import CallbackError
from dqnspeed.tracking.hub import with_commits
from dqnspeed.tracking.run_folder import group_of, holds_run
from dqnspeed.tracking.terminal import opening
from dqnspeed.training.checkpoint import playable
from dqnspeed.training.loop import train
from dqnspeed.training.request import RunRequest
from dqnspeed.training.schedule import schedule_sentence

# Arguments that print something and train nothing.
TELLING = "-h", "--help", "-c", "--cfg", "-i", "--info", "-s", "--shell", "--hydra-help", "sweep.dry_run=true"


@hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="config")
def _begin(cfg: DictConfig) -> None:
    _job(cfg)  # a function that a launcher's processes can import


def _job(cfg: DictConfig) -> None:
    logging.raiseExceptions = False  # a full disk would print a traceback for each line of train.log
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if hydra_config.mode == RunMode.MULTIRUN:
        try:
            _sweep_job(cfg, folder)
        except Exception as error:  # the next job can start
            record_failure(_shown(folder), error, cfg)
    else:
        with one_sentence():
            _train(_composed(cfg, folder, None), Line.of_this_process().flags)


def _sweep_job(cfg: DictConfig, folder: Path) -> None:
    """Run a job of a sweep, or resume it."""
    startup.begin()
    if sweep.is_elsewhere:
        sweep.remember_signals()
    if sweep.heard.received is not None:
        return
    if outcome(folder).is_finished:  # another process may have finished it since the launch
        return
    hydra_config = HydraConfig.get()
    if holds_run(folder):
        # The launching process has checked the overrides already.
        typed = trust.code_in(resuming.plain_of(cfg))
        request = resumed_request([f"{resuming.PREFIX}{_shown(folder)}", *sweep.trust], typed)
    else:
        request = _composed(cfg, folder, group_of(Path(hydra_config.sweep.dir)))
    alone, prune = is_alone(hydra_config.launcher), optuna_search.pruning(hydra_config)
    _train(dataclasses.replace(request, restart_if_no_checkpoint=True, benchmark=alone, callbacks=prune))


def is_alone(launcher: Any) -> bool:
    """Whether jobs of this launcher have a machine for themselves, so that their times can be compared."""
    name = str(launcher.get("_target_"))
    # A Slurm job that has only some cores of its machine may have neighbours.
    has, cores = os.environ.get("SLURM_CPUS_ON_NODE", ""), os.cpu_count() or 1
    return "basic_launcher" in name or ("Slurm" in name and has.isdigit() and int(has) >= cores)


def _composed(cfg: DictConfig, folder: Path, group: str | None) -> RunRequest:
    config = compose.from_hydra(cfg)
    overrides = list(HydraConfig.get().overrides.task)
    return with_label(RunRequest(config, envs.describe(config), folder, resuming.plain_of(cfg), "", group, overrides))


def _start() -> None:
    with one_sentence():
        sys.argv[1:] = with_commits(compose.as_meant(take_options(sys.argv[1:])))
    check_flags()
    _begin()


def _resume() -> None:
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s %(levelname)s] %(message)s", datefmt="%H:%M:%S")
    _train(resumed_request(sys.argv[1:]))


def _train(request: RunRequest, flags: Sequence[str] = ()) -> None:
    summary = train_and_print(request)
    # A signal ends a sweep even if it came after the end of the job.
    if summary["stopped_by"] in EXIT_CODES or (request.group is not None and "signal" in summary):
        stopped_by = signal.Signals[summary["signal"]]
        if request.restart_if_no_checkpoint and sweep.is_elsewhere:
            sweep.heard.received = stopped_by
            if stopped_by in PREEMPTING:
                signal.raise_signal(stopped_by)  # the handler of the launcher queues the job again
            return
        # Ends a whole sweep; the exit code tells the shell or the cluster the signal.
        sys.exit(128 + stopped_by.value)
    if request.group is None:
        print(*_next(_shown(request.folder), request.overrides, flags), sep="\n")


def with_label(request: RunRequest) -> RunRequest:
    """``request`` with its label, which is the rung and the overrides that change it, and the kinds of the changes."""
    config, overrides = request.config, request.overrides
    changed = compose.changed(config, overrides)
    kind = changes.kinds(config.experiment.kind, changed)
    config = dataclasses.replace(config, experiment=dataclasses.replace(config.experiment, kind=kind))
    label = changes.label(config.experiment.name, overrides, changed.union(searched(request.folder)))
    return dataclasses.replace(request, config=config, label=label)


def resumed_request(arguments: Sequence[str], typed: Sequence[str] = ()) -> RunRequest:
    """The request to resume the run in ``arguments``; see :func:`dqnspeed.cli.resume.prepare`."""
    return with_label(resuming.prepare(arguments, typed))


def train_and_print(request: RunRequest) -> dict[str, Any]:
    """Train, print the start and the result of the run, and return the summary.

    Raises:
        ConfigError: as :func:`dqnspeed.training.loop.train` does.
        RunError: an actor, a callback or the arithmetic broke, a graph cannot be captured, or a file was not written.
    """
    config, shown = request.config, _shown(request.folder)
    set_threads(config)
    device, threads = str(machine.pick_device(config.device)), torch.get_num_threads()
    lines = opening(config, request.label, device, threads, shown, request.resume)
    print(*lines, schedule_sentence(config), sep="\n", flush=True)
    try:
        summary = train(request)
    except (ActorError, NotFiniteError, CaptureError, CallbackError) as error:
        raise RunError(f"{error}\n{resuming.advice(shown)}") from error
    except torch.cuda.OutOfMemoryError as error:
        least = "a smaller algo.batch_size, replay.buffer_size or num_envs takes less, and device=cpu none of a GPU's."
        raise RunError(f"{str(error).partition('. ')[0]}; {least}\n{resuming.advice(shown)}") from error
    _print_result(summary, shown, config.stop.on == "eval")
    lost = f"{shown}: could not be written: {', '.join(summary['not_written'])}; what was saved before is whole."
    if summary["stopped_by"] in EXIT_CODES:
        print(resuming.advice(shown))
        if summary["not_written"]:
            print(f"dqnspeed: {lost}", file=sys.stderr)
    elif summary["not_written"]:
        raise RunError(lost)
    return summary


def _next(folder: Path, overrides: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Commands that use the run in ``folder`` or repeat it, one a line.

    Args:
        flags: flags of the command line that the overrides need.
    """
    last = {override.partition("=")[0]: override for override in overrides}  # the last override of each key
    for key in ("seed", "live"):
        last.pop(key, None)
    commands = {
        "watch it": ["play", f"run={folder}"],
        "see its numbers": ["report", str(folder)],
        "try other seeds": ["train", "-m", *flags, *last.values(), "seed=1,2,3"],
    }
    if not playable(folder):
        del commands["watch it"]
    for what, (name, *arguments) in commands.items():
        yield f"{what + ':':<16} {messages.command(name, *arguments)}"


def _shown(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _print_result(summary: dict[str, Any], folder: Path, evaluated: bool) -> None:
    mean = summary["return_mean_100"]
    games = "only game" if summary["return_mean_games"] == 1 else f"last {summary['return_mean_games']} games"
    if evaluated and summary["eval_return_mean"] is not None:
        mean, games = summary["eval_return_mean"], "games of the last evaluation"
    unknown = "no game finished" if not summary["episodes"] else "no game counts before older games have ended"
    shown = unknown if mean is None else f"mean return {mean:.2f} over the {games}"
    bound = "at least " if summary["time_is_lower_bound"] else ""
    how = f"stopped by {summary['stopped_by']}"
    if summary["solved"]:
        how = f"solved in {bound}{summary['time_to_solve_s']:.0f} s"
        if count := summary["evaluations"]:
            seconds = summary["time_to_solve_s"] + summary["eval_time_s"]
            how += f" of training, {seconds:.0f} s with {count:,} evaluation{'' if count == 1 else 's'}"
    print(
        f"{summary['label']}: {how}; {shown}; {summary['agent_steps']:,} agent steps, "
        f"{summary['steps_per_second']:.0f} steps/s, {summary['updates_per_second']:.0f} updates/s, "
        f"{summary['samples_per_step']:.1f} samples/step, "
        f"after {sum(summary['startup'].values()):.0f} s of start-up\n{folder}"
    )


def main() -> None:
    """Console entry point."""
    startup.switch("composition")
    prints = any(argument.startswith(TELLING) for argument in sys.argv[1:])
    run_app(_resume if resuming.asked_for(sys.argv[1:]) else _start, prints)
