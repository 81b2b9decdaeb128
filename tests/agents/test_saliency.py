"""Saliency, and films of a game for a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from conftest import TOY, make_run
from torch import Tensor

from dqnspeed.agents.agent import Agent
from dqnspeed.agents.saliency import check_saliency, saliency, tinted
from dqnspeed.config.options import ConfigError
from dqnspeed.networks.preprocess import Preprocess

FILMED = ["env=breakout", "model=small", "env.max_episode_frames=120"]


class Corner(torch.nn.Module):
    """A network that looks at one corner of the newest frame only."""

    def __init__(self, subtract: bool = False):
        super().__init__()
        self.preprocess = Preprocess((4, 84, 84), 255, subtract)

    def forward(self, observations: Tensor) -> Tensor:
        corner = observations[:, -1, 56:, :28].float() / 255
        return torch.stack([corner.mean(dim=(1, 2)), corner.amax(dim=(1, 2))], dim=1)


@pytest.fixture(scope="module")
def agent() -> Agent:
    """An agent of Breakout with random weights."""
    return Agent(make_run(*FILMED), device="cpu")


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_what_the_network_looks_at_is_salient(kind: type, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "network", Corner())
    observation = np.random.default_rng(0).integers(0, 256, (4, 84, 84)).astype(kind)
    found = saliency(agent, observation)
    assert found.shape == (84, 84) and found.dtype == np.float32 and found.min() >= 0 and found.max() > 0.9
    row, column = np.unravel_index(found.argmax(), found.shape)
    assert row >= 56 and column < 28
    assert found[:36].max() < 0.01 and found[:, 48:].max() < 0.01


def test_the_background_is_not_salient(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    network, background = Corner(subtract=True), np.random.default_rng(1).integers(0, 256, (1, 84, 84)).astype(np.uint8)
    network.preprocess.measure(torch.from_numpy(background[None]))
    monkeypatch.setattr(agent, "network", network)
    observation = np.repeat(background, 4, axis=0)
    assert not saliency(agent, observation).any()
    observation[3, 62:66, 6:10] = 255  # the ball
    row, column = np.unravel_index(saliency(agent, observation).argmax(), (84, 84))
    assert 56 <= row <= 72 and column <= 16


def test_nothing_of_an_empty_picture_is_salient(agent: Agent) -> None:
    assert not saliency(agent, np.full((4, 84, 84), 87, np.uint8)).any()


def test_salient_places_are_red() -> None:
    image, salient = np.full((2, 2, 3), 100, np.uint8), np.array([[0, 1], [0, 0.5]], np.float32)
    red, green, _ = tinted(image, salient).transpose(2, 0, 1).astype(int)
    assert (tinted(image, salient)[0, 0] == 100).all()
    assert red[0, 1] > red[1, 1] > 100 > green[1, 1] > green[0, 1]


def test_an_agent_that_sees_numbers_has_no_saliency() -> None:
    with pytest.raises(ConfigError, match="shows its agent numbers and no images"):
        check_saliency(Agent(make_run(*TOY), device="cpu"))


@pytest.mark.parametrize("with_saliency", [False, True])
def test_an_agent_is_watched_in_a_notebook(with_saliency: bool, agent: Agent, tmp_path: Path) -> None:
    film = agent.watch(seed=3, saliency=with_saliency)
    assert film.episode_return >= 0
    assert re.match(r'<video controls [^>]*src="data:video/mp4;base64,[\w+/=]+"', film._repr_html_())
    (tmp_path / "film.mp4").write_bytes(film.mp4)
    capture, frames = cv2.VideoCapture(str(tmp_path / "film.mp4")), list[np.ndarray]()
    while (read := capture.read())[0]:
        frames.append(read[1])
    assert 20 <= len(frames) <= 32  # 120 frames of the console, and the end
    assert agent.watch(seed=3).episode_return == film.episode_return == float(film.episode_return)
