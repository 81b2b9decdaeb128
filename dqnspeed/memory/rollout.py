"""Rollouts: T steps of every environment, learnt from for some epochs and then dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.execution.arrays import Array
from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.held import HeldRings


@dataclass(slots=True)
class RolloutBatch:
    """B transitions of a rollout, as tensors, with log-probabilities and values of the policy that acted."""

    observations: Tensor  # (B, stack * C, ...) of the frames' dtype
    actions: Tensor  # (B,) int64
    log_probs: Tensor  # (B,) float32, of the actions under the policy that acted
    values: Tensor  # (B,) float32, of the states, by the network that acted; with a judge by its own
    returns: Tensor  # (B,) float32, what ``values`` are to become: lambda-returns, or the targets of V-trace
    advantages: Tensor  # (B,) float32, of the actions
    versions: Tensor  # (B,) int64, updates done to the weights that acted


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
Judge = Callable[[Tensor, Tensor], Tensor]


class Rollouts(HeldRings):
    """Rings that are read T rows at a time: ``epochs`` times through all of them, in shuffled batches.

    A rollout is complete with its T rows and one more of each lane, whose value is bootstrapped from. All batches have
    the same size: since final frames are no transitions, the last batch is filled up from the start of the shuffle.
    Returns and shuffles are computed on the host, and sent to the device once for all epochs.

    Args:
        steps: T, rows of a rollout in each lane.

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
        device: torch.device | None = None,
    ):
        super().__init__(buffers, stack, device)
        self._steps, self._epochs, self._gamma, self._lam = steps, epochs, gamma, lam
        self._begin: np.ndarray = np.zeros(len(self._written), np.int64)  # first row of the rollout, or of the next
        self._rng = np.random.default_rng([seed, 2])
        self._planned = dict[str, Array]()  # (N * T, ...) each, of the rollout's rows by lane; and the batches
        self._next = self.arrays.own(np.zeros(1, np.int64))  # the batch that is drawn next
        self._left = 0  # batches of the rollout
        self.taken = 0  # transitions learnt from or discarded
        self.capacity = 2 * len(self._written) * (steps + 1)  # that may be waiting: of this rollout and the next
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
        allowed: np.ndarray = np.minimum(super().rows_allowed(), self._begin + 2.0 * (self._steps + 1))
        return allowed

    def waiting(self) -> int:
        """Transitions not yet learnt from."""
        return self._transitions(self._begin, self.cursors())

    def sample(self, batch_size: int) -> RolloutBatch:
        """The next batch of the rollout; after its last one the next rollout is used.

        Raises:
            LookupError: no rollout is complete.
        """
        self.prepare(batch_size)
        batch = self.draw_batch(batch_size)
        self.drawn(1)
        return batch

    def prepare(self, batch_size: int) -> int:
        """Have a rollout on the device; returns how many batches of it are left."""
        self._sampled = True
        if not self._left:
            if not self.due(batch_size):
                raise LookupError("no rollout is complete yet")
            self._plan(batch_size)
        return self._left

    def draw_batch(self, batch_size: int) -> RolloutBatch:
        take = self.arrays.take
        chosen = take(self._planned["batches"], self._next)[0]
        self._next += 1
        return self._batch({name: take(self._planned[name], chosen) for name in self._planned if name != "batches"})

    def drawn(self, count: int) -> None:
        self._left -= count
        if not self._left:
            self.taken += self._transitions(self._begin, self._begin + self._steps)
            self._begin = self._begin + self._steps

    def recount(self) -> None:
        self._next[:] = len(self._planned["batches"]) - self._left if self._planned else 0

    def blank(self, batch_size: int) -> RolloutBatch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        nowhere = np.zeros(batch_size, np.int64)
        return self._batch(self._sent(self._read(nowhere, nowhere, np.zeros((3, batch_size), np.float32))))

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

    def close(self) -> None:
        self._planned = {}
        super().close()

    def _batch(self, columns: Mapping[str, Array]) -> RolloutBatch:
        tensors = {name: self.arrays.tensor(column) for name, column in columns.items() if name != "places"}
        return RolloutBatch(self._stacks_at(columns["places"]), **tensors)

    def _read(self, lane: np.ndarray, row: np.ndarray, computed: np.ndarray) -> dict[str, np.ndarray]:
        """What batches have of the transitions at ``row`` of ``lane``; of the frames where they stand."""
        at, flat = self._index(lane, row), self._flat
        values, returns, advantages = computed
        return {
            "places": self._stack_places(lane, row),
            "actions": flat["actions"][at].astype(np.int64),
            "log_probs": flat["log_probs"][at],
            "values": values,
            "returns": returns,
            "advantages": advantages,
            "versions": flat["versions"][at],
        }

    def _per_epoch(self, batch_size: int) -> int:
        return len(self._begin) * self._steps // batch_size

    def _plan(self, batch_size: int) -> None:
        """Compute the returns of a complete rollout, and shuffle its transitions for every epoch."""
        self.receive()
        lanes, flat = np.arange(len(self._begin))[:, None], self._flat
        rows = self._begin[:, None] + np.arange(self._steps + 1)
        at = self._index(lanes, rows)
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
        computed = np.stack([values[:, :-1].ravel(), returns.ravel(), advantages.ravel()])
        transitions = np.flatnonzero(flat["transition"][inside])
        count = self._per_epoch(batch_size)
        shuffles = [np.resize(self._rng.permutation(transitions), count * batch_size) for _ in range(self._epochs)]
        plan = self._read(np.repeat(lanes[:, 0], self._steps), rows[:, :-1].ravel(), computed)
        plan["batches"] = np.concatenate(shuffles).reshape(-1, batch_size)
        for name, column in self._sent(plan).items():  # into the same tensors, which a captured graph reads
            if name in self._planned and self._planned[name].shape == column.shape:
                self._planned[name][:] = column
            else:
                self._planned[name] = column
        self._next[:] = 0
        self._left = len(plan["batches"])

    def _judged(self, judge: Judge) -> tuple[np.ndarray, np.ndarray]:
        """Values and log-probabilities ``(N, T + 1)``; those of final frames, and of the last, mean nothing."""
        found = list[Tensor]()
        for number, begin in enumerate(self._begin):  # lane by lane: their stacks would take much memory
            lane = np.full(self._steps + 1, number)
            row = begin + np.arange(self._steps + 1)
            actions = self._flat["actions"][self._index(lane, row)].astype(np.int64)
            found.append(judge(self._stacks(lane, row), torch.from_numpy(actions)))
        values, log_probs = torch.stack(found, dim=1).cpu().numpy()
        return values, log_probs
