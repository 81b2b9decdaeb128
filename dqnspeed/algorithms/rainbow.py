"""Rainbow (Hessel et al. 2018): C51 with double, dueling, n-step, noisy layers and prioritized replay.

Each part is an option of its own; ``conf/algo/rainbow.yaml`` combines them with the paper's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.algorithms.c51 import C51
from dqnspeed.config.registry import register


@register("algo", "rainbow")
@dataclass(frozen=True)
class Rainbow(C51):
    """C51 by another name, whose option file has the paper's numbers."""
