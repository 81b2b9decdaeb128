"""Epsilon of its own for each environment (Ape-X)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.exploration.linear import LinearEpsilon


@register("exploration", "per_actor")
@dataclass(frozen=True)
class PerActor(LinearEpsilon):
    """Constant epsilons from large to small over the environments of all actors (Horgan et al. 2018, section 4.1).

    Environment ``i`` of ``N`` has ``epsilon ** (1 + alpha * i / (N - 1))``, with ``epsilon = start``, which is 0.4 in
    the paper. The other options of a falling epsilon have no effect. A single environment has ``epsilon``.
    """

    alpha: float = option("how far apart they are: the last has epsilon to the power of 1 + alpha", ge=0)

    def epsilon_at(self, step: int) -> float:
        return self.start

    def random_steps(self) -> None:
        """Return ``None``: random actions never become rare."""

    def settled(self) -> PerActor:
        return self

    def per_env_epsilon(self, epsilon: float, envs: range, total_envs: int) -> np.ndarray:
        powers: np.ndarray = epsilon ** (1 + self.alpha * np.asarray(envs) / max(1, total_envs - 1))
        return powers

    def sentence(self) -> str:
        return f"epsilon {self.start:g}, to the power of 1 to {1 + self.alpha:g} from the first environment to the last"
