"""One interface of NumPy's arrays on the host and torch's tensors on a device, for code that runs on both.

Such code uses operators, indexing, and functions that both libraries have under one name. For the small
arrays of a batch, NumPy takes a fraction of torch's time on a CPU. A GPU has tensors alone, and their operations can be
captured as a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray | Tensor


class Arrays:
    """Makes and converts arrays of one device.

    Args:
        device: of tensors; ``None``: NumPy's arrays on the host.

    Attributes:
        xp: the library, ``numpy`` or ``torch``.
    """

    def __init__(self, device: torch.device | None):
        self.device = device
        self.xp: Any = np if device is None else torch

    def arange(self, *bounds: int) -> Array:
        """Whole numbers, ``int64``."""
        return np.arange(*bounds) if self.device is None else torch.arange(*bounds, device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Zeros; on the host the system allocates a page when it is first written."""
        if self.device is None or self.device.type == "cpu":
            return self.own(np.zeros(shape, dtype))
        return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=self.device)

    def own(self, array: np.ndarray) -> Array:
        """Move ``array`` to the device; on a CPU the result shares its memory."""
        return array if self.device is None else torch.from_numpy(array).to(self.device)

    def take(self, array: Any, index: Array) -> Any:
        """Select the rows ``index`` ``(K,)``; faster than brackets."""
        return array.take(index, axis=0) if self.device is None else array.index_select(0, index)

    def tensor(self, array: Any) -> Tensor:
        """Convert to a tensor that shares the memory."""
        return torch.from_numpy(array) if self.device is None else array

    def taken(self, tensor: Tensor) -> Array:
        """Convert a tensor of any device to an array of this one."""
        return tensor.detach().cpu().numpy() if self.device is None else tensor.detach().to(self.device)


def host(array: Array) -> np.ndarray:
    """Convert to a NumPy array: a tensor on a CPU shares its memory; one on a GPU is copied, which waits for it."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def put(array: Any, index: Any, values: Array | float) -> None:
    """Write ``values`` to ``array[index]``; both are arrays of one device."""
    array[index] = values


def copied(array: Array) -> Array:
    """Copy an array on its device."""
    return array.clone() if isinstance(array, Tensor) else np.array(array)
