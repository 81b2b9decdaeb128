"""A frozen network in 8-bit integers, for processors that multiply four pairs of them at once (VNNI).

As by Krishnamoorthi (2018, arXiv:1806.08342, sections 2 and 3.1): weights are signed bytes with a scale for each
output; what a ReLU leaves is bytes with a scale for each layer, but before the last layers. Sums are 32-bit integers,
which no order changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from dqnspeed.networks.base import full_precision
from dqnspeed.networks.convolutional import Flatten
from dqnspeed.networks.heads import Head, QNetwork
from dqnspeed.networks.weight_gradient import Convolution

_onednn = torch.ops.onednn
BYTE, SIGNED = 255, 127  # the largest of each


def fits(network: nn.Module) -> bool:
    """Whether it is convolutions of the observed bytes and fully connected layers, with a ReLU after each and nothing
    else; the last ones apart, which stay in float32."""
    if not isinstance(network, QNetwork) or network.preprocess.subtract:
        return False
    convolutions = [layer for layer in _weighted(network) if isinstance(layer, nn.Conv2d)]
    if any(layer.padding_mode != "zeros" or isinstance(layer.padding, str) for layer in convolutions):
        return False
    torso, *hidden = ([_kind(layer) for layer in layers if type(layer) is not Flatten] for layers in _paths(network))
    return all(
        bool(kinds) and kinds == [kind, nn.ReLU] * (len(kinds) // 2)
        for kinds, kind in [(torso, nn.Conv2d), *((kinds, nn.Linear) for kinds in hidden)]
    )


def _kind(layer: nn.Module) -> type[nn.Module]:
    return nn.Conv2d if type(layer) is Convolution else type(layer)


def _heads(network: QNetwork) -> dict[str, Head]:
    return {name: head for name, head in (("q", network.q), ("value", network.value)) if head is not None}


def _paths(network: QNetwork) -> list[list[nn.Module]]:
    """The layers of the torso, and those of each head but the last."""
    torso = [*network.features] if isinstance(network.features, nn.Sequential) else [network.features]
    return [torso, *([*head][:-1] for head in _heads(network).values())]


def _weighted(network: QNetwork) -> list[nn.Module]:
    return [layer for path in _paths(network) for layer in path if isinstance(layer, (nn.Conv2d, nn.Linear))]


class Int8Network:
    """The values ``(B, num_actions) float32`` of a frozen network for bytes ``(B, stack * C, H, W)``, for each of
    several batches at a time.

    Weights and scales are those of the first batch after :meth:`forget`, scales by the largest number that each layer
    gave for it; what is larger later is cut off.

    Args:
        network: one that :func:`fits`; its weights may change where :meth:`forget` follows.
        compiles: what lays images out.

    Attributes:
        largest: ``(layers,) float32``, those numbers; zeros before that batch.
    """

    def __init__(self, network: QNetwork, compiles: bool = False):
        self._network = network
        self._layers = _weighted(network)
        laid_out = network.preprocess.laid_out
        self._laid_out = torch.compile(laid_out, dynamic=False) if compiles else laid_out
        self.largest = torch.zeros(len(self._layers))
        self._int8: QNetwork | None = None

    def forget(self) -> None:
        """Take weights and scales anew, with the next batch."""
        self.load(torch.zeros_like(self.largest))

    def load(self, largest: Tensor) -> None:
        """Restore the scales of :attr:`largest`, after the network's weights."""
        self.largest.copy_(largest)
        self._int8 = None

    @torch.no_grad()
    def __call__(self, *batches: Tensor) -> tuple[Tensor, ...]:
        images = self._laid_out(*batches)
        if self._int8 is None:
            if not self.largest.any():
                self._measure(images[: len(batches[0])])
            self._int8 = self._converted()
        values: Tensor = self._int8(images)
        parts: tuple[Tensor, ...] = values.split([len(batch) for batch in batches])
        return parts

    def _measure(self, observations: Tensor) -> None:
        def see(layer: nn.Module, _: object, output: Tensor) -> None:
            largest = output.max()
            self.largest[self._layers.index(layer)] = largest if largest > 0 else 1

        hooks = [layer.register_forward_hook(see) for layer in self._layers]
        try:
            with full_precision(observations.device):
                self._network(observations)
        finally:
            for hook in hooks:
                hook.remove()

    def _converted(self) -> QNetwork:
        """A copy of the network with other layers."""
        network = copy.deepcopy(self._network)
        scales = dict(zip(_weighted(network), (self.largest / BYTE).tolist(), strict=True))
        made: list[nn.Module] = []
        scale, channels = network.preprocess.scale, 0
        for layer in _paths(network)[0]:
            if isinstance(layer, nn.Conv2d):
                made.append(_Conv(layer, scale, scales[layer]))
                scale, channels = scales[layer], layer.out_channels
        network.preprocess, network.features = _Nhwc(), nn.Sequential(*made, _Rows())  # type: ignore[assignment]
        for name, head in _heads(network).items():
            setattr(network, name, Head(*_hidden(head, scales, scale, channels), head[-1]))
        return network


