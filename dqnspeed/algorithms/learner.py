"""The base of learners that train a network by gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms import algorithm_of, make_network
from dqnspeed.algorithms.optimization import Optimization
from dqnspeed.algorithms.target_network import TargetNetwork
from dqnspeed.algorithms.update_metrics import LIKELY_CAUSES, NotFiniteError, UpdateMetrics
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import annealed, set_lr
from dqnspeed.execution.transfer import DeviceTimer
from dqnspeed.networks.base import Network, as_tensors
from dqnspeed.networks.weight_gradient import make_quick


class GradientLearner:
    """Trains a network by one gradient step for each batch.

    A subclass defines ``loss``, its inputs, and an ``update`` of :meth:`backward` and :meth:`optimizer_step`. An update
    computes on the device and does not wait for it, so that ``execution.graph`` can capture it as a CUDA graph.

    Attributes:
        buffer: source of the batches.
        METRICS: names of the metrics that :meth:`optimizer_step` takes, in their order.
        loss: takes :meth:`loss_inputs` as tensors on the device. Its result is a NamedTuple of tensors with a field
            ``loss``.
        target: the target network of an algorithm that has one.
        on_device: the device counts the updates, for a CUDA graph.
        decay_updates: updates over which the learning rate and an entropy bonus decay.
        skipped: updates that an algorithm has left out, which count in schedules.
    """

    METRICS: ClassVar[tuple[str, ...]] = ("loss",)
    loss: Callable[..., Any]
    target: TargetNetwork | None = None
    buffer: Any = None
    skipped = 0

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        self.run, self.execution, self.device = run, run.execution, device
        self.updates, self.started, self.on_device = 0, False, run.execution.graph
        self.decay_updates = run.decay_updates
        self.network: Network = make_network(run, spec)
        self.network.place(device, run.execution.channels_last)
        bf16_nhwc = run.execution.channels_last and run.execution.precision == "bf16"
        if run.execution.compile and bf16_nhwc and device.type == "cpu":
            make_quick(self.network)
        self.optimization = Optimization(self.network, self.loss, run, device)
        self._metrics, self._timer = UpdateMetrics(self.METRICS, device), DeviceTimer(device, "updating")
        self._device_count = torch.zeros((), dtype=torch.int64, device=device)
        self.sync_update_count(0)

    def update(self, batch: Any) -> None:
        """Learn from ``batch``."""
        raise NotImplementedError

    def loss_inputs(self, batch: Any) -> Mapping[str, np.ndarray | Tensor]:
        """The arguments of the loss, by name."""
        raise NotImplementedError

    def backward(self, batch: Any) -> Any:
        """Compute the loss of ``batch`` and the gradients of the network; returns the loss's result."""
        return self.optimization.backward(self.loss_inputs(batch))

    def optimizer_step(self, *metrics: Tensor) -> None:
        """Step along the gradients of :meth:`backward`, record the metrics ``()`` and count the update."""
        self.optimization.step(self.learning_rate())
        self._metrics.record(self.update_count, metrics)
        self._device_count += 1
        self.sync_update_count(self.updates + 1)

    @property
    def update_count(self) -> int | Tensor:
        """Updates so far; ``() int64`` on the device under ``execution.graph``."""
        return self._device_count if self.on_device else self.updates

    def sync_update_count(self, updates: int) -> None:
        """Set the host's count, and with it the version of the weights that actors see.

        Without the background that ``model.background`` measures the version is -1.
        """
        self.updates = updates
        unmeasured = self.run.model.background and not self.started
        self.network.version.fill_(-1 if unmeasured else updates)

    def should_sync_target(self, updates: int) -> bool:
        """Whether update number ``updates`` ends with a copy into the target network."""
        return self.target is not None and self.target.is_due(updates)

    def set_progress(self, share: float) -> None:
        """Let the learning rate and an entropy bonus fall over the whole run, of which ``share`` is over."""
        due = self.updates + self.skipped
        self.decay_updates = due / share if due else math.inf

    def learning_rate(self) -> float | Tensor:
        """Learning rate of the next step: linear from ``lr`` to ``lr_final``, then constant."""
        optimizer = self.run.optimizer
        if optimizer.lr_final is None:
            return optimizer.lr
        return annealed(self.update_count + self.skipped, optimizer.lr, optimizer.lr_final, self.decay_updates)

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Copy ``weights`` into the network and the target network, before the first update."""
        for network in self._networks.values():
            network.load_state_dict(weights)

    def attach(self, buffer: Any) -> None:
        """Keep the buffer that batches come from. A rollout buffer counts the updates since its policy acted."""
        self.buffer = buffer
        if isinstance(buffer, RolloutBuffer):
            buffer.updates_done = lambda: self.updates

    def on_training_start(self, frames: np.ndarray) -> None:
        """Measure the background of frames ``(K, C, ...)`` of random play, before the first update."""
        for network in self._networks.values():
            network.preprocess.measure(torch.from_numpy(frames))
        self.started = True
        self.sync_update_count(self.updates)

    def warm_up(self, batch: Any) -> None:
        """Prepare what the first update would prepare, without an effect on the learner."""
        self.optimization.warm_up(self.loss_inputs(batch))

    def timed(self) -> AbstractContextManager[None]:
        """Measure the device's time for the work that is launched inside."""
        return self._timer.running()

    def stats(self) -> dict[str, float]:
        """Means of the metrics since the last call, NaN without an update; and the last learning rate.

        Raises:
            NotFiniteError: a metric or a weight is infinite or NaN.
        """
        means = self._metrics.means(self.updates)
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise NotFiniteError(f"update {self.updates}: a weight of the network is not finite. {LIKELY_CAUSES}")
        means |= algorithm_of(self.run).metrics(self)
        return {**means, "train/learning_rate": self.optimization.learning_rate, **self._timer.metrics()}

    def state_dict(self) -> dict[str, Any]:
        """Weights, the optimizer's state and the count of updates, which the learning rate follows from."""
        return {
            **{name: network.state_dict() for name, network in self._networks.items()},
            "optimizer": self.optimization.state_dict(),
            "updates": self.updates,
            "started": self.started,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays, in place: actors may share the weights."""
        for name, network in self._networks.items():
            network.load_state_dict(as_tensors(state[name]))
        self.optimization.load_state_dict(state["optimizer"])
        self.started = state["started"]
        self._device_count.fill_(state["updates"])
        self._metrics.restart(state["updates"])
        self.sync_update_count(state["updates"])
        set_lr(self.optimization.optimizer, self.learning_rate())  # which reports show

    @property
    def _networks(self) -> dict[str, Network]:
        """The networks of a checkpoint, by their names there."""
        return {"network": self.network} | ({"target": self.target.network} if self.target else {})
