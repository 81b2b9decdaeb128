"""Rollout buffer: T steps of every environment, learnt from for some epochs and then dropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.ordered import OrderedBuffer
from dqnspeed.buffers.returns import lambda_returns, vtrace
from dqnspeed.execution.arrays import Array, put
from dqnspeed.execution.compiling import compiled
from dqnspeed.execution.counter_rng import CounterGenerator

COLUMNS = ("actions", "log_probs", "values", "returns", "advantages", "lags")  # of a batch, beside observations


@dataclass(slots=True)
class RolloutBatch:
    """B transitions of a rollout, as tensors, with log-probabilities and values of the policy that acted."""

    observations: Tensor  # (B, stack * C, ...) of the frames' dtype
    actions: Tensor  # (B,) int64
    log_probs: Tensor  # (B,) float32, of the actions under the policy that acted
    values: Tensor  # (B,) float32, of the states: by the network that acted, or by the present one with V-trace
    returns: Tensor  # (B,) float32, targets of the values: lambda-returns, or targets of V-trace
    advantages: Tensor  # (B,) float32, of the actions
    lags: Tensor  # (B,) float32, updates between acting and the start of learning from the rollout
    weights: Tensor  # (B,) float32, of each transition in a mean: equal, but 0 for padding; their sum is 1
    rollout: int = field(default=0, kw_only=True)  # number of the rollout


# Gives the values (N,) of the observations that will be acted on next, of all environments, by the present network.
Bootstrap = Callable[[], np.ndarray]
# Takes K observations and actions (K,); gives (2, K): values and log-probabilities, by the present network.
EvaluateActions = Callable[[Tensor, Tensor], Tensor]


class RolloutBuffer(OrderedBuffer):
    """Rows that are read T at a time: ``epochs`` times through all of them, in shuffled batches.

    A rollout is complete with its T rows. Its returns bootstrap from the value of the next observation, which
    ``bootstrap`` gives. Without a ``bootstrap`` it is the value in the next row: actors in other processes go on
    without waiting for the learner. Returns and shuffles are computed once for all epochs, where the rows are stored.

    An epoch uses each transition once, in as few batches as hold all of them. Batches differ by at most one transition.
    Tensors have the length of a full batch nevertheless, so that they can be compiled and captured; padding has no
    weight.

    Args:
        num_steps: T, rows of each environment in a rollout.
        compiles: compile the gathering of a batch of tensors.

    Attributes:
        updates_done: gives the updates of the learner so far.
        bootstrap: gives the values of the observations after the last rows.
        evaluate_actions: evaluates with the learner's network, if V-trace corrects returns for the policy that acted.
    """

    updates_done: Callable[[], int] = int  # 0 without a learner
    bootstrap: Bootstrap | None = None
    evaluate_actions: EvaluateActions | None = None

    def __init__(
        self,
        storage: DeviceStorage,
        num_steps: int,
        epochs: int,
        gamma: float,
        lam: float,
        seed: int = 0,
        compiles: bool = False,
    ):
        super().__init__(storage, capacity=2 * storage.num_envs * (num_steps + 1))  # of this rollout and the next
        self._arrays = storage.arrays
        self._num_steps, self._epochs, self._gamma, self._lam = num_steps, epochs, gamma, lam
        self._compiled = compiled(self._draw) if compiles and storage.arrays.device else None
        self._random = CounterGenerator([seed, 2], storage.arrays)
        self._planned = dict[str, Array]()  # columns (N * T, ...) of the rollout's rows, and its batches
        self._next = storage.arrays.own(np.zeros(1, np.int64))  # batch that is drawn next
        self._left, self._rollouts = 0, 0  # batches of the rollout that are left, and rollouts so far
        self._sizes = np.zeros(0, np.int64)  # transitions of each batch of the rollout
        self._variances: tuple[Array | float, Array | float] = (math.nan, math.nan)  # of errors, and of returns

    def rows_allowed(self) -> np.ndarray:
        """Actors are at most a rollout ahead of the learner, and not at all with a ``bootstrap``."""
        ahead = 2 * (self._num_steps + 1) if self.bootstrap is None else self._num_steps
        allowed: np.ndarray = np.minimum(super().rows_allowed(), self.next_row + float(ahead))
        return allowed

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now: all epochs' once a rollout is complete."""
        needed = self._num_steps + (self.bootstrap is None)
        while (self.storage.cursors() >= self.next_row + needed).all():
            end = self.next_row + self._num_steps
            if transitions := self.storage.count_transitions(self.next_row, end):
                return self._epochs * -(-transitions // batch_size)
            self.take_until(end)  # final frames alone
        return 0

    def sample(self, batch_size: int) -> RolloutBatch:
        """Next batch of the rollout; after its last one the next rollout is used.

        Raises:
            LookupError: no rollout is complete.
        """
        self.prepare(batch_size)
        batch = self.draw_batch(batch_size)
        self.drawn()
        return batch

    def prepare(self, batch_size: int) -> None:
        """Have a rollout on the device."""
        self.sampled = True
        if not self._left:
            if not self.due(batch_size):
                raise LookupError("no rollout is complete yet")
            self._plan(batch_size)

    def draw_batch(self, batch_size: int) -> RolloutBatch:
        return RolloutBatch(*(self._compiled or self._draw)(), rollout=self._rollouts)

    def drawn(self) -> None:
        self._left -= 1
        if not self._left:
            self.take_until(self.next_row + self._num_steps)

    def samples_in_batch(self, batch_size: int) -> int:
        return int(self._sizes[-1 - self._left])

    @property
    def explained_variance(self) -> float:
        """Share of the variance of the newest rollout's returns that its values predict; NaN without any variance."""
        unexplained, variance = map(float, self._variances)
        return 1 - unexplained / variance if variance > 0 else math.nan

    def blank(self, batch_size: int) -> RolloutBatch:
        nowhere = 0 * self._arrays.arange(batch_size)
        columns = self._read(nowhere, nowhere)
        columns |= dict.fromkeys(("values", "returns", "advantages", "lags", "weights"), columns["log_probs"])
        return RolloutBatch(*self._tensors(columns))

    def state_dict(self) -> dict[str, Any]:
        """State between two rollouts."""
        return {**super().state_dict(), "random": self._random.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._random.load_state_dict(state["random"])

    def close(self) -> None:
        self._planned, self._compiled, self.updates_done = {}, None, int
        self.evaluate_actions, self.bootstrap = None, None
        super().close()

    def _draw(self) -> list[Tensor]:
        take = self._arrays.take
        chosen, weights = (take(self._planned[name], self._next)[0] for name in ("batches", "weights"))
        self._next += 1
        return self._tensors({**{name: take(self._planned[name], chosen) for name in ("stacks", *COLUMNS)},
                              "weights": weights})  # fmt: skip

    def _tensors(self, columns: Mapping[str, Array]) -> list[Tensor]:
        """Tensors of a batch, in its order."""
        others = (self._arrays.tensor(columns[name]) for name in (*COLUMNS, "weights"))
        return [self.storage.observations(columns["stacks"]), *others]

    def _read(self, env: Array, row: Array) -> dict[str, Array]:
        """Columns ``(K,)`` of rows; in place of frames the ``stacks``, indices ``(K, stack)`` of their frames."""
        index, take, xp = self.storage.index(env, row), self._arrays.take, self._arrays.xp
        columns = {name: take(column, index) for name, column in self.storage.held.items() if name != "frames"}
        columns["actions"] = xp.asarray(columns["actions"], dtype=xp.int64)
        return columns | {"stacks": self.storage.stack_index(env, row)}

    def _plan(self, batch_size: int) -> None:
        """Compute the returns of a complete rollout, and shuffle its transitions for every epoch."""
        self.storage.receive()
        columns = {name: of.reshape(-1, *of.shape[2:]) for name, of in self._with_returns().items()}
        begin = self.next_row
        transitions = self.storage.count_transitions(begin, begin + self._num_steps)
        order, batches, weights = self._shuffle(columns["transition"], transitions, batch_size)
        returns, values = (self._arrays.take(columns[n], order[0, :transitions]) for n in ("returns", "values"))
        self._variances = _variance(returns - values), _variance(returns)
        # Batches of a rollout without final frames, which have the most.
        most = self._epochs * -(-self.storage.num_envs * self._num_steps // batch_size)
        planned = {name: columns[name] for name in ("stacks", *COLUMNS)} | {"batches": batches, "weights": weights}
        for name, of in planned.items():
            kept = self._planned.get(name)  # the same tensors, which a captured graph reads
            if kept is None or kept.shape[1:] != of.shape[1:]:
                blank = self._arrays.xp.zeros_like(of[:1])
                kept = self._planned[name] = self._arrays.xp.concatenate([blank] * max(len(of), most))
            put(kept, slice(len(of)), of)
        put(self._next, slice(None), 0)
        self._left = len(batches)
        self._rollouts += 1

    def _with_returns(self) -> dict[str, Array]:
        """Columns ``(num_envs, T, ...)`` of the rollout's rows, with returns and advantages."""
        arrays, xp, num_envs = self._arrays, self._arrays.xp, self.storage.num_envs
        count = self._num_steps + (self.bootstrap is None)
        row = self.storage.send({"begin": self.next_row})["begin"][:, None] + arrays.arange(count)
        env = xp.broadcast_to(arrays.arange(num_envs)[:, None], row.shape)
        read = self._read(env.reshape(-1), row.reshape(-1))
        known = {name: of.reshape(num_envs, count, *of.shape[1:]) for name, of in read.items()}
        columns = {name: of[:, : self._num_steps] for name, of in known.items()}
        values, log_ratios = known["values"], None
        if self.evaluate_actions is not None:
            values, log_probs = self._evaluated(self.evaluate_actions, known["stacks"], known["actions"])
            log_ratios = log_probs[:, : self._num_steps] - columns["log_probs"]
        if self.bootstrap is not None:
            following = arrays.own(np.asarray(self.bootstrap(), np.float32))
            values = xp.concatenate([values, following[:, None]], 1)
        columns["values"] = values[:, :-1]
        columns["lags"] = xp.asarray(self.updates_done() - columns["versions"], dtype=xp.float32)
        given = arrays, columns["rewards"], values, columns["terminated"], columns["truncated"]
        if log_ratios is None:
            columns["returns"] = lambda_returns(*given, self._gamma, self._lam)
            columns["advantages"] = columns["returns"] - columns["values"]
        else:
            columns["returns"], columns["advantages"] = vtrace(*given, log_ratios, self._gamma, self._lam)
        return columns

    def _shuffle(self, transition: Array, count: int, batch_size: int) -> tuple[Array, Array, Array]:
        """Shuffle the ``count`` rows that are transitions.

        Returns:
            Rows in the order of each epoch ``(epochs, N * T)``, transitions first; rows of each batch of all epochs,
            and their weights, ``(batches, batch_size)``.
        """
        arrays, xp = self._arrays, self._arrays.xp
        keys: Array = self._random.uniform(self._epochs * len(transition)).reshape(self._epochs, -1)
        order = xp.where(transition, keys, 1.0).argsort(-1)
        batches = -(-count // batch_size)
        bounds = arrays.arange(batches + 1) * count // batches
        place = bounds[:-1, None] + arrays.arange(batch_size)
        inside = place < bounds[1:, None]
        chosen = order[:, xp.clip(place, 0, count - 1).reshape(-1)].reshape(-1, batch_size)
        sizes = xp.asarray(inside.sum(1), dtype=xp.float32)
        weights = xp.asarray(inside, dtype=xp.float32) / sizes[:, None]
        self._sizes = np.tile(np.diff(np.arange(batches + 1) * count // batches), self._epochs)
        return order, chosen, weights[arrays.arange(len(chosen)) % batches]  # the same in every epoch

    def _evaluated(self, evaluate_actions: EvaluateActions, stacks: Array, actions: Array) -> Array:
        """Values and log-probabilities ``(2, N, rows)``; of final frames and of a row after the last meaningless.

        One environment at a time, as their observations would take much memory.
        """
        found = [
            evaluate_actions(self.storage.observations(index), self._arrays.tensor(taken))
            for index, taken in zip(stacks, actions, strict=True)
        ]
        return self._arrays.taken(torch.stack(found, 1))


def _variance(array: Array) -> Array:
    return ((array - array.mean()) ** 2).mean()
