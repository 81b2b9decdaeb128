"""Pictures of consoles in colours, converted where they have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.cpu_launch import packed
from atari_warp.kernel_cache import compiled


class Pictures:
    """Newest pictures of consoles in red, green and blue, or in gray levels.

    Args:
        state: state of the consoles, ``(N, bytes) uint8``.
        screens: their last pictures in colour numbers, ``(N, 3, rows, 160) uint8``.
        colors: ``(256, 3) uint8`` or ``(256, 1) uint8``, by colour number.

    Attributes:
        array: ``(N, rows, 160, channels) uint8``, a Warp array, as of the last :meth:`update`.
    """

    def __init__(self, state: Any, screens: Any, colors: np.ndarray):
        consoles, _, rows, width = screens.shape
        channels = colors.shape[1]
        first = np.broadcast_to(colors[0], (consoles, rows, width, channels))
        self.array = wp.array(np.ascontiguousarray(first), dtype=wp.uint8, device=screens.device)
        converted = wp.zeros((consoles, rows, width), dtype=wp.uint8, device=screens.device)
        packed_colors = colors.astype(np.uint32) @ (1 << 8 * np.arange(channels, dtype=np.uint32))
        inputs = [
            state,
            screens,
            wp.array(packed_colors, dtype=wp.uint32, device=screens.device),
            converted,
            self.array,
        ]
        self._inputs = inputs  # a recorded launch keeps no arrays alive
        recorded = compiled(
            kernels.color,
            lambda: wp.launch(
                kernels.color, dim=(consoles, rows), inputs=inputs, device=screens.device, record_cmd=True
            ),
        )
        self._launch = packed(recorded)
        #: Convert the newest pictures.
        self.update = self._launch.launch
