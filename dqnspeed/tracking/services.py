"""TensorBoard and Weights & Biases, under the same metric names."""

from __future__ import annotations

import logging
import math
import re
import signal
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import TrackingConfig
from dqnspeed.envs import Episode
from dqnspeed.system import atomic
from dqnspeed.tracking.base import Tracker
from dqnspeed.tracking.run_folder import TENSORBOARD, WANDB_ID

log = logging.getLogger(__name__)

ANSWER_S = 4.0  # time limit for W&B's server to answer, and then to start a run
EVENTS = "events.out.tfevents.*"
OF_A_GAME = ("episode/return", "episode/length")  # logged with each game, not with reports

_no_wandb: list[str] = []  # why W&B's server cannot be used, for the later jobs of a sweep


class TensorBoard(Tracker):
    """Event files against agent step; TensorBoard itself shows them against wall clock too.

    It names a run by its folder, so the events are in one with the run's name.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None = None):
        from torch.utils.tensorboard import SummaryWriter

        earlier = [*folder.glob(EVENTS), *folder.glob(f"tensorboard/*/{EVENTS}")]
        own = folder / TENSORBOARD / re.sub(r"[^\w.=+-]+", "_", name)[:100]
        purge = None if resumed_at is None else resumed_at + 1  # later steps are trained again
        self._writer = SummaryWriter(str(earlier[0].parent if earlier else own), purge_step=purge)
        self._writer.add_text("run", name)
        self._writer.add_text("config", _markdown(config))

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        self._write({"episode/return": episode.episode_return, "episode/length": episode.length}, step)

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        self._write({name: value for name, value in metrics.items() if name not in OF_A_GAME}, step)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._writer.close()

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)


class WandB(Tracker):
    """Weights & Biases, offline unless asked; every metric against agent step and ``time/wall_s``.

    Online, a resumed run continues under its id, and shows steps that were trained again twice. Offline runs cannot be
    continued, so each segment is a run of its own, ``<id>-<step it was resumed at>``, in one group. If the server
    cannot be used, this run and the later ones of the process are offline; a warning says why.
    """

    def __init__(
        self,
        tracking: TrackingConfig,
        folder: Path,
        config: Mapping[str, Any],
        name: str,
        group: str | None,
        resumed_at: int | None,
    ):
        import wandb

        id_file = folder / WANDB_ID
        if not id_file.exists():
            id_file.parent.mkdir(exist_ok=True)
            atomic.write_text(id_file, uuid.uuid4().hex[:8])
        first = id_file.read_text()

        def begin(mode: Any, run_id: str) -> Any:
            return wandb.init(
                project=tracking.project,
                name=tracking.run_name or name[:128],
                group=tracking.group or group or first,
                dir=str(folder),
                mode=mode,
                config=dict(config),
                reinit="finish_previous",
                id=run_id,
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(silent=True, console="off", init_timeout=ANSWER_S),
            )

        run = None
        if tracking.wandb == "online":
            try:
                if not _no_wandb:
                    _check_server(wandb)
                    run = begin("online", first)
            except Exception as error:
                logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # used by W&B; its errors add nothing
                _no_wandb.append(" ".join(str(error).split()).rstrip("."))
            if run is None:
                log.warning("tracking.wandb=online: W&B cannot be used (%s); this run is kept offline.", _no_wandb[0])
        # An id that was tried online cannot be used again in this process.
        fresh = resumed_at is None and tracking.wandb == "offline"
        self._run = run or begin("offline", first if fresh else f"{first}-{resumed_at or 0}")
        self._run.define_metric("*", step_metric="agent_step")

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        metrics = {"episode/return": episode.episode_return, "episode/length": episode.length}
        self._run.log({**metrics, "agent_step": step, "time/wall_s": seconds})

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        numbers = {name: v for name, v in metrics.items() if math.isfinite(v) and name not in OF_A_GAME}
        self._run.log({**numbers, "agent_step": step, "time/wall_s": seconds})

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=_exit_code(summary))


def _check_server(wandb: Any) -> None:
    """Raise :class:`OSError` if W&B's server does not answer.

    W&B itself would wait for minutes, at its first call and at the end of the process.
    """
    url = wandb.setup(wandb.Settings(mode="offline", silent=True)).settings.base_url  # silent: do not ask for a key
    found: list[OSError] = [TimeoutError(f"no answer from {url} within {ANSWER_S:g} s")]

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=ANSWER_S).close()
        except urllib.error.HTTPError:
            pass  # an answer
        except Exception as error:
            reason = getattr(error, "reason", error)
            if not isinstance(reason, TimeoutError):
                found[0] = OSError(f"{url}: {reason}")
            return
        found.clear()

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name has no time limit
    asking.start()
    asking.join(ANSWER_S)
    for error in list(found):
        raise error
    wandb.setup(wandb.Settings(mode="online"))


def _exit_code(summary: Mapping[str, Any]) -> int:
    """The exit code of a run with this summary; W&B marks every code but 0 as failed."""
    reason = summary.get("stopped_by")
    if reason in ("SIGINT", "SIGTERM"):
        return 128 + signal.Signals[reason].value
    return int(reason is None or reason == "error" or bool(summary.get("not_written")))


def _markdown(config: Mapping[str, Any]) -> str:
    import json

    return "\n".join(f"    {line}" for line in json.dumps(config, indent=2, default=str).splitlines())
