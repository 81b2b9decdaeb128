"""Launches of CPU kernels whose arguments are packed once."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import warp as wp

# Versions of Warp that call a kernel for a CPU with its bounds and a struct of its arguments.
KNOWN_VERSIONS = ("1.19.",)


class CpuLaunch:
    """Recorded launch of a CPU kernel, with the methods of :class:`warp.Launch`.

    Warp packs all arguments at every launch, which takes longer than a frame of some games.

    Attributes:
        launch: plays the kernel; a C function without arguments.
    """

    def __init__(self, recorded: Any):
        self._recorded = recorded  # keeps the compiled module
        bounds, *values = recorded.params
        fields = [(each.label, type(value)) for each, value in zip(recorded.kernel.adj.args, values, strict=True)]
        self._arguments = type("Arguments", (ctypes.Structure,), {"_fields_": fields})(*values)
        self.launch = functools.partial(recorded.hooks.forward, ctypes.byref(bounds), ctypes.byref(self._arguments))

    def set_param_by_name(self, name: str, value: int) -> None:
        """Set an argument that is an integer."""
        setattr(self._arguments, name, value)


def packed(recorded: Any) -> Any:
    """Return the launch with packed arguments, if it is of a CPU and Warp's version is known."""
    known = wp.config.version.startswith(KNOWN_VERSIONS)
    return CpuLaunch(recorded) if known and recorded.device.is_cpu and recorded.block_dim == 1 else recorded
