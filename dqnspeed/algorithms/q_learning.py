"""Tabular Q-learning (Watkins 1989; Sutton and Barto, section 6.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromStream
from dqnspeed.algorithms.update_metrics import NotFiniteError
from dqnspeed.buffers import Batch
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.networks.base import Network, as_tensors, shown
from dqnspeed.networks.table import Table


@register("algo", "q_learning")
@dataclass(frozen=True)
class QLearning(FromStream):
    uses = ("exploration",)
    explores_forever = True

    step_size: float = option("share of the TD error that a table's entry moves", gt=0, le=1)

    def network(self, run: RunConfig, spec: EnvSpec) -> Table:
        return Table(spec.observation_shape[0], spec.num_actions)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return TableLearner(self, self.network(run, spec))

    def check(self, run: RunConfig) -> None:
        super().check(run)
        is_serial = not run.parallelism.processes and not run.parallelism.overlaps and run.num_envs == 1
        if run.device != "cpu" or not is_serial:
            raise ConfigError(
                f"algo={self.name}: takes one transition at a time, on the CPU. Use parallelism=serial num_envs=1 "
                f"device=cpu."
            )

    def check_spec(self, run: RunConfig, spec: EnvSpec) -> None:
        if spec.num_states is None:
            raise ConfigError(
                f"algo={self.name}: needs numbered states, and {run.env.id} shows {shown(spec.frame_shape)} values in "
                f"stacks of {spec.stack}; algo=dqn learns from those."
            )


class TableLearner:
    """Moves an entry of a table towards ``r + γ max_a Q(s', a)`` for each transition (Sutton and Barto, equation 6.8).

    The table has the interface of a network, for actors, checkpoints, evaluations and play.
    """

    def __init__(self, algo: QLearning, network: Table):
        self.network: Network = network
        self._table, self._step_size = network.values, algo.step_size
        self.updates, self.started = 0, False
        self._errors: list[float] = []
        self._taken: list[float] = []

    def update(self, batch: Batch) -> None:
        """Learn from the transitions of ``batch``, one by one."""
        states, next_states = (one_hot.argmax(dim=1) for one_hot in (batch.observations, batch.next_observations))
        columns = states, batch.actions, batch.rewards, batch.discounts, next_states
        for state, action, reward, discount, next_state in zip(*(column.tolist() for column in columns), strict=True):
            value: Tensor = self._table[state, action]
            target = reward + discount * float(self._table[next_state].max())
            error = target - float(value)
            value += self._step_size * error
            self._errors.append(error**2)
            self._taken.append(float(value))
        self.updates += 1

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Copy ``weights`` into the table."""
        self.network.load_state_dict(weights)

    def attach(self, buffer: Any) -> None:
        """Do nothing: a table needs no buffer."""

    def on_training_start(self, frames: np.ndarray) -> None:
        """Do nothing: a table needs no preparation."""
        self.started = True

    def warm_up(self, batch: Batch) -> None:
        """Do nothing: a table needs no preparation."""

    def stats(self) -> dict[str, float]:
        """Mean squared TD error and mean value of the entries updated since the last call.

        Raises:
            NotFiniteError: a value of the table is infinite or NaN.
        """
        if not torch.isfinite(self._table).all():
            raise NotFiniteError(
                f"update {self.updates}: a value of the table is not finite; does the environment return NaN?"
            )
        errors, taken, self._errors, self._taken = self._errors, self._taken, [], []
        return {"train/loss": _mean(errors), "train/q_mean": _mean(taken)}

    def state_dict(self) -> dict[str, Any]:
        """The table and the count of updates."""
        return {"network": self.network.state_dict(), "updates": self.updates, "started": self.started}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays."""
        self.network.load_state_dict(as_tensors(state["network"]))
        self.updates, self.started = state["updates"], state["started"]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan
