"""The options of ``wrappers``."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, WrappersConfig


@dataclass(frozen=True)
class Wrappers(WrappersConfig):
    """An option of ``wrappers``: the standard stages, and more that a subclass adds."""

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        """Add the stages of this stack to ``env``, one environment with the standard stages.

        Observations are single frames, channels first; they are stacked afterwards.
        """
        return env

    def check(self, run: RunConfig) -> None:
        if self.backend == "native" and type(self).wrap is not Wrappers.wrap:
            raise ConfigError(
                f"wrappers.backend=native: ALE does the stages by itself, and wrappers={self.name} adds others; use "
                f"wrappers.backend=gymnasium."
            )
        super().check(run)


@register("wrappers", "standard")
@dataclass(frozen=True)
class Standard(Wrappers):
    """The standard stages only."""
