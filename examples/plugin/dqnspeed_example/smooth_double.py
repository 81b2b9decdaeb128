"""Double DQN (van Hasselt et al. 2016) with a loss of its own."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dqnspeed.algorithms.dqn import DeepQ
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register


@register("algo", "smooth_double")
@dataclass(frozen=True)
class SmoothDouble(DeepQ):
    """The pseudo-Huber loss of the TD error, which is smooth everywhere."""

    delta: float = option("TD error at which the square gives way to the line", gt=0, default=1.0)

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        best = network(batch.next_observations).argmax(dim=1, keepdim=True)  # the online network chooses
        return batch.rewards + batch.discounts * target(batch.next_observations).gather(1, best)[:, 0]

    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        return self.delta**2 * ((1 + ((values - targets) / self.delta).square()).sqrt() - 1)  # of each transition
