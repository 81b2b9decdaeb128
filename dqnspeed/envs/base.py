"""Base class of the options of ``wrappers``."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of, register
from dqnspeed.config.schema import RunConfig, WrappersConfig


@base_of("wrappers")
@dataclass(frozen=True)
class Wrappers(WrappersConfig):
    """An option of ``wrappers``: the standard stages, and more stages of a subclass."""

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        """Add the stages of this stack to ``env``, one environment with the standard stages.

        Observations are single frames, channels first. :class:`FrameStack` stacks them afterwards.
        """
        return env

    @property
    def adds_stages(self) -> bool:
        """Whether :meth:`wrap` does anything."""
        return type(self).wrap is not Wrappers.wrap

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if self.crop is not None:
            top, bottom, left, right = self.crop if len(self.crop) == 4 else [0] * 4
            if not (0 <= top < bottom and 0 <= left < right):
                raise ConfigError(
                    f"wrappers.crop={self.crop}: takes [top, bottom, left, right], the first row and that after the "
                    f"last, and the same of columns, from 0; or null."
                )
        if self.tap_frames and self.tap_frames >= self.frame_skip:
            raise ConfigError(
                f"wrappers.tap_frames={self.tap_frames}: must be less than wrappers.frame_skip={self.frame_skip}, "
                f"the frames an action lasts."
            )


@register("wrappers", "standard")
@dataclass(frozen=True)
class Standard(Wrappers):
    """The standard stages only."""
