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
    values: Array  # (B,) float32, of the states, by the network that acted; with a judge by its own
    returns: Array  # (B,) float32, what ``values`` are to become: lambda-returns, or the targets of V-trace
    advantages: Array  # (B,) float32, of the actions
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


def vtrace(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    log_ratios: np.ndarray,
    gamma: float,
    lam: float,
    most: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Targets of the values, and advantages, of V-trace (Espeholt et al. 2018, section 4.1, equation 1, with the lambda
    of remark 2), each ``(N, T) float32``.

    ``v[t] = V[t] + δ[t] + γ c[t] (v[t+1] - V[t+1])`` with ``δ[t] = ρ[t] (r[t] + γ V[t+1] - V[t])``, ``ρ = min(most,
    ratio)`` and ``c = λ min(1, ratio)``; the advantage is ``r[t] + γ v[t+1] - V[t]``. Nothing follows a terminated
    step, and only ``V[t+1]``, the value of the last observation, follows a truncated one.

    Args:
        log_ratios: ``(N, T)``: log-probability of each action now, less that when it was taken.
        values: ``(N, T + 1)``, by the network as it is now; the rest as of :func:`lambda_returns`.
    """
    ratios = np.exp(log_ratios)
    rho, c = np.minimum(most, ratios), lam * np.minimum(1.0, ratios)
    targets, advantages = np.empty_like(rewards, np.float32), np.empty_like(rewards, np.float32)
    correction = np.zeros_like(values[:, -1])  # v[t+1] - V[t+1]
    for t in range(rewards.shape[1] - 1, -1, -1):
        correction = np.where(truncated[:, t] | terminated[:, t], 0, correction)
        following = np.where(terminated[:, t], 0, values[:, t + 1])
        advantages[:, t] = rewards[:, t] + gamma * (following + correction) - values[:, t]
        delta = rho[:, t] * (rewards[:, t] + gamma * following - values[:, t])
        correction = delta + gamma * c[:, t] * correction
        targets[:, t] = values[:, t] + correction
    return targets, advantages


# Values (K,) of observations, and log-probabilities (K,) of actions taken there, by the network as it is now.
Judge = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Rollouts(Rings):
    """Rings that are read T rows at a time: ``epochs`` times through all of them, in shuffled batches.

    A rollout is complete with its T rows and one more of each lane, whose value is bootstrapped from. All batches have
    the same size: since final frames are no transitions, the last batch is filled up from the start of the shuffle.

    Args:
        steps: T, rows of a rollout in each lane.
        device: of the learner; a GPU is sent each rollout once, for all epochs.

    Attributes:
        judge: the learner's network, if returns are to be corrected for the policy that acted (V-trace).
    """

    judge: Judge | None = None

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
        self._computed = np.empty((3, 0), np.float32)  # values, returns and advantages of the current rollout
        self._sampled = False

    def discard_pending(self) -> None:
        """Discard what came before learning started."""
        now = self.cursors()
        self.taken += self._transitions(self._begin, now)
        self._begin = now

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        unmade = super().cut(lane, count)
        self.taken += sum(row >= self._begin[at] for at, row in unmade)  # agent steps that never wait any more
        return unmade

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now: those of all epochs once a rollout is complete."""
        while (self.cursors() > self._begin + self._steps).all():
            if self._transitions(self._begin, self._begin + self._steps):
                return self._epochs * self._per_epoch(batch_size)
            self._begin = self._begin + self._steps  # final frames alone
        return 0

    def rows_allowed(self) -> np.ndarray:
        """Each lane may be ahead by a rollout, whichever actor fills it."""
        return self._begin + 2.0 * (self._steps + 1)

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
            batch = self._gather(chosen, self._computed)
        else:
            batch = self._on_device.take(chosen, torch.from_numpy(chosen).to(self._device, non_blocking=True))
        if not self._batches:
            self.taken += self._transitions(self._begin, self._begin + self._steps)
            self._begin = self._begin + self._steps
        return batch

    def blank(self, batch_size: int) -> RolloutBatch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        batch = self._gather(np.zeros(batch_size, np.int64), np.zeros((3, 1), np.float32))
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

    def _gather(self, chosen: np.ndarray, computed: np.ndarray) -> RolloutBatch:
        """The transitions ``chosen`` ``(B,) int64`` of the rollout, numbered lane by lane."""
        lane, step = np.divmod(chosen, self._steps)
        row = self._begin[lane] + step
        at, flat = self._index(lane, row), self._flat
        values, returns, advantages = computed[:, chosen]
        return RolloutBatch(
            observations=self._stacks(lane, row)[0],
            actions=flat["actions"][at].astype(np.int64),
            log_probs=flat["log_probs"][at],
            values=values,
            returns=returns,
            advantages=advantages,
            versions=flat["versions"][at],
        )

    def _per_epoch(self, batch_size: int) -> int:
        return len(self._begin) * self._steps // batch_size

    def _plan(self, batch_size: int) -> None:
        """Compute the returns of a complete rollout and shuffle its transitions for every epoch."""
        lanes, flat = np.arange(len(self._begin))[:, None], self._flat
        at = self._index(lanes, self._begin[:, None] + np.arange(self._steps + 1))
        inside = at[:, :-1]
        rewards, ends = flat["rewards"][inside], (flat["terminated"][inside], flat["truncated"][inside])
        if self.judge is None:
            values = flat["values"][at]
            returns = lambda_returns(rewards, values, *ends, self._gamma, self._lam)
            advantages = returns - values[:, :-1]
        else:
            values, log_probs = self._judged(self.judge)
            log_ratios = log_probs[:, :-1] - flat["log_probs"][inside]
            returns, advantages = vtrace(rewards, values, *ends, log_ratios, self._gamma, self._lam)
        self._computed = np.stack([values[:, :-1].ravel(), returns.ravel(), advantages.ravel()])
        transitions = np.flatnonzero(flat["transition"][inside])
        count = self._per_epoch(batch_size)
        for _ in range(self._epochs):
            shuffled = np.resize(self._rng.permutation(transitions), count * batch_size)
            self._batches += np.split(shuffled, count)
        if self._device is not None:
            self._on_device = self._gather(np.arange(self._computed.shape[1]), self._computed).to(self._device)

    def _judged(self, judge: Judge) -> tuple[np.ndarray, np.ndarray]:
        """Values and log-probabilities ``(N, T + 1)``; those of final frames, and of the last, mean nothing."""
        found = list[tuple[np.ndarray, np.ndarray]]()
        for number, begin in enumerate(self._begin):  # lane by lane: their stacks would take much memory
            lane = np.full(self._steps + 1, number)
            row = begin + np.arange(self._steps + 1)
            actions = self._flat["actions"][self._index(lane, row)].astype(np.int64)
            found.append(judge(self._stacks(lane, row)[0], actions))
        values, log_probs = zip(*found, strict=True)
        return np.stack(values), np.stack(log_probs)
