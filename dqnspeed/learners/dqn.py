"""Deep Q-learning (Mnih et al. 2015) with n-step, double and dueling options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.learners.execution import ToDevice, graphs, lr_at, make_optimizer, place, precision
from dqnspeed.models import QNetwork, frozen_copy
from dqnspeed.replay import Batch

CAUSES = (
    "Likely causes: optimizer.lr too high, algo.loss=mse with unclipped rewards (try huber, algo.max_grad_norm=10 or "
    "wrappers.clip_reward=true), or an environment that returns NaN."
)
HISTORY = 4096  # losses kept on the device between two looks at them


class NotFiniteError(RuntimeError):
    """A loss or a Q-value became infinite or NaN."""


@dataclass(frozen=True)
class LearnerStats:
    """Means over the updates since the last look; NaN where there were none."""

    loss: float
    q_mean: float


class DQN:
    """Trains a Q-network from batches of replay.

    Nothing in :meth:`update` waits for the device: losses gather in a tensor that :meth:`stats` reads.
    """

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        self._algo, self._execution, self._lr = run.algo, run.execution, run.optimizer
        self.device = device
        self.updates = 0
        network = QNetwork(run.model, spec.observation_shape, spec.num_actions, spec.largest)
        self.network = place(network, run.execution, device)
        self.target = frozen_copy(self.network)
        if not run.execution.no_grad:
            self.target.requires_grad_(True)  # builds graphs nobody uses: the point of that rung
        self.optimizer = make_optimizer(run.optimizer, self.network, device)
        self._to_device = ToDevice(device, run.execution.pin_memory)
        self._compute_loss = torch.compile(self._loss) if run.execution.compile else self._loss
        self._criterion = F.mse_loss if run.algo.loss == "mse" else F.smooth_l1_loss
        self._history = torch.zeros(HISTORY, 2, device=device)
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        """Weights, target, optimizer and the count of updates; the learning rate follows from the count."""
        return {
            "network": self.network.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": {str(key): dict(slots) for key, slots in self.optimizer.state_dict()["state"].items()},
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, saved as arrays. The network keeps its memory, which actors may share."""
        for network, kept in ((self.network, state["network"]), (self.target, state["target"])):
            network.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
        slots = {
            int(key): {n: torch.from_numpy(a) for n, a in slot.items()} for key, slot in state["optimizer"].items()
        }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for parameter, slot in self.optimizer.state.items():
            for name, value in slot.items():
                if name != "step" and value.shape == parameter.shape:
                    slot[name] = torch.empty_like(parameter).copy_(value)  # in the parameter's memory layout
        self.updates = self._seen = state["updates"]

    def begin(self, frames: np.ndarray) -> None:
        """Called once, before the first update, with frames ``(K, C, ...)`` of random play."""
        for network in (self.network, self.target):
            network.preprocess.measure(torch.from_numpy(frames))  # type: ignore[union-attr, operator]

    def update(self, batch: Batch) -> None:
        """One optimizer step on ``batch``."""
        tensors = self._to_device(
            {
                "observations": batch.observations,
                "actions": batch.actions,
                "rewards": batch.rewards,
                "next_observations": batch.next_observations,
                "discounts": batch.discounts,
            }
        )
        loss, q_mean = self._compute_loss(**tensors)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._algo.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self._algo.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(self.updates, self._lr)
        self.optimizer.step()
        slot = self._history[self.updates % HISTORY]
        slot[0], slot[1] = loss.detach(), q_mean
        self.updates += 1
        if self.updates % self._algo.target_sync == 0:
            self.target.load_state_dict(self.network.state_dict())

    def stats(self) -> LearnerStats:
        """Mean loss and Q-value of the updates since the last call.

        Raises:
            NotFiniteError: one of them, or a weight, is infinite or NaN.
        """
        count = min(self.updates - self._seen, HISTORY)
        if not count:
            return LearnerStats(math.nan, math.nan)
        order = torch.arange(self.updates - count, self.updates, device=self.device)
        history = self._history[order % HISTORY].cpu()
        self._seen = self.updates
        bad = ~torch.isfinite(history).all(dim=1)
        if bad.any():
            first = self.updates - count + int(bad.nonzero()[0])
            loss, q_mean = history[bad][0].tolist()
            raise NotFiniteError(f"update {first + 1}: loss {loss}, mean Q {q_mean} is not finite. {CAUSES}")
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise NotFiniteError(f"update {self.updates}: a weight of the network is not finite. {CAUSES}")
        loss, q_mean = history.mean(dim=0).tolist()
        return LearnerStats(loss, q_mean)

    def _loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        with precision(self._execution, self.device):
            q = self.network(observations)
            with graphs(self._execution):
                next_values = self._next_values(next_observations)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        targets = rewards + discounts * next_values.detach()
        return self._criterion(q_taken, targets), q_taken.detach().mean()

    def _next_values(self, next_observations: Tensor) -> Tensor:
        target_q: Tensor = self.target(next_observations)
        if not self._algo.double:
            return target_q.max(dim=1).values
        best = self.network(next_observations).argmax(dim=1, keepdim=True)  # van Hasselt et al. 2016, equation 4
        return target_q.gather(1, best)[:, 0]


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors on the CPU."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
