"""What all learners with a network share: one optimizer step a batch, and its metrics."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.algorithms import make_network
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import lr_at, make_optimizer, optimizer_of
from dqnspeed.execution.transfer import DeviceTimer, ToDevice
from dqnspeed.execution.world import World
from dqnspeed.networks.base import Network

CAUSES = (
    "Likely causes: optimizer.lr too high, large rewards (try wrappers.clip_reward=true, algo.max_grad_norm=10 or, "
    "where the algorithm has it, algo.loss=huber), or an environment that returns NaN."
)
HISTORY = 4096  # losses kept on the device between two calls of stats()


class NotFiniteError(RuntimeError):
    """A loss, another metric of an update or a weight became infinite or NaN."""


class Loss(NamedTuple):
    """The result of a loss: the numbers of ``STATS`` in their order, of which the first is minimised; and the errors
    ``(B,)`` for a prioritized replay."""

    numbers: tuple[Tensor, ...]
    errors: Tensor | None = None


class GradientLearner:
    """Trains a network with one optimizer step for each batch; subclasses define the loss.

    Nothing in :meth:`update` waits for the device, except for the errors that a prioritized replay asks for: the
    numbers of each update go to a tensor that :meth:`stats` reads.
    """

    STATS: ClassVar[tuple[str, ...]] = ("train/loss",)
    loss: Callable[..., Loss]

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        self._execution, self._optimizer = run.execution, optimizer_of(run)
        self._max_grad_norm, self._decay_updates = run.algo.max_grad_norm, run.decay_updates
        self.device = device
        self.updates, self.started = 0, False
        self.network: Network = make_network(run, spec)
        self.network.place(device, run.execution.channels_last)
        self.optimizer = make_optimizer(self._optimizer, self.network, device)
        self._to_device, self._timer = ToDevice(device, run.execution.pin_memory), DeviceTimer(device)
        self._compute_loss = torch.compile(self.loss) if run.execution.compile else self.loss
        self._history = torch.zeros(HISTORY, len(self.STATS), device=device)
        self._reported = 0
        self._world: World | None = None

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
        self.started = state.get("begun", self.updates > 0)
        self.network.version.fill_(self.updates)

    def begin(self, frames: np.ndarray) -> None:
        """Called once, before the first update, with frames ``(K, C, ...)`` of random play."""
        self.network.preprocess.measure(torch.from_numpy(frames))
        self.started = True

    def warm_up(self, batch: Any) -> None:
        """Compile, choose kernels and touch memory as an update on ``batch`` would; the learner is unchanged."""
        self._compute_loss(**self._to_device(self.loss_inputs(batch))).numbers[0].backward()
        self.optimizer.zero_grad(set_to_none=True)
        scratch = copy.deepcopy(self.network)
        optimizer = make_optimizer(self._optimizer, scratch, self.device)
        for parameter in scratch.parameters():
            parameter.grad = torch.zeros_like(parameter)
        nn.utils.clip_grad_norm_(scratch.parameters(), 1.0)
        optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def attach(self, memory: Any, world: World | None = None) -> None:
        """Average gradients with the other processes of ``world``, if there are any."""
        self._world = world

    def update(self, batch: Any) -> None:
        """One optimizer step on ``batch``."""
        self._step(batch)

    def _step(self, batch: Any) -> Loss:
        with self._timer.running():
            loss = self._compute_loss(**self._to_device(self.loss_inputs(batch)))
            self.optimizer.zero_grad(set_to_none=True)
            loss.numbers[0].backward()
            numbers = torch.stack([number.detach() for number in loss.numbers])
            if self._world is not None:
                gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
                self._world.average([*gradients, numbers])
            if self._max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.network.parameters(), self._max_grad_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = lr_at(self.updates, self._optimizer, self._decay_updates)
            self.optimizer.step()
            self._history[self.updates % HISTORY] = numbers
        self.updates += 1
        self.network.version.add_(1)
        return loss

    def stats(self) -> dict[str, float]:
        """Metrics: means over the updates since the last call.

        Raises:
            NotFiniteError: one of them, or a weight, is infinite or NaN.
        """
        count = min(self.updates - self._reported, HISTORY)
        if not count:
            return dict.fromkeys(self.STATS, math.nan)
        order = torch.arange(self.updates - count, self.updates, device=self.device)
        history = self._history[order % HISTORY].cpu()
        self._reported = self.updates
        bad = ~torch.isfinite(history).all(dim=1)
        if bad.any():
            first = self.updates - count + int(bad.nonzero()[0])
            named = zip(self.STATS, history[bad][0].tolist(), strict=True)
            numbers = ", ".join(f"{name.partition('/')[2]} {value:g}" for name, value in named)
            raise NotFiniteError(f"update {first + 1}: {numbers} is not finite. {CAUSES}")
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise NotFiniteError(f"update {self.updates}: a weight of the network is not finite. {CAUSES}")
        return {**dict(zip(self.STATS, history.mean(dim=0).tolist(), strict=True)), **self._timer.metrics()}

    def loss_inputs(self, batch: Any) -> Mapping[str, np.ndarray | Tensor]:
        """The arrays of ``batch`` that the loss takes."""
        raise NotImplementedError


class OnPolicyLearner(GradientLearner):
    """Adds ``perf/policy_lag``: how many updates older than the learner the acting weights were."""

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._lags: list[float] = []

    def update(self, batch: Any) -> None:
        self._lags.append(self.updates - float(batch.versions.mean()))
        super().update(batch)

    def stats(self) -> dict[str, float]:
        lags, self._lags = self._lags, []
        return {**super().stats(), "perf/policy_lag": statistics.fmean(lags) if lags else math.nan}


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors on the CPU."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
