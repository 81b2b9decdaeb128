"""The process of a training's live page, which a run starts: it serves the page, and plays games for it.

A process of its own keeps the games from the threads of the learner. Messages come on standard input, and replies go to
standard output; :class:`dqnspeed.tracking.live_page.PageProcess` is the other end.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.config.options import ConfigError
from dqnspeed.live.server import PageServer, read_page
from dqnspeed.system.messages import kind_and_line

NICENESS = 5  # the training comes first
CLIP_S = 5.0  # of the clips for a notebook
EXIT_S = 15.0  # after a run that was killed, for slow browsers and for a step of the game
KILLED = "The run ended without a message; it may have been killed."


class PageWorker:
    """The state of this process: the newest weights, and whether the run has ended."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints is no reply
        self._weights = deque[tuple[Mapping[str, np.ndarray], int]](maxlen=1)
        self._started, self._ended = threading.Event(), threading.Event()
        self._config = dict[str, Any]()
        self._viewer: Any = None

    def run(self) -> None:
        try:
            server = PageServer(read_page(), self._on_message)
        except ConfigError as error:
            self._reply(problem=str(error))
            return
        self._reply(line=server.line)
        threading.Thread(target=self._read, args=(server,), daemon=True).start()
        try:
            self._play(server)
        except Exception as error:  # a user's environment may raise anything
            from dqnspeed.envs import ActorError  # its import takes long

            lines = str(error).rstrip().split("\n")  # the last one of a traceback is its cause
            problem = lines[-1] if isinstance(error, (ActorError, ConfigError)) else kind_and_line(error)
            sentence = f"The game cannot be shown: {problem.rstrip('.')}."
            server.send_facts(problem=sentence)
            self._reply(problem=f"live=true: {sentence}")
        self._ended.wait()
        server.close()

    def _read(self, server: PageServer) -> None:
        """Take messages until the run ends."""
        from safetensors.numpy import load

        ended = KILLED
        try:
            for header, data in _messages():
                server.send_facts(**header.get("facts", {}))
                ended = header.get("ended", ended)
                if "config" in header:
                    self._config = header
                    self._started.set()
                if data:
                    self._weights.append((load(data), header["agent_steps"]))
        finally:
            server.send_facts(ended=ended)
            self._ended.set()
            self._started.set()
            exit_later = threading.Timer(EXIT_S, os._exit, [1])  # the environment may hang
            exit_later.daemon = True
            exit_later.start()

    def _play(self, server: PageServer) -> None:
        """Play games with the newest weights, while a browser shows the page or a notebook shows clips."""
        self._started.wait()
        while not (self._ended.is_set() or self._config["clips"] or server.watched.wait(0.2)):
            pass  # nothing is loaded for a page that nobody watches
        if self._ended.is_set():
            return
        import cv2
        import torch

        from dqnspeed.agents.agent import Agent
        from dqnspeed.agents.choice import ActionChoice
        from dqnspeed.cli import compose, resume
        from dqnspeed.live.viewer import Viewer, show_games

        torch.set_num_threads(1)
        cv2.setNumThreads(1)
        with compose.own_hydra():
            cfg = resume.of_copy(self._config["config"], Path(self._config["folder"]))
            trained = compose.from_hydra(cfg)
        agent = Agent(trained, device="cpu")
        viewer = Viewer(agent, ActionChoice(None, drawn=agent.has_policy), trained.seed)
        clips = Clips(self._reply) if self._config["clips"] else None
        with contextlib.closing(viewer) as self._viewer:
            server.send_facts(**viewer.facts)
            for moment in show_games(viewer, server, self._ended.is_set, always=clips is not None):
                if clips is not None and moment.image is not None:
                    clips.add(moment.image)
                if self._weights:
                    weights, agent_steps = self._weights.popleft()
                    agent.set_weights(weights, agent_steps)
                    server.send_facts(weights=f"{agent_steps:,}")

    def _on_message(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        return {} if self._viewer is None else dict(self._viewer.on_message(wish))

    def _reply(self, **reply: Any) -> None:
        try:
            print(json.dumps(reply), file=self._replies, flush=True)
        except OSError:  # the run was killed
            self._ended.set()


class Clips:
    """Short animations of the newest moments, for a notebook."""

    def __init__(self, reply: Any):
        self._reply = reply
        self._images = list[np.ndarray]()
        self._sent = time.monotonic()

    def add(self, image: np.ndarray) -> None:
        from PIL import Image

        self._images.append(image)
        seconds = time.monotonic() - self._sent
        if seconds >= CLIP_S:
            first, *others = (Image.fromarray(one).quantize(64) for one in self._images)
            clip, period_ms = io.BytesIO(), round(1000 * seconds / len(self._images))
            first.save(clip, "GIF", save_all=True, append_images=others, duration=period_ms, loop=0)
            self._images.clear()
            self._sent = time.monotonic()
            self._reply(clip=base64.b64encode(clip.getvalue()).decode())


def _messages() -> Iterator[tuple[dict[str, Any], bytes]]:
    """Messages of the run: a line of JSON, and as many bytes of weights as the line says."""
    source = sys.stdin.buffer
    while (line := source.readline()).endswith(b"\n"):
        header = json.loads(line)
        data = source.read(header["bytes"])
        if len(data) < header["bytes"]:
            return  # the run was killed
        yield header, data


def main() -> None:
    """Entry point."""
    os.nice(NICENESS)
    PageWorker().run()
