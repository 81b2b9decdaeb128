"""Small networks computed by NumPy.

For a few observations torch's work around each layer takes several times as long as the layer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from torch import Tensor, nn

from dqnspeed.networks.preprocess import Preprocess

MOST_WEIGHTS = 2**16  # NumPy was faster for 1 to 512 observations (Zen 4, one thread); larger networks were not tried


def in_numpy(*modules: nn.Module) -> Callable[[np.ndarray], np.ndarray] | None:
    """The function that ``modules`` compute one after the other, for arrays ``(B, ...)``, with their newest weights.

    ``None`` if they have other layers than fully connected ones with ReLU, or many weights.
    """
    layers = [layer for module in modules for layer in _layers(module)]
    scale, steps = 1.0, list[tuple[Tensor, Tensor] | None]()  # None is ReLU
    for layer in layers:
        if type(layer) is nn.Linear and layer.bias is not None:
            steps.append((layer.weight, layer.bias))
        elif type(layer) is nn.ReLU:
            steps.append(None)
        elif isinstance(layer, Preprocess) and not layer.subtract:
            scale = layer.scale
        elif not isinstance(layer, nn.Flatten):
            return None
    if sum(step[0].numel() for step in steps if step) > MOST_WEIGHTS:
        return None

    def compute(observations: np.ndarray) -> np.ndarray:
        values = observations.reshape(len(observations), -1).astype(np.float32)
        if scale != 1:
            values *= scale
        for step in steps:
            if step is None:
                np.maximum(values, 0, out=values)
            else:
                weight, bias = step
                values = values @ weight.detach().numpy().T
                values += bias.detach().numpy()
        return values

    return compute


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested sequences, one that is used twice twice; a subclass may compute something else."""
    if type(module) is not nn.Sequential:
        yield module
        return
    for inner in module:
        yield from _layers(inner)
