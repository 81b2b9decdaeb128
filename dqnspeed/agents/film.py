"""A film of one game, for a notebook."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dqnspeed.agents.choice import ActionChoice
from dqnspeed.agents.overlay import Overlay
from dqnspeed.agents.saliency import check_saliency, saliency
from dqnspeed.tracking.video import check_encoder, frame_rate, write_mp4

if TYPE_CHECKING:
    from dqnspeed.agents.agent import Agent

MAX_FILM_S = 120  # a notebook keeps the film in its file


@dataclass(frozen=True)
class GameFilm:
    """A film of a game; as the last value of a notebook's cell it is shown.

    Attributes:
        mp4: the film, H.264.
        episode_return: the return of the game, or until the film's limit of two minutes.
    """

    mp4: bytes
    episode_return: float

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.mp4).decode()
        video = f'<video controls loop muted src="data:video/mp4;base64,{data}" style="max-width:100%"></video>'
        return f"{video}<div>return {self.episode_return:g}</div>"


def film_game(agent: Agent, seed: int, with_saliency: bool) -> GameFilm:
    """Implementation of :meth:`Agent.watch`."""
    check_encoder("watch")
    if with_saliency:
        check_saliency(agent)
    fps, rewards = frame_rate(agent.config, agent.spec), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "game.mp4")
        write_mp4(path, _pictures(agent, seed, with_saliency, rewards, round(MAX_FILM_S * fps)), fps)
        return GameFilm(path.read_bytes(), float(sum(rewards)))


def _pictures(
    agent: Agent, seed: int, with_saliency: bool, rewards: list[float], max_steps: int
) -> Iterator[np.ndarray]:
    """The game, the observation and the outputs, before each step and at the end.

    Args:
        rewards: gets the reward of each step.
    """
    spec, choice = agent.spec, ActionChoice(seed, drawn=agent.has_policy and not agent.config.eval.deterministic)
    overlay = Overlay(agent.action_names, spec.stack, spec.largest, agent.outputs)
    with contextlib.closing(agent.make_env(render_mode="rgb_array")) as env:
        observation, _ = env.reset(seed=seed)
        is_over = False
        while not is_over:
            outputs = agent.compute(agent.network, observation[None])[0]
            action = int(choice(outputs[None])[0])
            salient = saliency(agent, observation) if with_saliency else None
            caption = f"step {len(rewards) + 1:,}   reward so far {sum(rewards):g}"
            yield overlay.draw(env.render(), observation, outputs, action, caption, salient)
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            is_over = terminated or truncated or len(rewards) >= max_steps
        yield overlay.draw(env.render(), observation, None, None, f"the end   return {sum(rewards):g}")
