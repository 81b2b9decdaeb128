"""RolloutBuffer: T steps of every environment, learnt from for some epochs and then dropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.device_storage import HeldRings
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.execution.arrays import Array, Arrays
from dqnspeed.execution.compiling import compiled
from dqnspeed.execution.counter_rng import CounterGenerator


@dataclass(slots=True)
class RolloutBatch:
    """B transitions of a rollout, as tensors, with log-probabilities and values of the policy that acted."""

    observations: Tensor  # (B, stack * C, ...) of the frames' dtype
    actions: Tensor  # (B,) int64
    log_probs: Tensor  # (B,) float32, of the actions under the policy that acted
    values: Tensor  # (B,) float32, of the states, by the network that acted; with a judge by its own
    returns: Tensor  # (B,) float32, what ``values`` are to become: lambda-returns, or the targets of V-trace
    advantages: Tensor  # (B,) float32, of the actions
    lags: Tensor  # (B,) float32, updates between acting and the start of learning from the rollout
    weights: Tensor  # (B,) float32, of each in a mean: all alike, but 0 of what only fills up the batch; their sum is 1
    rollout: int = field(default=0, kw_only=True)  # its number


COLUMNS = ("actions", "log_probs", "values", "returns", "advantages", "lags")  # that each transition has


def lambda_returns(
    arrays: Arrays, rewards: Array, values: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """λ-returns ``(N, T) float32`` (Sutton and Barto, equation 12.18; less the values they are the advantages of
    Schulman et al. 2016, equation 16).

    ``G[t] = r[t] + γ ((1 - λ) v[t+1] + λ G[t+1])``; nothing follows a terminated step, and only ``v[t+1]``, the value
    of the last observation, follows a truncated one.

    Args:
        rewards, terminated, truncated: ``(N, T)``.
        values: ``(N, T + 1)``, of each observation and of the one after the last.
    """
    xp, following = arrays.xp, values[:, 1:]
    known = xp.where(terminated, 0, xp.where(truncated, following, (1 - lam) * following))
    traces = xp.full_like(rewards, gamma * lam)
    return _accumulated(arrays, rewards + gamma * known, traces, terminated | truncated, values[:, -1])[:, :-1]


def vtrace(
    arrays: Arrays,
    rewards: Array,
    values: Array,
    terminated: Array,
    truncated: Array,
    log_ratios: Array,
    gamma: float,
    lam: float,
    most: float = 1.0,
) -> tuple[Array, Array]:
    """Targets of the values, and advantages, of V-trace (Espeholt et al. 2018, section 4.1, equation 1, with the lambda
    of remark 2), each ``(N, T) float32``.

    ``v[t] = V[t] + δ[t] + γ c[t] (v[t+1] - V[t+1])`` with ``δ[t] = ρ[t] (r[t] + γ V[t+1] - V[t])``, ``ρ = min(most,
    ratio)`` and ``c = λ min(1, ratio)``; the advantage is ``r[t] + γ v[t+1] - V[t]``. Nothing follows a terminated
    step, and only ``V[t+1]``, the value of the last observation, follows a truncated one.

    Args:
        log_ratios: ``(N, T)``: log-probability of each action now, less that when it was taken.
        values: ``(N, T + 1)``, by the network as it is now; the rest as of :func:`lambda_returns`.
    """
    xp, ended, before = arrays.xp, terminated | truncated, values[:, :-1]
    ratios = xp.exp(log_ratios)
    rho, c = xp.clip(ratios, None, most), lam * xp.clip(ratios, None, 1.0)
    following = xp.where(terminated, 0, values[:, 1:])
    errors = rho * (rewards + gamma * following - before)
    corrections = _accumulated(arrays, errors, gamma * c, ended, xp.zeros_like(values[:, -1]))  # v - V
    next_corrections = xp.where(ended, 0, corrections[:, 1:])
    return before + corrections[:, :-1], rewards + gamma * (following + next_corrections) - before


def _accumulated(arrays: Arrays, added: Array, factors: Array, ended: Array, last: Array) -> Array:
    """``x[t] = added[t] + factors[t] x[t+1]``, without the second where ``ended``, and ``last``: ``(N, T + 1)``, of
    ``(N, T)`` and ``(N,)``."""
    xp, found = arrays.xp, [last]
    for t in range(added.shape[1] - 1, -1, -1):
        found.append(added[:, t] + xp.where(ended[:, t], 0, factors[:, t] * found[-1]))  # which may be NaN there
    return xp.stack(found[::-1], 1)


def _variance(array: Array) -> Array:
    return ((array - array.mean()) ** 2).mean()


# Values (N,) of the observations that will be acted on next, of all lanes, by the present network.
Bootstrap = Callable[[], np.ndarray]
# Values (K,) of observations, and log-probabilities (K,) of actions taken there, by the present network.
Judge = Callable[[Tensor, Tensor], Tensor]


class RolloutBuffer(HeldRings):
    """Rings that are read T rows at a time: ``epochs`` times through all of them, in shuffled batches.

    A rollout is complete with its T rows. The value of the observation after them is bootstrapped from, which nothing
    was done in yet: ``bootstrap`` gives it. Actors in other processes act on without waiting for the learner; without a
    ``bootstrap`` it is that of their next row. Returns and shuffles are computed once for all epochs, where the rings
    are held.

    An epoch uses each transition once, in as few batches as hold them all, which share them out evenly: no batch is
    much smaller than others. Tensors have the length of a full batch nevertheless, so that they can be compiled and
    captured; what fills up a batch has no weight.

    Args:
        steps: T, rows of a rollout in each lane.
        compiles: what gathers a batch of tensors.

    Attributes:
        updates_done: updates of the learner so far.
        bootstrap: what is known of the observations after the last rows.
        evaluate_actions: the learner's network, if returns are to be corrected for the policy that acted (V-trace).
    """

    updates_done: Callable[[], int] = int  # 0 without a learner
    bootstrap: Bootstrap | None = None
    evaluate_actions: Judge | None = None

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
        compiles: bool = False,
    ):
        super().__init__(buffers, stack, device)
        self._joined = compiled(self._draw_arrays) if compiles and device else None
        self._steps, self._epochs, self._gamma, self._lam = steps, epochs, gamma, lam
        self._begin: np.ndarray = np.zeros(len(self._written), np.int64)  # first row of the rollout, or of the next
        self._random = CounterGenerator([seed, 2], self.arrays)
        self._planned = dict[str, Array]()  # (N * T, ...) each, of the rollout's rows by lane; and the batches
        self._next = self.arrays.own(np.zeros(1, np.int64))  # the batch that is drawn next
        self._left, self._rollouts = 0, 0  # batches of the rollout; rollouts so far
        self._sizes = np.zeros(0, np.int64)  # transitions of each batch of the rollout
        self._variances: tuple[Array, Array] = (math.nan, math.nan)  # of returns less values, and of returns
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
        while (self.cursors() >= self._begin + self._needed).all():
            if transitions := self._transitions(self._begin, self._begin + self._steps):
                return self._epochs * -(-transitions // batch_size)
            self._begin = self._begin + self._steps  # final frames alone
        return 0

    def rows_allowed(self) -> np.ndarray:
        """Rows that lanes may add; lanes are at most a rollout ahead, and not at all with a ``bootstrap``."""
        most = 2 * (self._steps + 1) if self.bootstrap is None else self._steps
        allowed: np.ndarray = np.minimum(super().rows_allowed(), self._begin + float(most))
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
        self.drawn()
        return batch

    def prepare(self, batch_size: int) -> None:
        """Have a rollout on the device."""
        self._sampled = True
        if not self._left:
            if not self.due(batch_size):
                raise LookupError("no rollout is complete yet")
            self._plan(batch_size)

    def draw_batch(self, batch_size: int) -> RolloutBatch:
        return RolloutBatch(*(self._joined or self._draw_arrays)(), rollout=self._rollouts)

    def drawn(self) -> None:
        self._left -= 1
        if not self._left:
            self.taken += self._transitions(self._begin, self._begin + self._steps)
            self._begin = self._begin + self._steps

    @property
    def explained_variance(self) -> float:
        """Share of the variance of the newest rollout's returns that its values predict; NaN without any variance."""
        unexplained, variance = map(float, self._variances)
        return 1 - unexplained / variance if variance > 0 else math.nan

    def samples_in_batch(self, batch_size: int) -> int:
        return int(self._sizes[-1 - self._left])

    def blank(self, batch_size: int) -> RolloutBatch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        nowhere = 0 * self.arrays.arange(batch_size)
        columns = self._read(nowhere, nowhere)
        columns |= dict.fromkeys(("values", "returns", "advantages", "lags", "weights"), columns["log_probs"])
        return RolloutBatch(*self._tensors(columns))

    def state_dict(self) -> dict[str, Any]:
        """Only between two rollouts. Before the first batch it holds every row, from which the learner measures its
        background."""
        rings = self._unlearnt(self._begin) if self._sampled else super().state_dict()
        random = self._random.state_dict()
        return {**rings, "begin": self._begin.copy(), "random": random, "sampled": self._sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._begin, self._sampled = state["begin"].copy(), state["sampled"]
        self._random.load_state_dict(state["random"])

    def close(self) -> None:
        self._planned, self._joined, self.evaluate_actions, self.bootstrap, self.updates_done = (
            {},
            None,
            None,
            None,
            int,
        )
        super().close()

    def _draw_arrays(self) -> list[Tensor]:
        take = self.arrays.take
        chosen, weights = (take(self._planned[name], self._next)[0] for name in ("batches", "weights"))
        self._next += 1
        drawn = {name: take(self._planned[name], chosen) for name in ("places", *COLUMNS)}
        return self._tensors({**drawn, "weights": weights})

    def _tensors(self, columns: Mapping[str, Array]) -> list[Tensor]:
        """What a batch consists of, in its order."""
        named = (self.arrays.tensor(columns[name]) for name in (*COLUMNS, "weights"))
        return [self._stacks_at(columns["places"]), *named]

    def _read(self, lane: Array, row: Array) -> dict[str, Array]:
        """What is stored of the rows ``row`` of ``lane``, ``(K,)`` each; of the frames where those of stacks stand."""
        at, take = self._index(lane, row), self.arrays.take
        columns = {name: take(of, at) for name, of in self._held.items() if name != "frames"}
        columns["actions"] = self.arrays.xp.asarray(columns["actions"], dtype=self.arrays.xp.int64)
        return columns | {"places": self._stack_places(lane, row)}

    @property
    def _needed(self) -> int:
        """Rows of a complete rollout, and of what is bootstrapped from."""
        return self._steps + (self.bootstrap is None)

    def _plan(self, batch_size: int) -> None:
        """Compute the returns of a complete rollout, and shuffle its transitions for every epoch."""
        self.receive()
        xp, lanes, count = self.arrays.xp, len(self._begin), self._needed
        row = self._sent({"begin": self._begin})["begin"][:, None] + self.arrays.arange(count)
        lane = xp.broadcast_to(self.arrays.arange(lanes)[:, None], row.shape)
        known = self._read(lane.reshape(-1), row.reshape(-1))
        known = {name: of.reshape(lanes, count, *of.shape[1:]) for name, of in known.items()}
        inside = {name: of[:, : self._steps] for name, of in known.items()}
        values, log_ratios = known["values"], None
        if self.evaluate_actions is not None:
            values, log_probs = self._judged(self.evaluate_actions, known["places"], known["actions"])
            log_ratios = log_probs[:, : self._steps] - inside["log_probs"]
        if self.bootstrap is not None:
            following = self.arrays.own(np.asarray(self.bootstrap(), np.float32))
            values = xp.concatenate([values, following[:, None]], 1)
        inside["values"] = values[:, :-1]
        inside["lags"] = xp.asarray(self.updates_done() - inside["versions"], dtype=xp.float32)
        given = self.arrays, inside["rewards"], values, inside["terminated"], inside["truncated"]
        if log_ratios is None:
            returns = lambda_returns(*given, self._gamma, self._lam)
            advantages = returns - inside["values"]
        else:
            returns, advantages = vtrace(*given, log_ratios, self._gamma, self._lam)
        inside |= {"returns": returns, "advantages": advantages}
        plan = {name: inside[name].reshape(-1, *inside[name].shape[2:]) for name in ("places", *COLUMNS)}
        keys = self._random.uniform(self._epochs * lanes * self._steps).reshape(self._epochs, -1)
        order = xp.where(inside["transition"].reshape(-1), keys, 1.0).argsort(-1)  # transitions come first
        transitions = self._transitions(self._begin, self._begin + self._steps)
        real_returns, real_values = (
            self.arrays.take(plan[name], order[0, :transitions]) for name in ("returns", "values")
        )
        self._variances = _variance(real_returns - real_values), _variance(real_returns)
        batches = -(-transitions // batch_size)
        bounds = self.arrays.arange(batches + 1) * transitions // batches
        place = bounds[:-1, None] + self.arrays.arange(batch_size)
        inside_batch = place < bounds[1:, None]
        chosen = order[:, xp.clip(place, 0, transitions - 1).reshape(-1)].reshape(-1, batch_size)
        sizes = xp.asarray(inside_batch.sum(1), dtype=xp.float32)
        weights = xp.asarray(inside_batch, dtype=xp.float32) / sizes[:, None]
        weights = weights[self.arrays.arange(len(chosen)) % batches]  # the same in every epoch
        most = self._epochs * -(-lanes * self._steps // batch_size)  # batches of a rollout without final frames
        for name, planned in {**plan, "batches": chosen, "weights": weights}.items():
            kept = self._planned.get(name)  # the same tensors, which a captured graph reads
            if kept is None or kept.shape[1:] != planned.shape[1:]:
                blank = xp.zeros_like(planned[:1])
                kept = self._planned[name] = xp.concatenate([blank] * max(len(planned), most))
            kept[: len(planned)] = planned
        self._next[:] = 0
        self._sizes = np.tile(np.diff(np.arange(batches + 1) * transitions // batches), self._epochs)
        self._left = len(chosen)
        self._rollouts += 1

    def _judged(self, judge: Judge, places: Array, actions: Array) -> Array:
        """Values and log-probabilities ``(2, N, rows)``; the latter of final frames, and of a row after the last, mean
        nothing.

        Lane by lane: their stacks would take much memory.
        """
        found = [judge(self._stacks_at(at), self.arrays.tensor(of)) for at, of in zip(places, actions, strict=True)]
        return self.arrays.taken(torch.stack(found, 1))
