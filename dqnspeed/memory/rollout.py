"""Rollouts: T steps of every environment, learnt from for some epochs and then dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.rings import Rings

Array = np.ndarray | torch.Tensor


@dataclass(slots=True)
class RolloutBatch:
    """B transitions of a rollout, with log-probabilities and values of the policy that acted.

    On a GPU all but ``versions`` are tensors on it.
    """

    observations: Array  # (B, stack * C, ...) of the frames' dtype
    actions: Array  # (B,) int64
    log_probs: Array  # (B,) float32, of the actions under the policy that acted
    values: Array  # (B,) float32, of the states, by the network that acted
    returns: Array  # (B,) float32, lambda-returns; less ``values`` they are the advantages
    versions: np.ndarray  # (B,) int64, updates done to the weights that acted

    def to(self, device: torch.device) -> RolloutBatch:
        """The same on ``device``."""
        return self._each(lambda column: torch.as_tensor(column).to(device), self.versions)

    def take(self, chosen: np.ndarray, index: torch.Tensor) -> RolloutBatch:
        """The transitions ``chosen`` ``(B,) int64`` of a batch on a device; ``index`` is ``chosen`` there."""
        return self._each(lambda column: column[index], self.versions[chosen])

    def _each(self, change: Callable[[Any], Array], versions: np.ndarray) -> RolloutBatch:
        columns = {f.name: change(getattr(self, f.name)) for f in fields(self) if f.name != "versions"}
        return RolloutBatch(**columns, versions=versions)


def lambda_returns(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    gamma: float,
    lam: float,
) -> np.ndarray:
    """λ-returns ``(N, T) float32`` (Sutton and Barto, equation 12.18; less the values they are the advantages of
    Schulman et al. 2016, equation 16).

    ``G[t] = r[t] + γ ((1 - λ) v[t+1] + λ G[t+1])``; nothing follows a terminated step, and only ``v[t+1]``, the value
    of the last observation, follows a truncated one.

    Args:
        rewards, terminated, truncated: ``(N, T)``.
        values: ``(N, T + 1)``, of each observation and of the one after the last.
    """
    returns = np.empty_like(rewards, np.float32)
    following = values[:, -1]
    for t in range(rewards.shape[1] - 1, -1, -1):
        value = values[:, t + 1]
        following = np.where(truncated[:, t], value, (1 - lam) * value + lam * following)
        returns[:, t] = following = rewards[:, t] + gamma * np.where(terminated[:, t], 0, following)
    return returns


class Rollouts(Rings):
    """Rings that are read T rows at a time: ``epochs`` times through all of them, in shuffled batches.

    A rollout is complete with its T rows and one more of each lane, whose value is bootstrapped from. All batches have
    the same size: since final frames are no transitions, the last batch is filled up from the start of the shuffle.

    Args:
        steps: T, rows of a rollout in each lane.
        device: of the learner; a GPU is sent each rollout once, for all epochs.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        steps: int,
        epochs: int,
        gamma: float,
        lam: float,
        seed: int = 0,
        lock: Any = None,
        device: torch.device | None = None,
    ):
        super().__init__(buffers, stack, lock=lock)
        self._device = None if device is None or device.type == "cpu" else device
        self._on_device: RolloutBatch | None = None  # the rollout, on a GPU
        self._steps, self._epochs, self._gamma, self._lam = steps, epochs, gamma, lam
        self._begin: np.ndarray = np.zeros(len(self._written), np.int64)
        self.taken = 0  # transitions learnt from or discarded
        self.capacity = 2 * len(self._written) * (steps + 1)  # that may be waiting: of this rollout and the next
        self._rng = np.random.default_rng([seed, 2])
        self._batches: list[np.ndarray] = []  # of the current rollout
        self._returns = np.empty(0, np.float32)
        self._sampled = False

    def discard_pending(self) -> None:
        """Discard what came before learning started."""
        now = self.cursors()
        self.taken += self._transitions(self._begin, now)
        self._begin = now

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now: those of all epochs once a rollout is complete."""
        while (self.cursors() > self._begin + self._steps).all():
            if self._transitions(self._begin, self._begin + self._steps):
                return self._epochs * self._per_epoch(batch_size)
            self._begin = self._begin + self._steps  # final frames alone
        return 0

    def waiting(self) -> int:
        """Transitions not yet learnt from."""
        return self._transitions(self._begin, self.cursors())

    def sample(self, batch_size: int) -> RolloutBatch:
        """The next batch of the rollout; after its last one the next rollout is used.

        Raises:
            LookupError: no rollout is complete.
        """
        self._sampled = True
        if not self._batches:
            if not self.due(batch_size):
                raise LookupError("no rollout is complete yet")
            self._plan(batch_size)
        chosen = self._batches.pop()
        if self._on_device is None:
            batch = self._gather(chosen, self._returns)
        else:
            batch = self._on_device.take(chosen, torch.from_numpy(chosen).to(self._device, non_blocking=True))
        if not self._batches:
            self.taken += self._transitions(self._begin, self._begin + self._steps)
            self._begin = self._begin + self._steps
        return batch

    def blank(self, batch_size: int) -> RolloutBatch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        batch = self._gather(np.zeros(batch_size, np.int64), np.zeros(1, np.float32))
        return batch if self._device is None else batch.to(self._device)

    def state_dict(self) -> dict[str, Any]:
        """Only between two rollouts. Before the first batch it holds every row, from which the learner measures its
        background."""
        rings = self._unlearnt(self._begin) if self._sampled else super().state_dict()
        rng = self._rng.bit_generator.state
        return {**rings, "begin": self._begin.copy(), "rng": rng, "sampled": self._sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._begin, self._sampled = state["begin"].copy(), state.get("sampled", False)
        self._rng.bit_generator.state = state["rng"]

    def _gather(self, chosen: np.ndarray, returns: np.ndarray) -> RolloutBatch:
        """The transitions ``chosen`` ``(B,) int64`` of the rollout, numbered lane by lane."""
        lane, step = np.divmod(chosen, self._steps)
        row = self._begin[lane] + step
        at, flat = self._index(lane, row), self._flat
        return RolloutBatch(
            observations=self._stacks(lane, row)[0],
            actions=flat["actions"][at].astype(np.int64),
            log_probs=flat["log_probs"][at],
            values=flat["values"][at],
            returns=returns[chosen],
            versions=flat["versions"][at],
        )

    def _per_epoch(self, batch_size: int) -> int:
        return len(self._begin) * self._steps // batch_size

    def _plan(self, batch_size: int) -> None:
        """Compute the returns of a complete rollout and shuffle its transitions for every epoch."""
        lanes, flat = np.arange(len(self._begin))[:, None], self._flat
        at = self._index(lanes, self._begin[:, None] + np.arange(self._steps + 1))
        inside = at[:, :-1]
        returns = lambda_returns(
            flat["rewards"][inside], flat["values"][at], flat["terminated"][inside], flat["truncated"][inside],
            self._gamma, self._lam,
        )  # fmt: skip
        self._returns = returns.ravel()
        transitions = np.flatnonzero(flat["transition"][inside])
        count = self._per_epoch(batch_size)
        for _ in range(self._epochs):
            shuffled = np.resize(self._rng.permutation(transitions), count * batch_size)
            self._batches += np.split(shuffled, count)
        if self._device is not None:
            self._on_device = self._gather(np.arange(len(self._returns)), self._returns).to(self._device)
