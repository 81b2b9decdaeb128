"""An epsilon of its own for each environment (Ape-X)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.exploration.linear import LinearEpsilon


@register("exploration", "per_actor")
@dataclass(frozen=True)
class PerActor(LinearEpsilon):
    """Some environments explore much and others little, at any time (Horgan et al. 2018, section 4.1).

    The environment ``i`` of ``N`` has ``epsilon ** (1 + alpha * i / (N - 1))``, where ``epsilon``, which is what is
    reported, is 0.4 in the paper and stays so.
    """

    alpha: float = option("how far apart they are: the last has epsilon to the power of 1 + alpha", ge=0)

    def of_lanes(self, epsilon: float, lanes: range, total: int) -> np.ndarray:
        powers: np.ndarray = epsilon ** (1 + self.alpha * np.asarray(lanes) / (total - 1))
        return powers

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if "exploration" in run.algo.uses and run.num_lanes == 1:
            raise ConfigError(
                f"exploration={self.name}: gives each environment an epsilon of its own and needs at least two, by "
                f"num_envs or parallelism.num_actors; num_envs={run.num_envs} is given."
            )

    def sentence(self) -> str:
        return f"{super().sentence()}, to the power of 1 to {1 + self.alpha:g} from the first environment to the last"
