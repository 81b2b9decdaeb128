"""Gradients of a loss, and the optimizer's steps along them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.compiling import compiled_with_gradients
from dqnspeed.execution.optimizers import make_capturable, make_optimizer, set_lr
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.networks.base import Network


class Optimization:
    """Gradient steps on a network, in the way that ``execution`` asks for.

    With ``execution.compile`` the loss is compiled. On a CPU its gradients are in the same graph if the algorithm says
    ``compiles_gradients``. That is safe only without gradients of indexing by tensors, whose kernel may write outside
    of its array (pytorch/pytorch#191837); the gradient of ``gather`` is safe.

    Args:
        loss: takes tensors on ``device`` by name. Its result is a NamedTuple of tensors, of which the field ``loss`` is
            minimised.

    Attributes:
        to_device: brings arrays to ``device``.
        loss_and_gradients: the one graph, or ``None``.
    """

    def __init__(self, network: Network, loss: Callable[..., Any], run: RunConfig, device: torch.device):
        self._run, self._network, self._device = run, network, device
        self.optimizer = self._make_optimizer(network)
        self._parameters = list(network.parameters())
        self.to_device = ToDevice(device, run.execution.pin_memory)
        self._plain_loss = loss
        self._loss = torch.compile(loss, dynamic=False) if run.execution.compile else loss
        one_graph = run.execution.compile and run.algo.compiles_gradients and device.type == "cpu"
        self.loss_and_gradients = compiled_with_gradients(self._loss_and_gradients) if one_graph else None

    def backward(self, inputs: Mapping[str, np.ndarray | Tensor]) -> Any:
        """Compute the loss of ``inputs`` and the gradient of every trained parameter; returns the loss's result."""
        tensors = self.to_device(inputs)
        self._drop_gradients()
        if self.loss_and_gradients is None:
            result = self._loss(**tensors)
            result.loss.backward()
            return result
        result, gradients = self.loss_and_gradients(**tensors)
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            if gradient is not None and gradient.stride() != parameter.stride():
                gradient = torch.empty_like(parameter).copy_(gradient)  # a fused optimizer reads both in memory order
            parameter.grad = gradient
        return result

    def step(self, learning_rate: float | Tensor) -> None:
        """Clip the norm of all gradients to ``algo.max_grad_norm`` and step the optimizer."""
        if self._run.algo.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._run.algo.max_grad_norm)
        set_lr(self.optimizer, learning_rate)
        self.optimizer.step()

    def warm_up(self, inputs: Mapping[str, np.ndarray | Tensor]) -> None:
        """Compile, choose kernels and touch memory as a step does; network and optimizer stay as they are."""
        self.backward(inputs)
        self._drop_gradients()
        scratch = copy.deepcopy(self._network)
        optimizer = self._make_optimizer(scratch)
        for parameter in scratch.parameters():
            parameter.grad = torch.zeros_like(parameter)
        nn.utils.clip_grad_norm_(scratch.parameters(), 1.0)
        optimizer.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the last step. Reading it waits for the device under ``execution.graph``."""
        return float(self.optimizer.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's tensors of each parameter, by its number."""
        return {str(number): dict(slots) for number, slots in self.optimizer.state_dict()["state"].items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays."""
        slots = {
            int(number): {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in slot.items()}
            for number, slot in state.items()
        }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for parameter, slot in self.optimizer.state.items():
            for name, value in slot.items():
                if name != "step" and isinstance(value, Tensor) and value.shape == parameter.shape:
                    slot[name] = torch.empty_like(parameter).copy_(value)  # in the parameter's memory layout

    @property
    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._parameters if parameter.requires_grad]

    def _drop_gradients(self) -> None:
        for parameter in self._parameters:  # takes a tenth of the time of zero_grad()
            parameter.grad = None

    def _loss_and_gradients(self, **inputs: Tensor) -> tuple[Any, tuple[Tensor | None, ...]]:
        """The loss's result, and the gradients; ``None`` for parameters that have no part in the loss."""
        result = self._plain_loss(**inputs)
        gradients = torch.autograd.grad(result.loss, self._trained, allow_unused=True)
        return type(result)(*(tensor.detach() for tensor in result)), gradients

    def _make_optimizer(self, network: Network) -> torch.optim.Optimizer:
        made = make_optimizer(self._run.optimizer, network, self._device)
        if self._run.execution.graph:
            make_capturable(made, self._device)
        return made
