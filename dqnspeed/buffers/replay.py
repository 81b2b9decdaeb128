"""Replay buffer: transitions that are drawn many times (Lin 1992, Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.n_step import Batch, NStepTransitions
from dqnspeed.buffers.sampler import Sampler
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ReplayConfig
from dqnspeed.execution.arrays import Array
from dqnspeed.execution.compiling import compiled


@base_of("replay")
@dataclass(frozen=True)
class Replay(ReplayConfig):
    """An option of ``replay``: experience that is drawn many times."""

    def make(self, storage: DeviceStorage, seed: int) -> Sampler:
        """Make the sampler of the rows of ``storage``."""
        raise NotImplementedError


class ReplayBuffer:
    """Transitions of a storage, and a sampler that chooses among them.

    On a device a draw reads tensors alone, so that it can be part of a captured graph; :meth:`prepare` brings the
    tensors up to date.

    Args:
        gamma: discount of a step.
        compiles: compile the draw of tensors, so that few kernels make a batch.
    """

    def __init__(self, storage: DeviceStorage, sampler: Sampler, gamma: float, compiles: bool = False):
        self.storage, self.sampler = storage, sampler
        storage.sampler = sampler
        self._transitions = NStepTransitions(storage, gamma)
        self._compiled = compiled(self._draw) if compiles and storage.arrays.device else None

    def rows_allowed(self) -> np.ndarray:
        return self.storage.rows_allowed()

    def truncate_open_episodes(self, env_index: int, count: int) -> None:
        self.storage.truncate_open_episodes(env_index, count)

    def discard_pending(self) -> None:
        """Do nothing: a replay keeps random actions, too."""

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement.

        Raises:
            LookupError: there is none yet.
        """
        self.prepare(batch_size)
        return self.draw_batch(batch_size)

    def prepare(self, batch_size: int) -> None:
        """Bring the tensors that batches are drawn from up to date.

        Raises:
            LookupError: there is nothing to draw yet.
        """
        self.storage.receive()
        if self.sampler.is_empty():
            raise LookupError("the replay holds no complete transition yet")

    def draw_batch(self, batch_size: int) -> Batch:
        """Draw from the transitions that are on the device."""
        tensors, weighted = (self._compiled or self._draw)(batch_size)
        batch = Batch(*tensors)
        if weighted is not None:
            index, weights = weighted
            batch.weights = self.storage.arrays.tensor(weights)
            batch.update_priorities = partial(self._update_priorities, index, int(self.storage.received.sum()))
        return batch

    def drawn(self) -> None:
        """Do nothing: batches are drawn with replacement."""

    def samples_in_batch(self, batch_size: int) -> int:
        return batch_size

    def blank(self, batch_size: int) -> Batch:
        batch = self._transitions.blank(batch_size)
        if self.sampler.weighted:
            batch.weights = torch.ones(batch_size, device=self.storage.device)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """All stored rows, and the state of the sampler."""
        return {**self.storage.state_dict(), "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.storage.load_state_dict(state)
        self.sampler.load_state_dict(state["sampler"])

    def resume_empty(self, updates: int) -> None:
        self.sampler.resume_empty(updates)

    def close(self) -> None:
        self._compiled = None
        self.storage.close()

    def _draw(self, batch_size: int) -> tuple[tuple[Tensor | None, ...], tuple[Array, Array] | None]:
        """Tensors of a batch; if it has weights, also the index of its transitions and the weights."""
        env, row, weights = self.sampler.draw(batch_size)
        tensors = self._transitions.tensors(env, row)
        return tensors, None if weights is None else (self.storage.index(env, row), weights)

    def _update_priorities(self, index: Array, received: int, errors: Tensor) -> None:
        """Pass on the ``errors`` of a batch, unless rows came in since, which may stand in its rows' places."""
        if received == int(self.storage.received.sum()):
            self.sampler.update_priorities(index, errors)
