"""Weights & Biases: the runs of a sweep in one group, every metric against the agent's steps or the clock."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import TrackingConfig
from dqnspeed.envs import Episode
from dqnspeed.system import atomic, machine, messages
from dqnspeed.system.signals import EXIT_CODES
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.metrics import MEAN_RETURNS
from dqnspeed.tracking.run_folder import BEST, WANDB, WANDB_ID, read_overrides
from dqnspeed.tracking.trackers import EPISODE_METRICS, hyperparameters, public_overrides, register_tracker

log = logging.getLogger(__name__)

ANSWER_S = 4.0  # time limit for W&B's server to answer, and then to start a run
FINISH_S = 60.0  # longest wait at the end of a run for uploads; `wandb sync` sends the rest
STEP, SECONDS = "agent_step", "time/training_s"  # axes that metrics are drawn against
OF_THE_CLOCK = ("perf/", "time/")  # metrics that are drawn against SECONDS
VIDEO = "video"
# Values of WANDB_MODE; the last two are of earlier versions.
MODES = {"online": "online", "offline": "offline", "disabled": "disabled", "run": "online", "dryrun": "offline"}
MAX_TAG, MAX_NOTES = 64, 10_000  # characters

_no_wandb: list[str] = []  # why W&B's server cannot be used, for the later jobs of a sweep


def mode_of_environment() -> str | None:
    """The mode that ``WANDB_MODE`` or ``WANDB_DISABLED`` asks for; ``None`` if neither does."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes", "y", "t", "on"):
        return "disabled"
    return MODES.get(os.environ.get("WANDB_MODE", "").lower())


def overruled(tracking: TrackingConfig) -> Iterator[str]:
    """A sentence if ``tracking.wandb`` overrules the environment."""
    if mode_of_environment() not in (None, tracking.wandb):
        named = [f"{name}={os.environ[name]}" for name in ("WANDB_DISABLED", "WANDB_MODE") if os.environ.get(name)]
        yield f"tracking.wandb={tracking.wandb}: overrules {' and '.join(named)} of the environment."


def ask_again() -> None:
    """Forget that W&B's server could not be used."""
    _no_wandb.clear()


