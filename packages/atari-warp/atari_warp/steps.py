"""Steps of many games that play at once or beside the caller, on CPU threads or on a GPU's stream."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import warp as wp

from atari_warp.console_batch import ConsoleBatch


class Steps:
    """Steps that play at once or, between :meth:`begin` and :meth:`finish`, beside the caller.

    On a CPU a thread waits for the games. On a GPU they have a stream of torch: torch's default stream and streams that
    Warp makes wait for each other.
    """

    def __init__(self, consoles: ConsoleBatch):
        self._consoles = consoles
        self._thread: ThreadPoolExecutor | None = None
        self._future: Future[None] | None = None
        self._begun = False
        self._stream: Any = None
        if consoles.device.is_cuda:
            import torch

            self._stream = wp.stream_from_torch(torch.cuda.Stream(str(consoles.device)))
            wp.synchronize_device(consoles.device)

    def run(self, play: Any) -> None:
        """Play now; on a GPU, after torch's current stream has read what the step overwrites."""
        self.check_idle()
        with self._on_stream():
            if self._stream is not None:
                self._wait_for_readers()
            play()

    def _wait_for_readers(self) -> None:
        import torch

        self._stream.wait_stream(wp.stream_from_torch(torch.cuda.current_stream(str(self._consoles.device))))

    def begin(self, play: Any) -> None:
        """Play beside the caller."""
        self.check_idle()
        if self._stream is None:
            self._thread = self._thread or ThreadPoolExecutor(1, "atari-warp-steps")
            self._future = self._thread.submit(play)
        else:
            self.run(play)
        self._begun = True

    def finish(self, keep: bool = False) -> bool:
        """Wait for the step that has begun, if any, and return whether there was one; ``keep`` leaves its results."""
        begun, future = self._begun, self._future
        if future is not None:
            wait([future])
        if begun and self._stream is not None:
            wp.synchronize_stream(self._stream)
        if not keep:  # after the waits, since Ctrl-C may interrupt them
            self._begun, self._future = False, None
        if future is not None:
            future.result()
        return begun

    def numbers(self) -> np.ndarray:
        """Numbers of the last step, see :meth:`ConsoleBatch.read_outcomes`."""
        with self._on_stream():
            return self._consoles.read_outcomes()

    def check_idle(self) -> None:
        if self._begun:
            raise RuntimeError("send: its step has not been received. Call recv() first.")

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)  # Gymnasium 1.1 may close a deleted environment on this thread

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self._stream is None else wp.ScopedStream(self._stream, sync_enter=False)
