"""An epsilon of its own for each environment (Ape-X)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.exploration.linear import LinearEpsilon


@register("exploration", "per_actor")
@dataclass(frozen=True)
class PerActor(LinearEpsilon):
    """Some environments explore much and others little, at any time (Horgan et al. 2018, section 4.1).

    The environment ``i`` of ``N`` has ``epsilon ** (1 + alpha * i / (N - 1))``, where ``epsilon``, which is what is
    reported, is 0.4 in the paper and stays so, whatever ``final`` recipes set that are written for an epsilon that
    falls. One environment alone has ``epsilon``.
    """

    alpha: float = option("how far apart they are: the last has epsilon to the power of 1 + alpha", ge=0)

    def epsilon_at(self, step: int) -> float:
        return self.start

    def random_steps(self) -> None:
        """Not until something has become rare: it goes on."""

    def settled(self) -> PerActor:
        return self

    def per_env_epsilon(self, epsilon: float, lanes: range, total: int) -> np.ndarray:
        powers: np.ndarray = epsilon ** (1 + self.alpha * np.asarray(lanes) / max(1, total - 1))
        return powers

    def sentence(self) -> str:
        return f"epsilon {self.start:g}, to the power of 1 to {1 + self.alpha:g} from the first environment to the last"