@register_tracker("wandb")
class WandB(Callback):
    """A run of Weights & Biases, offline unless asked.

    W&B gets the configuration without the options of recording. Tags are the experiment, the algorithm, the device and
    the kinds of change; notes are the command line. Videos are logged at the step of their game. At the end the best
    checkpoint becomes an artifact.

    A resumed online run continues under its id, unless a segment was offline. Offline runs cannot be continued, so each
    segment is a run of its own in one group. The id of a segment contains the step at which it was resumed. Steps that
    were lost in a kill and trained again are there twice. If the server cannot be used, this run and the later
    ones of the process are offline; a warning says why. A run of an agent of W&B's, ``wandb agent``, has the id
    that the agent gives it.
    """

    optional = True

    def on_training_start(self, training: TrainingState) -> None:
        import wandb

        folder, resumed_at = training.folder, training.resumed_at
        self._folder, self._wandb, tracking = folder.resolve(), wandb, training.config.tracking
        id_file = folder / WANDB_ID
        if not id_file.exists():
            id_file.parent.mkdir(exist_ok=True)
            of_agent = os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None
            atomic.write_text(id_file, of_agent or uuid.uuid4().hex[:8])
        first = id_file.read_text()
        experiment, algo = training.config.experiment, training.config.algo
        tags = [experiment.name, algo.name, machine.pick_device(training.config.device).type, *experiment.kind]
        # Older versions of W&B have no limit for the wait for a lost server at the end of a run.
        limits_wait = "finish_timeout" in getattr(wandb.Settings, "model_fields", {})
        patience = {"finish_timeout": FINISH_S} if limits_wait else {}

        def begin(mode: Any, run_id: str) -> Any:
            return wandb.init(
                project=tracking.project,
                name=tracking.run_name or training.name,
                group=tracking.group or training.group or first,
                job_type="train",
                tags=[tag[:MAX_TAG] for tag in dict.fromkeys(tags)],
                notes=messages.command("train", *public_overrides(read_overrides(folder)))[:MAX_NOTES],
                dir=str(folder),
                mode=mode,
                config=hyperparameters(training.options),
                reinit="finish_previous",
                id=run_id,
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(silent=True, console="off", init_timeout=ANSWER_S, **patience),
            )

        online, another = None, f"{first}-{resumed_at or 0}-{uuid.uuid4().hex[:4]}"
        if tracking.wandb == "online":
            try:
                if not _no_wandb:
                    check_server(wandb)
                    # An offline segment with this id may be synced later.
                    begun_offline = any(folder.glob(f"{WANDB}/offline-run-*-{first}"))
                    online = begin("online", another if begun_offline else first)
            except Exception as error:
                logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # used by W&B; its errors add nothing
                _no_wandb.append(" ".join(str(error).split()).rstrip("."))
            if online is None:
                log.warning("tracking.wandb=online: W&B cannot be used (%s); this run is kept offline.", _no_wandb[0])
        # An id that was tried online cannot be used again in this process.
        fresh = resumed_at is None and tracking.wandb == "offline"
        self._run = online or begin("offline", first if fresh else another)
        self._defined = {STEP, SECONDS}
        self._videos: list[tuple[Path, int, float]] = []  # videos that may not be written yet, with step and seconds
        self._best: dict[str, Any] = {}  # metadata of the best checkpoint
        for axis in (STEP, SECONDS):
            self._run.define_metric(axis, hidden=True)

    def on_episode_end(self, training: TrainingState, number: int, episode: Episode, video: str = "") -> None:
        values, step, seconds = (episode.episode_return, episode.length), training.agent_steps, training.seconds
        self._log(dict(zip(EPISODE_METRICS, values, strict=True)), step, seconds)
        if video:
            self._videos.append((self._folder / video, step, seconds))

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        numbers = {name: v for name, v in metrics.items() if math.isfinite(v) and name not in EPISODE_METRICS}
        self._log(numbers, training.agent_steps, training.seconds)
        self._log_videos()

    def on_checkpoint(self, training: TrainingState, path: Path) -> None:
        if path.name == Path(BEST).name:
            facts = {STEP: training.agent_steps, SECONDS: training.seconds}
            self._best = {"return_mean": training.return_mean, **facts}

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        try:
            self._run.summary.update(dict(summary))
            self._log_videos()
            self._keep_best()
        finally:
            self._run.finish(exit_code=_exit_code(summary))

    def _log(self, values: Mapping[str, Any], step: int, seconds: float) -> None:
        for name in values:
            if name not in self._defined:
                self._defined.add(name)
                axis = SECONDS if name.startswith(OF_THE_CLOCK) else STEP
                self._run.define_metric(name, step_metric=axis, summary="max" if name in MEAN_RETURNS else None)
        self._run.log({**values, STEP: step, SECONDS: seconds})

    def _log_videos(self) -> None:
        """Log complete videos; W&B copies them, and a video for which there is no room is left out."""
        whole = [video for video in self._videos if video[0].exists()]
        self._videos = [video for video in self._videos if video not in whole]
        for path, step, seconds in whole:
            with contextlib.suppress(OSError):
                self._log({VIDEO: self._wandb.Video(str(path), caption=path.stem, format="mp4")}, step, seconds)

    def _keep_best(self) -> None:
        """Log a copy of the best checkpoint as an artifact, since a resumed run may replace the file."""
        found = self._folder / BEST  # may be of an earlier segment
        if not found.exists():
            return
        copied = self._folder / WANDB / f"best-{self._run.id}{found.suffix}"
        shutil.copyfile(found, copied)
        artifact = self._wandb.Artifact(f"best-{self._run.id}", type="model", metadata=self._best)
        # Without this policy and option W&B would copy the file again.
        artifact.add_file(str(copied), name=found.name, policy="immutable", skip_cache=True)
        self._run.log_artifact(artifact, aliases=["best"])


def check_server(wandb: Any) -> None:
    """Raise :class:`OSError` if W&B's server does not answer.

    W&B itself would wait for minutes, at its first call and at the end of the process.
    """
    url = wandb.setup(wandb.Settings(mode="offline", silent=True)).settings.base_url  # silent: do not ask for a key
    try:
        urllib.request.urlopen(url, timeout=ANSWER_S).close()
    except urllib.error.HTTPError:  # an answer
        pass
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):  # an answer too; W&B may have other certificates
            raise
    wandb.setup(wandb.Settings(mode="online"))


def _exit_code(summary: Mapping[str, Any]) -> int:
    """The exit code of a run with this summary; W&B marks every code but 0 as failed."""
    reason = summary["stopped_by"]
    if reason in EXIT_CODES:
        return EXIT_CODES[reason]
    return int(reason is None or reason == "error" or bool(summary["not_written"]))
