"""The training loop: learn, collect, evaluate, save and report.

The loop depends on interfaces only: no algorithm, backend or kind of actor has a special case here.
"""

from __future__ import annotations

import contextlib
from typing import Any

from dqnspeed.actors.remote import NoActorsError
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking.run_folder import SUMMARY
from dqnspeed.training.checkpoint import state_to_resume
from dqnspeed.training.folder_lock import locked_folder
from dqnspeed.training.request import RunRequest
from dqnspeed.training.run import Run, prepare_process
from dqnspeed.training.summary import begun, close, save_start


def train(request: RunRequest) -> dict[str, Any]:
    """Train one agent.

    Returns:
        The summary, with the ``signal`` that was received, if any.

    Raises:
        ConfigError: the folder holds another run, the run to be resumed is still running or left no checkpoint, or its
            checkpoint does not match the network.
        ActorError: an actor process died, hung or raised.
        NotFiniteError: a metric of an update or a weight was NaN or infinite.
        CaptureError: a CUDA graph that was asked for cannot be captured.
        CallbackError: a callback raised.

    Once the :class:`Run` is made, the summary is written before an exception propagates.
    """
    config, folder = request.config, request.folder
    prepare_process(config)
    with StopSignals() as signals, contextlib.ExitStack() as resources:
        resources.enter_context(locked_folder(folder, request.resume))
        state = None
        if request.resume:
            state = state_to_resume(folder, config.checkpoint, request.restart_if_no_checkpoint)
        run = Run(request, state, signals, resources)
        start = {"begun_again": run.progress.begun_again, "overrides": list(request.overrides)}
        save_start(folder, request.options, {**begun(config, run.label), **start})
        error: BaseException | None = None
        try:
            run.start_parts()
            with contextlib.suppress(OSError):
                (folder / SUMMARY).unlink(missing_ok=True)  # outdated once the run is resumed
            try:
                loop(run)
            except NoActorsError:
                run.learner.stats()  # weights that are not finite are not saved
                run.save_final()
                raise
            run.callbacks.check()
        except BaseException as raised:
            error = raised
            raise
        finally:
            summary = close(run, error)
        run.callbacks.check()
    if signals.received is not None:
        summary["signal"] = signals.received.name  # a signal may arrive after the end of the run
    return summary


def loop(run: Run) -> None:
    """Train until :class:`StopRule` ends the run."""
    run.add(run.actors.start())
    run.progress.start()
    if run.evaluator.is_due(run.agent_steps):  # a signal interrupted this evaluation before the resume
        run.evaluate()
    while not run.is_over():
        run.actors.send()
        updates = run.learn()
        run.add(run.actors.collect(run.step_limit(), wait=not updates))
        if run.evaluator.is_due(run.agent_steps):
            run.evaluate()
        if run.checkpoints.is_due():
            run.save_periodic()
        elif run.progress.report_is_due():
            run.report()
    run.pause_and_report()
    with run.progress.clock.stopped():
        run.save_final()
        run.videos.finish()
