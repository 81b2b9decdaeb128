"""``live=true``: a page that shows a training while it learns, served by a process of its own."""

from __future__ import annotations

import contextlib
import html
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save

from dqnspeed.config.options import check_installed
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import atomic
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.metrics import TRAINING_MEAN
from dqnspeed.tracking.run_folder import EVALUATING
from dqnspeed.tracking.time_left import TimeLeft

# The process imports from the same folders as this one, and from no others.
BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dqnspeed.live.worker import main; main()"
CURVES = {"return": TRAINING_MEAN, "steps_per_second": "perf/steps_per_second", "loss": "train/loss"}
MAX_POINTS = 600  # of a curve; with more, every second one is dropped
END_S = 10  # for the process to send the last facts


def check_live(run: RunConfig) -> None:
    """Raise :class:`ConfigError` if ``live=true`` needs a library that is not installed."""
    if run.live:
        check_installed("live=true", "aiohttp", "live")


class PageProcess:
    """The process ``dqnspeed.live``, which serves the page and plays games for it.

    Args:
        config: configuration of the run as plain data; ``folder``: the folder of the run.
        clips: the process replies with a GIF every few seconds.
        on_reply: called with each reply, and with ``None`` at the end, in a thread.

    Attributes:
        has_ended: whether the process has ended, after which :meth:`send` does nothing.
    """

    has_ended = False

    def __init__(self, config: Mapping[str, Any], folder: str, clips: bool, on_reply: Callable[[Any], None]):
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the run, which ends the page
        )  # fmt: skip
        self._messages = queue.Queue[tuple[dict[str, Any], bytes] | None]()
        self._on_reply = on_reply
        self.send(config=config, folder=folder, clips=clips)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    @property
    def is_behind(self) -> bool:
        """Whether the process has not taken the last messages yet, or has ended."""
        return self.has_ended or self._messages.qsize() > 1

    def send(self, data: bytes = b"", **header: Any) -> None:
        if not self.has_ended:
            self._messages.put(({**header, "bytes": len(data)}, data))

    def close(self) -> None:
        """Wait until the process has sent its last facts to the browsers and ended."""
        self._messages.put(None)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(END_S)

    def _write(self) -> None:
        """Write messages to the process, so that the training need not wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            while (message := self._messages.get()) is not None:
                header, data = message
                pipe.write(json.dumps(atomic.nan_to_none(header)).encode() + b"\n" + data)
                pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as pipe:
                for line in pipe:
                    self._on_reply(json.loads(line))
        finally:
            self._process.wait()
            self.has_ended = True
            self._messages.put(None)
            self._on_reply(None)


class LivePage(Callback):
    """Sends curves, the time left and weights to the live page; in a notebook it shows them below the cell.

    A page that fails is off for the rest of the run. The training continues.
    """

    optional = True

    def __init__(self, time_left: TimeLeft, in_notebook: bool):
        self._time_left, self._in_notebook = time_left, in_notebook
        self._curves: dict[str, list[float]] = {name: [] for name in ("time", *CURVES)}
        self._every, self._skipped = 1, 0  # reports for each point
        self._process: PageProcess | None = None
        self._is_closed = False
        self._clip = ""
        self._display: Any = None

    def on_training_start(self, training: TrainingState) -> None:
        self._process = PageProcess(training.options, str(training.folder), self._in_notebook, self._reply)
        self._send_facts(title=training.label, env=training.config.env.id, algo=training.config.algo.name)
        self._send_weights(training)

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        try:
            self._show(training, metrics)
        except Exception:
            self.close("This page is off. The training continues.")
            raise

    def _show(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        seconds = training.seconds + metrics.get(EVALUATING, 0.0)
        self._add_point(seconds, metrics)
        left = self._time_left.until(training.agent_steps, seconds, metrics.get("perf/steps_per_second", 0))[1]
        curves = {name: [*values] for name, values in self._curves.items()}  # another thread writes them
        self._send_facts(curves=curves, left=left, seconds=seconds, steps=training.agent_steps)
        self._send_weights(training)
        if self._in_notebook:
            self._show_below_cell(training.label, left)

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        mean = summary["return_mean_100"]
        shown = "" if mean is None else f" Its last mean return is {mean:.2f}."
        reason = {"error": "an error"}.get(summary["stopped_by"], summary["stopped_by"])
        how = "solved the game" if summary["solved"] else f"was stopped by {reason}"
        ended = f"The training has ended: it {how}.{shown}"
        self.close(ended)
        if self._display is not None:
            self._show_below_cell(training.label, ended)

    def close(self, ended: str = "The training has ended.") -> None:
        """Send the last words and end the page; a second time does nothing."""
        if self._process is not None and not self._is_closed:
            self._is_closed = True
            self._process.send(ended=ended)
            self._process.close()

    def _send_facts(self, **facts: Any) -> None:
        if self._process is not None:
            self._process.send(facts=facts)

    def _send_weights(self, training: TrainingState) -> None:
        if self._process is not None and not self._process.is_behind:
            weights = training.network.state_dict()
            arrays = {name: np.asarray(each.detach().cpu().numpy(), order="C") for name, each in weights.items()}
            self._process.send(save(arrays), agent_steps=training.agent_steps)

    def _add_point(self, seconds: float, metrics: Mapping[str, float]) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        point = {"time": seconds} | {name: metrics.get(metric, float("nan")) for name, metric in CURVES.items()}
        for name, value in point.items():
            self._curves[name].append(float(f"{value:.5g}"))
        if len(self._curves["time"]) > MAX_POINTS:
            self._every *= 2
            self._curves = {name: values[::2] for name, values in self._curves.items()}

    def _reply(self, reply: Any) -> None:
        """Take a reply of the process; ``None`` if it has ended."""
        if reply is None:
            if not self._is_closed:
                print("live=true: the page has ended. The training continues.", flush=True)
        elif "clip" in reply:
            self._clip = reply["clip"]
        elif "problem" in reply:
            print(reply["problem"], flush=True)
        else:
            print(reply["line"], flush=True)

    def _show_below_cell(self, label: str, left: str) -> None:
        from IPython.display import display

        shown = {"text/html": inline_page(label, left, self._curves, self._clip), "text/plain": f"{label}: {left}"}
        if self._display is None:
            self._display = display(shown, raw=True, display_id=True)
        else:
            self._display.update(shown, raw=True)


def inline_page(label: str, left: str, curves: Mapping[str, list[float]], clip: str) -> str:
    """HTML with the curve of returns and the newest clip, ``clip`` in base64, for the output of a notebook's cell."""
    width, height = 420, 210
    points = [(x, y) for x, y in zip(curves["time"], curves["return"], strict=True) if np.isfinite(y)]
    picture = "no game has ended yet"
    if points:
        xs, ys = np.array(points).T
        low, high = float(ys.min()), float(ys.max())
        across = (xs - xs[0]) / max(float(np.ptp(xs)), 1e-9) * (width - 2) + 1
        up = height - 1 - (ys - low) / max(high - low, 1e-9) * (height - 2)
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in zip(across, up, strict=True))
        picture = (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="mean return over time">'
            f'<polyline points="{path}" fill="none" stroke="#0b57d0" stroke-width="2"/></svg>'
            f"<br>mean return {ys[-1]:.2f} after {xs[-1]:.0f} s, from {low:.2f} to {high:.2f}"
        )
    game = f'<img alt="a game" height="{height}" src="data:image/gif;base64,{clip}">' if clip else ""
    caption = html.escape(f"{label}: {left}")
    return f'<div>{caption}<div style="display:flex;gap:1em;align-items:start"><div>{picture}</div>{game}</div></div>'
