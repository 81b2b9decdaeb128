"""What an option of ``wrappers`` is."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of, register
from dqnspeed.config.schema import RunConfig, WrappersConfig


@base_of("wrappers")
@dataclass(frozen=True)
class Wrappers(WrappersConfig):
    """An option of ``wrappers``: the standard stages, and more that a subclass adds."""

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        """Add the stages of this stack to ``env``, one environment with the standard stages.

        Observations are single frames, channels first; they are stacked afterwards.
        """
        return env

    def check(self, run: RunConfig) -> None:
        super().check(run)
        smallest = 160  # the width of a picture
        if self.crop is not None:
            top, bottom, left, right = self.crop if len(self.crop) == 4 else [0] * 4
            smallest = min(bottom - top, right - left)
            if min(top, left) < 0 or smallest < 1:
                raise ConfigError(
                    f"wrappers.crop={self.crop}: takes [top, bottom, left, right], the first row and that after the "
                    f"last, and the same of columns, from 0; or null."
                )
        if self.tap_frames and self.tap_frames >= self.frame_skip:
            raise ConfigError(
                f"wrappers.tap_frames={self.tap_frames}: must be less than wrappers.frame_skip={self.frame_skip}, "
                f"the frames an action lasts."
            )
        if self.tap_frames and self.backend == "native":
            raise ConfigError(
                f"wrappers.tap_frames={self.tap_frames}: wrappers=native holds actions throughout; "
                f"use wrappers=emulator, or wrappers=deepmind."
            )
        if self.backend == "gymnasium":
            return
        who = {"native": "ALE", "emulator": "the emulator"}[self.backend]
        if (self.backend == "native" and self.resize is None) or self.resizer != "cv2":
            number = " wrappers.resize must be a number and" if self.backend == "native" else ""
            raise ConfigError(
                f"wrappers={self.backend}: {who} resizes by itself, so{number} wrappers.resizer must be cv2."
            )
        if self.backend == "emulator" and self.resize is not None and self.resize > smallest:
            raise ConfigError(
                f"wrappers.resize={self.resize}: wrappers=emulator takes at most {smallest}, the smaller side of what "
                f"is resized."
            )
        if self.crop is not None and (self.backend == "native" or self.resize is None):
            raise ConfigError(
                f"wrappers.crop={self.crop}: wrappers=native takes whole pictures, and wrappers=emulator crops what it "
                f"resizes; use wrappers=deepmind, or wrappers=emulator wrappers.resize=64."
            )
        if self.interpolation != "area":
            raise ConfigError(
                f"wrappers.interpolation={self.interpolation}: wrappers={self.backend} resizes with area only."
            )
        if type(self).wrap is not Wrappers.wrap:
            raise ConfigError(
                f"wrappers.backend={self.backend}: {who} does the stages by itself, and wrappers={self.name} adds "
                f"others; use wrappers.backend=gymnasium."
            )


@register("wrappers", "standard")
@dataclass(frozen=True)
class Standard(Wrappers):
    """The standard stages only."""
