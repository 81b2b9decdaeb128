"""Adam as operations of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import torch
from torch import Tensor, nn

Moments = Sequence[tuple[Tensor, Tensor]]  # of each parameter: the running means of its gradient and of the square


class AdamInGraph:
    """The steps of torch's ``Adam`` or ``AdamW`` on a CPU, as operations that a compiler joins with those that give the
    gradients, which then are read once, in the precision that they have.

    They equal torch's own but for rounding, and use the optimizer's own state, so that either may make the next step
    once it was saved and loaded; until then one tensor counts the steps of all parameters, also of those that have no
    part in a loss, of which torch counts none.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        group = optimizer.param_groups[0]
        (self._beta1, self._beta2), self._eps, self._decay = group["betas"], group["eps"], group["weight_decay"]
        self._decoupled = isinstance(optimizer, torch.optim.AdamW)
        self._state: object = None  # of the optimizer, when what follows was taken from it
        self._parameters, self._moments = list[nn.Parameter](), list[tuple[Tensor, Tensor]]()
        self._step = torch.zeros(())

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> AdamInGraph | None:
        """``None`` if it is another, or has options that are not known here."""
        plain = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and len(optimizer.param_groups) == 1
        group = optimizer.param_groups[0]
        decoupled = group.get("decoupled_weight_decay", False) and type(optimizer) is torch.optim.Adam
        known = not (group.get("amsgrad") or group.get("maximize") or group.get("differentiable") or decoupled)
        return cls(optimizer) if plain and known else None

    def begin(self, parameters: Sequence[nn.Parameter], lr: float) -> tuple[Moments, Tensor]:
        """Count a step, and give what :meth:`step` takes: the moments, and the numbers ``(3,)`` that are others at each
        step, the learning rate, the size of the step and the factor of the root.

        They are computed here since the compiler would compute powers again for every few weights.
        """
        known = self._state is self._optimizer.state and len(parameters) == len(self._parameters)
        if not known or not all(map(operator.is_, parameters, self._parameters)):
            self._take(parameters)
        self._step += 1
        count = self._step.item()
        numbers = [lr, lr / (1 - self._beta1**count), 1 / math.sqrt(1 - self._beta2**count)]
        return self._moments, torch.tensor(numbers)

    def forget(self) -> None:
        """Take all from the optimizer's state anew, with the next step."""
        self._state, self._moments = None, []

    def _take(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take moments and the count from the optimizer's state, which was loaded, say; one count serves all."""
        states = [self._optimizer.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:  # as torch makes it at a first step
                state["step"] = torch.zeros(())
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        self._step = torch.stack([state["step"] for state in states]).max()
        for state in states:
            state["step"] = self._step
        self._state, self._parameters = self._optimizer.state, list(parameters)
        self._moments = [(state["exp_avg"], state["exp_avg_sq"]) for state in states]

    def step(
        self,
        parameters: Sequence[nn.Parameter],
        gradients: Sequence[Tensor | None],
        moments: Moments,
        numbers: Tensor,
    ) -> None:
        """Change ``parameters`` and ``moments``; those without a gradient stay."""
        lr, step_size, scale = numbers.unbind()
        for parameter, gradient, (first, second) in zip(parameters, gradients, moments, strict=True):
            if gradient is None:
                continue
            gradient = gradient.float()
            if self._decoupled:
                parameter.mul_(1 - lr * self._decay)
            elif self._decay:
                gradient = gradient + self._decay * parameter  # of add(alpha=) the compiler (2.13) loses the alpha
            first.lerp_(gradient, 1 - self._beta1)
            second.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
            parameter.sub_(first * step_size / (second.sqrt() * scale + self._eps))