def _hidden(head: Head, scales: Mapping[nn.Module, float], scale: float, channels: int) -> Iterator[nn.Module]:
    """The fully connected layers of a head in 8 bits; what the last of them gives is float32."""
    layers = [layer for layer in [*head][:-1] if isinstance(layer, nn.Linear)]
    for layer in layers:
        yield _Linear(layer, scale, None if layer is layers[-1] else scales[layer], channels)
        scale, channels = scales[layer], 1


class _Nhwc(nn.Module):
    """Images as they are, laid out as NHWC."""

    def forward(self, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last)


class _Rows(nn.Module):
    """``(B, C, H, W)``, laid out as NHWC, to ``(B, H * W * C)`` without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


class _Conv(nn.Module):
    """A convolution of bytes and a ReLU, which give bytes."""

    def __init__(self, layer: nn.Conv2d, input_scale: float, output_scale: float):
        super().__init__()
        weight, self._scales = _signed(layer.weight)
        shape = layer.stride, layer.padding, layer.dilation, layer.groups
        self._weight = _onednn.qconv_prepack(weight, self._scales, input_scale, 0, *shape, None)
        self._zeros, self._bias = torch.zeros(layer.out_channels, dtype=torch.int64), layer.bias
        self._shape, self._input_scale, self._output_scale = shape, input_scale, output_scale

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = _onednn.qconv2d_pointwise(
            images, self._input_scale, 0, self._weight, self._scales, self._zeros, self._bias, *self._shape,
            self._output_scale, 0, torch.uint8, "relu", [None], "",
        )  # fmt: skip
        return found


class _Linear(nn.Module):
    """A fully connected layer of bytes and a ReLU, which give bytes, or float32.

    Args:
        channels: of the images that rows come from, if they are as of :class:`_Rows`.
    """

    def __init__(self, layer: nn.Linear, input_scale: float, output_scale: float | None, channels: int):
        super().__init__()
        weight, self._scales = _signed(layer.weight.unflatten(1, (channels, -1)).transpose(1, 2).flatten(1))
        self._weight = _onednn.qlinear_prepack(weight, None)
        self._zeros, self._bias = torch.zeros(layer.out_features, dtype=torch.int64), layer.bias
        self._input_scale, self._output_scale = input_scale, output_scale

    def forward(self, rows: Tensor) -> Tensor:
        scale, kind = (1.0, torch.float32) if self._output_scale is None else (self._output_scale, torch.uint8)
        found: Tensor = _onednn.qlinear_pointwise(
            rows, self._input_scale, 0, self._weight, self._scales, self._zeros, self._bias,
            scale, 0, kind, "relu", [None], "",
        )  # fmt: skip
        return found


def _signed(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights ``(outputs, ...)`` as signed bytes, and the scales ``(outputs,)`` of these."""
    weight = weight.detach().float()
    scales = (weight.flatten(1).abs().amax(1) / SIGNED).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales.view(-1, *[1] * (weight.dim() - 1))).round().to(torch.int8), scales
