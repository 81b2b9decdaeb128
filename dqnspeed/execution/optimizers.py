"""Optimizers, and the learning rate over a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import base_of, register
from dqnspeed.config.schema import OptimizerConfig, RunConfig, typed


@base_of("optimizer")
@dataclass(frozen=True)
class Optimizer(OptimizerConfig):
    """An option of ``optimizer``: the numbers of a torch optimizer, and a method that makes it."""

    def make(self, parameters: Sequence[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
        """Make the optimizer of these parameters; fused if torch supports that on the device."""
        raise NotImplementedError

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if run.execution.graph:
            weight, bias = (nn.Parameter(torch.zeros(shape)) for shape in ((1, 1), (1,)))
            made = self.make([weight, bias], torch.device("cpu"))
            if not all("capturable" in group for group in made.param_groups):
                raise ConfigError(
                    f"execution.graph=true: optimizer={self.name} has no capturable form; use adam, adamw, radam or "
                    f"rmsprop."
                )
        by_clock = run.decay_seconds is not None
        if by_clock and run.execution.graph:
            raise ConfigError(
                "optimizer.lr_decay_steps=null: a CUDA graph does not read the clock. Use a number, or stop.max_steps."
            )
        if self.lr_final is not None and run.updates_per_step is None and not by_clock:
            raise ConfigError(
                f"optimizer.lr_final={self.lr_final:g}: parallelism.samples_per_step=free leaves open how many updates "
                f"an agent step is. Use optimizer.lr_final=null, or a number for parallelism.samples_per_step."
            )
        # With a learning rate of 0 the run would continue without learning.
        limit, steps = run.stop.max_steps, self.lr_decay_steps
        if self.lr_final == 0 and steps is not None and (limit is None or limit > steps):
            brings = "stop.max_steps=null may bring" if limit is None else f"stop.max_steps={limit} brings"
            raise ConfigError(
                f"optimizer.lr_final=0: after optimizer.lr_decay_steps={steps} agent steps nothing would "
                f"be learnt, and {brings} more; raise the former, lower the latter, or end with a rate above 0."
            )


@register("optimizer", "adam")
@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba (2015)."""

    kind: ClassVar[Any] = torch.optim.Adam

    beta1: float = option("decay of the first moment", ge=0, lt=1)
    beta2: float = option("decay of the second moment", ge=0, lt=1)

    def make(self, parameters: Sequence[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
        fused = {"fused": True} if device.type in ("cpu", "cuda") and self.kind is not torch.optim.RAdam else {}
        betas = (self.beta1, self.beta2)
        made: torch.optim.Optimizer = self.kind(parameters, self.lr, betas, self.eps, self.weight_decay, **fused)
        return made


@register("optimizer", "adamw")
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    kind: ClassVar[Any] = torch.optim.AdamW


@register("optimizer", "radam")
@dataclass(frozen=True)
class RAdam(Adam):
    """Adam with a rectified, smaller step at first (Liu et al. 2020)."""

    kind: ClassVar[Any] = torch.optim.RAdam


@register("optimizer", "rmsprop")
@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Tieleman and Hinton (2012)."""

    alpha: float = option("decay of the squared gradient", ge=0, lt=1)
    momentum: float = option("momentum", ge=0, lt=1)
    centered: bool = option("divide by the variance, not the second moment")

    def make(self, parameters: Sequence[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            parameters, self.lr, self.alpha, self.eps, self.weight_decay, self.momentum, self.centered
        )


def make_optimizer(config: OptimizerConfig, network: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Make the optimizer of all parameters of ``network``."""
    return typed(config, Optimizer).make(list(network.parameters()), device)


def make_capturable(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Let an optimizer keep its learning rate and its count of steps on ``device``, for a captured graph."""
    for group in optimizer.param_groups:
        group["capturable"] = True
        group["lr"] = torch.tensor(group["lr"], device=device)


def set_lr(optimizer: torch.optim.Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate of the next step; a capturable optimizer keeps it in a tensor that a graph reads."""
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = lr
        elif isinstance(lr, Tensor):
            group["lr"].copy_(lr.view(()))
        else:
            group["lr"].fill_(lr)


def annealed(update: int | Tensor, first: float, last: float, decay_updates: float) -> float | Tensor:
    """Linear from ``first`` to ``last`` over ``decay_updates``, then constant; also a tensor is float64."""
    if isinstance(update, Tensor):
        return first + (update.double() / decay_updates).clamp(max=1.0) * (last - first)
    return first + min(1.0, update / decay_updates) * (last - first)
