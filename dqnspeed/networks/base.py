"""Base classes of the networks that learners train, and of the options of ``model``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ModelConfig, RunConfig
from dqnspeed.networks.preprocess import Preprocess


class Network(nn.Module):
    """Maps observations ``(B, stack * C, ...)`` of the frames' dtype to numbers ``(B, num_actions) float32``.

    The numbers are action values, or the logits of a policy. ``version`` counts the updates, in memory shared with
    actors. ``version`` is not saved, and stays in the host's memory, so that reading it does not wait for a device.
    """

    version: Tensor

    def __init__(self, preprocess: Preprocess):
        super().__init__()
        self.preprocess = preprocess
        self.register_buffer("version", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        raise NotImplementedError

    def policy_and_value(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(B, num_actions)`` and state values ``(B,)`` of an actor-critic, both float32."""
        raise NotImplementedError

    def in_numpy(self) -> Callable[[np.ndarray], tuple[np.ndarray, ...]] | None:
        """A function of observations that computes action values, or logits and state values, by NumPy.

        ``None`` if torch is as fast, or the network has layers of its own.
        """
        return None

    @property
    def num_bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        return sum(tensor.nbytes for tensor in [*self.parameters(), *self.buffers()])

    def place(self, device: torch.device, channels_last: bool = False) -> None:
        """Move everything but ``version`` to a device; convolutions, images and their weights get a memory layout."""
        version, layout = self.version, torch.channels_last if channels_last else torch.contiguous_format
        self.to(device=device, memory_format=layout)  # type: ignore[call-overload]
        for tensor in [*self.parameters(), *self.buffers()] if channels_last else ():
            if tensor.dim() == 3:  # a background or weights of a layer norm
                tensor.data = tensor.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        self.preprocess.channels_last = channels_last
        self.version = version


@base_of("model")
@dataclass(frozen=True)
class Model(ModelConfig):
    """An option of ``model``: the layers between a scaled observation and the fully connected layers.

    A torso maps floats ``(B, *observation_shape)`` to features ``(B, F)``.

    Attributes:
        orthogonal: actor-critics may initialise the torso's layers orthogonally, too.
        takes_images: observations must be images ``(C, H, W)``.
    """

    orthogonal: ClassVar[bool] = False
    takes_images: ClassVar[bool] = False

    def torso(self, observation_shape: Sequence[int]) -> tuple[nn.Module, int]:
        """The torso, and the number of its features."""
        raise NotImplementedError

    def check_shape(self, observation_shape: Sequence[int]) -> None:
        """Raise :class:`ConfigError` if the torso cannot take observations of this shape."""
        if self.takes_images and len(observation_shape) != 3:
            raise ConfigError(
                f"model={self.name}: takes images, and observations here are {shown(observation_shape)}; use model=mlp."
            )

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if any(not isinstance(units, int) or units < 1 for units in self.hidden):
            raise ConfigError(f"model.hidden={self.hidden}: every layer needs at least 1 unit.")


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors on the CPU."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Context without autocast, for computations that need float32."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):  # autocast does not support meta
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def shown(shape: Sequence[int]) -> str:
    """A shape as text: ``4x84x84``."""
    return "x".join(map(str, shape))
