"""What all learners with a network share: one optimizer step a batch, and its metrics."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.algorithms import make_network
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.compiling import compiled_with_gradients
from dqnspeed.execution.optimizers import lr_at, make_capturable, make_optimizer, set_lr
from dqnspeed.execution.transfer import DeviceTimer, ToDevice
from dqnspeed.networks.base import Network
from dqnspeed.networks.weight_gradient import make_quick

CAUSES = (
    "Likely causes: optimizer.lr too high, large rewards (try wrappers.clip_reward=true, algo.max_grad_norm=10 or, "
    "where the algorithm has it, algo.loss=huber), or an environment that returns NaN."
)
HISTORY = 2**15  # updates whose numbers are kept on the device between two calls of stats()


class NotFiniteError(RuntimeError):
    """A loss, another metric of an update or a weight became infinite or NaN."""


class Loss(NamedTuple):
    """The result of a loss: the numbers of ``STATS`` in their order, of which the first is minimised; and the errors
    ``(B,)`` for a prioritized replay."""

    numbers: tuple[Tensor, ...]
    errors: Tensor | None = None


class GradientLearner:
    """Trains a network with one optimizer step for each batch; subclasses define the loss.

    Nothing in :meth:`update` waits for the device: the numbers of each update go to a tensor that :meth:`stats` reads.
    An update is :meth:`step`, which computes on the device alone and so can be captured as a graph, and
    :meth:`settle` after some of them; :meth:`count` follows on the host.

    Attributes:
        on_device: the count of updates is read on the device, as in a captured graph, and not on the host.
    """

    STATS: ClassVar[tuple[str, ...]] = ("train/loss",)  # what a loss gives
    MEASURED: ClassVar[tuple[str, ...]] = ()  # what else is measured of each batch
    # On a CPU the compiler may make one graph of a loss and its gradients. For the gradient of indexing with tensors,
    # though not of gather, it may then write outside of arrays (pytorch/pytorch#191837; torch 2.13 does).
    JOINS: ClassVar[bool] = False
    loss: Callable[..., Loss]

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        self._execution, self._optimizer = run.execution, run.optimizer
        self._max_grad_norm, self._decay_updates = run.algo.max_grad_norm, run.decay_updates
        self.device = device
        self.updates, self.started = 0, False
        self.network: Network = make_network(run, spec)
        self.network.place(device, run.execution.channels_last)
        self._measures = run.model.background
        self.network.version.fill_(self._version)
        self.optimizer = self._make_optimizer(self.network)
        self._to_device = ToDevice(device, run.execution.pin_memory)
        self._timer = DeviceTimer(device, "updating")
        compiles = run.execution.compile
        nhwc = run.execution.channels_last and run.execution.precision == "bf16"
        if compiles and nhwc and device.type == "cpu":
            make_quick(self.network)
        self._compute_loss = torch.compile(self.loss, dynamic=False) if compiles else self.loss
        joins = compiles and self.JOINS and device.type == "cpu"
        self._compute_both = compiled_with_gradients(self.loss_and_gradients) if joins else None
        self._history = torch.zeros(HISTORY, len(self.STATS) + len(self.MEASURED), device=device)
        self._count = torch.zeros(1, dtype=torch.int64, device=device)
        self._reported = 0
        self.on_device = run.execution.graph

    @property
    def _version(self) -> int:
        """Of the weights: the updates so far, or -1 before what :meth:`begin` measures, which copies of them lack."""
        return -1 if self._measures and not self.started else self.updates

    @property
    def now(self) -> int | Tensor:
        """Updates so far, as an update reads them."""
        return self._count if self.on_device else self.updates

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer and the count of updates; the learning rate follows from the count."""
        return {
            "network": self.network.state_dict(),
            "optimizer": {str(key): dict(slots) for key, slots in self.optimizer.state_dict()["state"].items()},
            "updates": self.updates,
            "begun": self.started,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays, in place: actors may share the weights."""
        self.network.load_state_dict(as_tensors(state["network"]))
        slots = {int(key): as_tensors(slot) for key, slot in state["optimizer"].items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for parameter, slot in self.optimizer.state.items():
            for name, value in slot.items():
                if name != "step" and value.shape == parameter.shape:
                    slot[name] = torch.empty_like(parameter).copy_(value)  # in the parameter's memory layout
        self.updates = self._reported = state["updates"]
        self._count.fill_(self.updates)
        self.started = state["begun"]
        self.network.version.fill_(self._version)

    def begin(self, frames: np.ndarray) -> None:
        """Called once, before the first update, with frames ``(K, C, ...)`` of random play."""
        self.network.preprocess.measure(torch.from_numpy(frames))
        self.started = True
        self.network.version.fill_(self._version)

    def warm_up(self, batch: Any) -> None:
        """Compile, choose kernels and touch memory as an update on ``batch`` would; the learner is unchanged."""
        self.backward(batch)
        self.optimizer.zero_grad(set_to_none=True)
        scratch = copy.deepcopy(self.network)
        optimizer = self._make_optimizer(scratch)
        for parameter in scratch.parameters():
            parameter.grad = torch.zeros_like(parameter)
        nn.utils.clip_grad_norm_(scratch.parameters(), 1.0)
        optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def attach(self, buffer: Any) -> None:
        """Nothing: most need nothing of their memory but its batches."""

    def update(self, batch: Any) -> None:
        """One optimizer step on ``batch``, unless :meth:`step` leaves it out."""
        if self.step(batch) is None:
            return
        self.count()
        if self.settles(self.updates):
            self.settle()

    def step(self, batch: Any) -> Loss | None:
        """Change the weights, and count on the device; ``None`` if nothing was changed."""
        now = self.now
        with self.timed():
            loss = self.backward(batch)
            numbers = torch.stack([number.detach().float() for number in (*loss.numbers, *self.measured(batch))])
            if self._max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.network.parameters(), self._max_grad_norm)
            if not self.see(now, numbers):
                return None
            set_lr(self.optimizer, self.learning_rate(now))
            self.optimizer.step()
            if isinstance(now, Tensor):
                self._history.index_copy_(0, now % HISTORY, numbers[None])
            else:
                self._history[now % HISTORY] = numbers
            self._count += 1
        return loss

    def backward(self, batch: Any) -> Loss:
        """The loss on ``batch``, whose gradients become those of the parameters."""
        inputs = self._to_device(self.loss_inputs(batch))
        self.optimizer.zero_grad(set_to_none=True)
        if self._compute_both is None:
            loss: Loss = self._compute_loss(**inputs)
            loss.numbers[0].backward()
            return loss
        loss, gradients = self._compute_both(**inputs)
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            if gradient is not None and gradient.stride() != parameter.stride():
                gradient = torch.empty_like(parameter).copy_(gradient)  # a fused optimizer reads both as they lie
            parameter.grad = gradient
        return loss

    @property
    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def loss_and_gradients(self, **inputs: Tensor) -> tuple[Loss, tuple[Tensor | None, ...]]:
        """Both of a batch; ``None`` of parameters that have no part in the loss."""
        loss = self.loss(**inputs)
        gradients = torch.autograd.grad(loss.numbers[0], self._trained, allow_unused=True)
        return Loss(tuple(number.detach() for number in loss.numbers), loss.errors), gradients

    def see(self, now: int | Tensor, numbers: Tensor) -> bool:
        """Look at the ``numbers`` of the update after ``now`` others, ``STATS`` first; False: leave its step out."""
        return True

    def learning_rate(self, now: int | Tensor) -> float | Tensor:
        """That of the update after ``now`` others."""
        return lr_at(now, self._optimizer, self._decay_updates)

    def timed(self) -> AbstractContextManager[None]:
        """Measure the device's time for what is launched in it."""
        return self._timer.running()

    def settles(self, updates: int) -> bool:
        """Whether :meth:`settle` follows on the update that makes them so many."""
        return False

    def settle(self) -> None:
        """Do what is not done after every update."""

    def count(self) -> None:
        """Count an update that was launched."""
        self.updates += 1
        self.network.version.add_(1)

    def stats(self) -> dict[str, float]:
        """Metrics: means over the updates since the last call, and the learning rate of the last one.

        Raises:
            NotFiniteError: one of them, or a weight, is infinite or NaN.
        """
        names = (*self.STATS, *self.MEASURED)
        count = min(self.updates - self._reported, HISTORY)
        rate = {"train/learning_rate": float(self.optimizer.param_groups[0]["lr"])}
        if not count:
            return {**dict.fromkeys(names, math.nan), **rate}
        order = torch.arange(self.updates - count, self.updates, device=self.device)
        history = self._history[order % HISTORY].cpu()
        self._reported = self.updates
        bad = ~torch.isfinite(history).all(dim=1)
        if bad.any():
            first = self.updates - count + int(bad.nonzero()[0])
            named = zip(self.STATS, history[bad][0].tolist(), strict=False)
            numbers = ", ".join(f"{name.partition('/')[2]} {value:g}" for name, value in named)
            raise NotFiniteError(f"update {first + 1}: {numbers} is not finite. {CAUSES}")
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise NotFiniteError(f"update {self.updates}: a weight of the network is not finite. {CAUSES}")
        return {**dict(zip(names, history.mean(dim=0).tolist(), strict=True)), **rate, **self._timer.metrics()}

    def loss_inputs(self, batch: Any) -> Mapping[str, np.ndarray | Tensor]:
        """What of ``batch`` the loss takes."""
        raise NotImplementedError

    def measured(self, batch: Any) -> Sequence[Tensor]:
        """The numbers of ``MEASURED``, ``()`` each on the device."""
        return ()

    def _make_optimizer(self, network: Network) -> torch.optim.Optimizer:
        made = make_optimizer(self._optimizer, network, self.device)
        if self._execution.graph:
            make_capturable(made, self.device)
        return made


class OnPolicyLearner(GradientLearner):
    """Base of learners from rollouts.

    Adds ``train/policy_lag``, the updates between acting and the start of learning from a rollout.
    """

    MEASURED = ("train/policy_lag",)

    def attach(self, buffer: Any) -> None:
        buffer.updates_done = lambda: self.updates

    def measured(self, batch: Any) -> Sequence[Tensor]:
        return [(batch.lags @ batch.weights).to(self.device, non_blocking=True)]


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors on the CPU."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
