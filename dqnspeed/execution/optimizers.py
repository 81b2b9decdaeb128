"""Optimizers, and the learning rate over a run."""

from __future__ import annotations

import torch
from torch import nn

from dqnspeed.config.schema import OptimizerConfig


def make_optimizer(optimizer: OptimizerConfig, network: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer of ``conf/optimizer``; fused where torch has it for the device."""
    parameters = list(network.parameters())
    lr, eps, decay = optimizer.lr, optimizer.eps, optimizer.weight_decay
    betas = (optimizer.beta1, optimizer.beta2)
    fused = device.type in ("cpu", "cuda")
    if optimizer.name == "adam":
        return torch.optim.Adam(parameters, lr, betas, eps, decay, fused=fused)
    if optimizer.name == "adamw":
        return torch.optim.AdamW(parameters, lr, betas, eps, decay, fused=fused)
    if optimizer.name == "radam":
        return torch.optim.RAdam(parameters, lr, betas, eps, decay)
    return torch.optim.RMSprop(parameters, lr, optimizer.alpha, eps, decay, optimizer.momentum, optimizer.centered)


def lr_at(update: int, optimizer: OptimizerConfig, decay_updates: float) -> float:
    """Learning rate of the ``update``-th update: from ``lr`` to ``lr_final`` in a straight line, then constant."""
    if optimizer.lr_final is None:
        return optimizer.lr
    return annealed(update, optimizer.lr, optimizer.lr_final, decay_updates)


def annealed(update: int, first: float, last: float, decay_updates: float) -> float:
    """A number that goes from ``first`` to ``last`` in a straight line over ``decay_updates``, then stays."""
    progress = min(1.0, update / decay_updates)
    return first + progress * (last - first)
