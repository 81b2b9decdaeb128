"""Saliency: the parts of an observation that the outputs of an agent depend on.

Perturbations as in Greydanus et al., "Visualizing and Understanding Atari Agents" (2018), section 3. They need forward
passes only, so they explain any network, and people read them more easily than gradients.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from dqnspeed.config.options import ConfigError

if TYPE_CHECKING:
    from dqnspeed.agents.agent import Agent

CELLS = 12  # perturbed places along the longer side
AT_ONCE = 16  # places in one batch
ROUNDING = 1e-9  # a change of the outputs that is no more than this share is none
MASK_SIZE, BLUR_SIZE = 0.75, 0.5  # standard deviations of the masks and of the blur, in distances between two places
COLOUR, STRENGTH = np.array([255, 40, 40], np.float32), 0.7  # of the most salient pixel


def check_saliency(agent: Agent) -> None:
    """Raise :class:`ConfigError` if the agent sees no images."""
    if len(agent.spec.frame_shape) != 3:
        raise ConfigError(f"saliency=true: {agent.config.env.id} shows its agent numbers and no images. Leave it out.")


def saliency(agent: Agent, observation: np.ndarray) -> np.ndarray:
    """Saliency of each pixel, ``(H, W) float32`` from 0 to 1.

    Each of a grid of places is blurred in all frames of the stack, and scored by half the squared change of the
    outputs. The place with the largest score gets 1. Where the network subtracts a background, a place becomes
    background instead: what does not move would be news to the network if it were blurred.

    Args:
        observation: one observation of images, ``(stack * C, H, W)``.
    """
    height, width = observation.shape[1:]
    masks, grid = _masks(height, width)
    sharp = observation.astype(np.float32)
    if agent.network.preprocess.subtract:
        plain = agent.network.preprocess.background.cpu().numpy()
    else:
        blurred = cv2.GaussianBlur(sharp.transpose(1, 2, 0), (0, 0), BLUR_SIZE * max(height, width) / CELLS)
        plain = blurred.reshape(height, width, -1).transpose(2, 0, 1)
    unchanged = agent.compute(agent.network, observation[None])[0]
    scores = np.zeros(len(masks), np.float32)
    for start in range(0, len(masks), AT_ONCE):
        perturbed = sharp + masks[start : start + AT_ONCE, None] * (plain - sharp)
        if np.issubdtype(observation.dtype, np.integer):
            np.rint(perturbed, out=perturbed)
        outputs = agent.compute(agent.network, perturbed.astype(observation.dtype))
        scores[start : start + AT_ONCE] = 0.5 * np.square(outputs - unchanged).sum(axis=1)
    if (most := float(scores.max())) <= ROUNDING * float(np.square(unchanged).sum()):
        return np.zeros((height, width), np.float32)
    scores = scores.reshape(grid) / most
    resized: np.ndarray = cv2.resize(scores, (width, height), interpolation=cv2.INTER_LINEAR)
    return resized.astype(np.float32, copy=False)


def tinted(image: np.ndarray, salient: np.ndarray) -> np.ndarray:
    """``image`` ``(H, W, 3) uint8`` with ``salient`` ``(H, W)`` places in red."""
    share = STRENGTH * salient[..., None]
    mixed: np.ndarray = (image * (1 - share) + COLOUR * share).astype(np.uint8)
    return mixed


@cache
def _masks(height: int, width: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Gaussian masks ``(K, H, W) float32`` around a grid of places, and the shape of the grid."""
    distance = max(1.0, max(height, width) / CELLS)
    places = [(np.arange(max(1, round(side / distance))) + 0.5) * distance for side in (height, width)]
    along = [
        np.exp(-np.square(np.arange(side)[None] + 0.5 - centres[:, None]) / (2 * (MASK_SIZE * distance) ** 2))
        for side, centres in zip((height, width), places, strict=True)
    ]
    masks = np.einsum("ih,jw->ijhw", *along).reshape(-1, height, width)
    return masks.astype(np.float32), (len(places[0]), len(places[1]))
