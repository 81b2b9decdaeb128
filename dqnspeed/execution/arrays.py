"""NumPy's arrays on the host, or torch's tensors on a device, for code that is written once for both.

Such code uses operators, indexing and the functions that both libraries have under one name (``xp.where``). On a CPU
NumPy takes a fraction of torch's time for arrays as small as a batch's; a GPU has tensors alone, and what is computed
with them can be captured as a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = Any  # np.ndarray or torch.Tensor


class Arrays:
    """Where arrays are.

    Args:
        device: of tensors; ``None``: NumPy's arrays on the host.

    Attributes:
        xp: the library, ``numpy`` or ``torch``.
    """

    def __init__(self, device: torch.device | None):
        self.device = device
        self.xp: Any = np if device is None else torch

    def arange(self, *bounds: int) -> Array:
        """``int64``."""
        return np.arange(*bounds) if self.device is None else torch.arange(*bounds, device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """On the host they take memory only once they are written."""
        if self.device is None or self.device.type == "cpu":
            return self.own(np.zeros(shape, dtype))
        return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=self.device)

    def own(self, array: np.ndarray) -> Array:
        """``array`` here: the same memory on a CPU, else a copy."""
        return array if self.device is None else torch.from_numpy(array).to(self.device)

    def take(self, array: Array, index: Array) -> Array:
        """The rows ``index`` ``(K,)`` of ``array``; faster than by brackets."""
        return array.take(index, axis=0) if self.device is None else array.index_select(0, index)

    def tensor(self, array: Array) -> torch.Tensor:
        """As a tensor, of the same memory."""
        return torch.from_numpy(array) if self.device is None else array

    def taken(self, tensor: torch.Tensor) -> Array:
        """A tensor of anywhere as an array here."""
        return tensor.detach().cpu().numpy() if self.device is None else tensor.detach().to(self.device)


def host(array: Array) -> np.ndarray:
    """As NumPy's: a tensor on the CPU shares its memory; one on a device is copied, which waits for it."""
    found: np.ndarray = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array
    return found


def copied(array: Array) -> Array:
    """A copy where it is."""
    return array.clone() if isinstance(array, torch.Tensor) else np.array(array)
