"""Games of an agent, played for the live page."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

from dqnspeed.agents.agent import Agent
from dqnspeed.agents.choice import ActionChoice
from dqnspeed.agents.saliency import saliency, tinted
from dqnspeed.live.server import PageServer
from dqnspeed.tracking.video import enlarge, frame_rate, picture

PICTURES_PER_S = 10  # of a game, at most
END_S = 1.5  # for which the end of a game is shown
SALIENCY_EVERY_S = 0.5  # computing it takes as long as many steps
MIN_WIDTH = 160  # pixels of a game's picture
MAX_STACK = 4  # frames of an observation that are shown, the newest


class Moment(NamedTuple):
    """A moment of a game.

    Attributes:
        message: the moment as the page takes it.
        image: the game ``(h, w, 3) uint8``; ``None`` if the environment draws none.
        is_over: whether the game has ended.
        total: the return so far.
    """

    message: bytes
    image: np.ndarray | None
    step: int
    total: float
    is_over: bool


class Viewer:
    """Plays games of an agent at the speed of people, and describes each moment to the page.

    Args:
        agent: its weights may change while it plays.
        fps: agent steps a second; ``None``: 60 frames a second for Atari, or as the environment says.
    """

    def __init__(self, agent: Agent, choose: ActionChoice, seed: int, fps: float | None = None):
        self._agent, self._choose, self._seed = agent, choose, seed
        self._period = 1 / (fps or frame_rate(agent.config, agent.spec))
        self._sees_images = len(agent.spec.frame_shape) == 3
        self._next_game, self._wants_saliency = threading.Event(), False
        self._salient: np.ndarray | None = None
        self._salient_at = 0.0
        self._problem = agent.render_problem()
        self._env = agent.make_env(render_mode=None if self._problem else "rgb_array")
        self._game = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the agent, for the page."""
        return {
            "actions": self._agent.action_names,
            "outputs": "probabilities of the policy" if self._agent.has_policy else self._agent.outputs,
            "sees_images": self._sees_images,
            "saliency": self._wants_saliency,
            "sees": f"{self._agent.observation_space.shape} {self._agent.spec.frame_dtype}",
            "problem": f"The game is not drawn: {self._problem}" if self._problem else "",
        }

    def on_message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what a browser asks for, the next game or saliency; returns the facts that have changed."""
        if message.get("next") is True:
            self._next_game.set()
        if not isinstance(message.get("saliency"), bool):
            return {}
        self._wants_saliency = message["saliency"] and self._sees_images
        return {"saliency": self._wants_saliency}

    def play(self) -> Iterator[Moment]:
        """Play games without end, and yield at most :data:`PICTURES_PER_S` moments a second on average."""
        due = due_picture = 0.0
        while True:
            observation, _ = self._env.reset(seed=(self._seed + self._game) % 2**31)
            self._game += 1
            self._next_game.clear()
            step, total, is_over = 0, 0.0, False
            while not is_over and not self._next_game.is_set():
                outputs = self._agent.compute(self._agent.network, observation[None])[0]
                action = int(self._choose(outputs[None])[0])
                if (now := time.monotonic()) >= due_picture:
                    due_picture = max(due_picture + 1 / PICTURES_PER_S, now)
                    yield self._moment(observation, outputs, action, step, total)
                observation, reward, terminated, truncated, _ = self._env.step(action)
                step, total, is_over = step + 1, total + reward, terminated or truncated
                time.sleep(max(0.0, due - time.monotonic()))
                due = max(due, time.monotonic() - self._period) + self._period
            outputs = self._agent.compute(self._agent.network, observation[None])[0]
            yield self._moment(observation, outputs, None, step, total, is_over)
            self._next_game.wait(END_S if is_over else 0)

    def close(self) -> None:
        self._env.close()

    def _moment(
        self,
        observation: np.ndarray,
        outputs: np.ndarray,
        action: int | None,
        step: int,
        total: float,
        is_over: bool = False,
    ) -> Moment:
        image = self._env.render() if self._env.render_mode else None
        pictures = {"game": image, "seen": self._seen(observation)}
        encoded = {name: _png(enlarge(one, MIN_WIDTH)) for name, one in pictures.items() if one is not None}
        values = torch.from_numpy(outputs).softmax(0).numpy() if self._agent.has_policy else outputs
        facts = {
            "game": self._game,
            "step": step,
            "return": total if np.isfinite(total) else None,
            "action": action,
            "over": is_over,
            "values": [round(float(value), 4) if np.isfinite(value) else None for value in values],
            "bytes": {name: len(data) for name, data in encoded.items()},
        }
        header = json.dumps(facts).encode()
        message = b"".join([struct.pack("<I", len(header)), header, *encoded.values()])
        return Moment(message, image, step, total, is_over)

    def _seen(self, observation: np.ndarray) -> np.ndarray | None:
        """The frames of an observation side by side, the newest on the right; ``None`` if they are no images."""
        if not self._sees_images:
            return None
        spec = self._agent.spec
        frames = observation.reshape(spec.stack, *spec.frame_shape)[-MAX_STACK:]
        salient = self._newest_saliency(observation) if self._wants_saliency else None
        pictures = [picture(frame, spec.largest) for frame in frames]
        return np.concatenate([one if salient is None else tinted(one, salient) for one in pictures], axis=1)

    def _newest_saliency(self, observation: np.ndarray) -> np.ndarray:
        if self._salient is None or time.monotonic() - self._salient_at >= SALIENCY_EVERY_S:
            self._salient = saliency(self._agent, observation)
            self._salient_at = time.monotonic()
        return self._salient


def show_games(
    viewer: Viewer, server: PageServer, is_over: Callable[[], bool] = lambda: False, always: bool = False
) -> Iterator[Moment]:
    """Play while a browser shows the page, or ``always``, until ``is_over()``; yield each moment that was shown."""
    for moment in viewer.play():
        server.show(moment.message)
        yield moment
        while not always and not server.watched.wait(0.2) and not is_over():
            pass
        if is_over():
            return


def _png(image: np.ndarray) -> bytes:
    encoded: np.ndarray = cv2.imencode(".png", image[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
    return encoded.tobytes()
