"""The options of ``wrappers``."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, WrappersConfig


@dataclass(frozen=True)
class Wrappers(WrappersConfig):
    """An option of ``wrappers``: the standard stages, and further ones that a subclass puts around them."""

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        """``env``, one environment behind the standard stages, behind those of this stack too.

        Its observations are single frames, channels first; frames are stacked afterwards.
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
    """The stages that the numbers switch on, and no others."""
