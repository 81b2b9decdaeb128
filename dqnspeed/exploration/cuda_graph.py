"""Acting as one graph: stacks, network and choice on the device, for a fixed number of environments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.envs import AnyArray, EnvSpec
from dqnspeed.execution.arrays import Arrays
from dqnspeed.execution.counter_rng import CounterGenerator
from dqnspeed.execution.graph import Capture, Capturing, Launch, prepared, refusals_of
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.execution.transfer import packed_size, unpack
from dqnspeed.exploration.policy import Acted, NetworkPolicy
from dqnspeed.system import seeding


class GraphedPolicy:
    """Stacks frames and acts on them with a policy, on the device.

    For each step one copy goes up (the newest frames, unless they are on the device already), one comes down (the
    actions and what the policy knew), and the host waits once, for that copy and not for what is launched after it. All
    random numbers are drawn on the device.

    Args:
        seed: of these numbers.
        capture_graph: makes the graph.
    """

    how = "graph"

    def __init__(
        self,
        policy: NetworkPolicy,
        spec: EnvSpec,
        num_envs: int,
        device: torch.device,
        seed: Sequence[int],
        capture_graph: Capture | None = None,
    ):
        self._policy, self._device, self._capture = policy, device, capture_graph or Capturing()
        self._random = CounterGenerator(seed, Arrays(device))
        dtype = torch.from_numpy(np.empty(0, spec.frame_dtype)).dtype
        frames = torch.zeros(num_envs, *spec.frame_shape, dtype=dtype)
        self._like = {
            "frames": frames, "first": torch.ones(num_envs, dtype=torch.bool), "epsilon": torch.zeros(num_envs),
        }  # fmt: skip
        pinned = device.type == "cuda"
        self._up = torch.zeros(packed_size(self._like), dtype=torch.uint8, pin_memory=pinned)
        self._host = unpack(self._like, self._up)  # filled by push() and at each step
        self._there = torch.zeros_like(self._up, device=device)
        self._given = unpack(self._like, self._there)
        self._after_frames = packed_size({"frames": frames})  # where what comes after them begins
        self._placed = False  # the newest frames are in ``_given``
        self._stacks = torch.zeros(num_envs, spec.stack, *spec.frame_shape, dtype=dtype, device=device)
        self._columns = ("actions", *policy.columns)
        self._chosen = torch.zeros(len(self._columns), num_envs, dtype=torch.float64, device=device)
        self._down = torch.zeros(self._chosen.shape, dtype=torch.float64, pin_memory=pinned)
        self._launch: Launch | None = None

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        self._placed = isinstance(frames, Tensor) and frames.device == self._there.device
        self._newest.copy_(torch.as_tensor(frames))
        self._host["first"].copy_(torch.from_numpy(first))

    def __call__(self, epsilon: float | np.ndarray) -> Callable[[], Acted]:
        self.warm_up()
        assert self._launch is not None
        self._host["epsilon"].copy_(torch.as_tensor(epsilon))
        begin = self._after_frames if self._placed else 0
        self._there[begin:].copy_(self._up[begin:], non_blocking=True)
        version = int(self._policy.network.version)
        self._launch()
        self._down.copy_(self._chosen, non_blocking=True)
        copied = None
        if self._device.type == "cuda":
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self._device))
        return functools.partial(self._acted, copied, version)

    @property
    def chosen(self) -> Tensor:
        return self._chosen[0]

    @property
    def seen(self) -> Tensor:
        return self._given["frames"]

    def _acted(self, copied: torch.cuda.Event | None, version: int) -> Acted:
        if copied is not None:
            copied.synchronize()
        actions, *known = self._down.numpy().copy()
        acting = {name: column.astype(np.float32) for name, column in zip(self._columns[1:], known, strict=True)}
        if acting:
            acting["versions"] = np.full(len(actions), version)
        return actions.astype(np.int64), acting

    def values(self) -> np.ndarray:
        return self._policy.values(self._shown().flatten(1, 2))

    def warm_up(self) -> None:
        if self._launch is not None:
            return
        stacks, place = self._stacks.clone(), self._random.state_dict()
        with seeding.preserve(), refusals_of("acting"):
            for last in (False, True):
                prepared(self._step, self._device, last)
            self._launch = self._capture(self._step, self._device)
        self._stacks.copy_(stacks)
        self._random.load_state_dict(place)

    def state_dict(self) -> dict[str, Any]:
        return {"stack": {"stacks": self._shown().cpu().numpy()}, "policy": {"random": self._random.state_dict()}}

    def load_state_dict(self, state: Mapping[str, Any], stacks: bool = True) -> None:
        if stacks:
            saved = torch.from_numpy(np.array(state["stack"]["stacks"]))
            self._stacks[:, 1:] = saved[:, :-1].to(self._device)  # the newest frames are pushed at the next step
            self._placed = False
            self._newest.copy_(saved[:, -1])
            self._host["first"].zero_()
        if "random" in state["policy"]:  # else it was saved by one whose numbers are drawn on the host
            self._random.load_state_dict(state["policy"]["random"])

    def _shown(self) -> Tensor:
        """The stacks with the newest frames."""
        return self._pushed(self._newest.to(self._device), self._host["first"].to(self._device))

    @property
    def _newest(self) -> Tensor:
        return (self._given if self._placed else self._host)["frames"]

    def _step(self) -> None:
        execution = self._policy.execution
        self._stacks.copy_(self._pushed(self._given["frames"], self._given["first"]))
        with gradients_off(execution), precision(execution, self._device):
            actions, known = self._policy.choose(self._stacks.flatten(1, 2), self._given["epsilon"], self._random)
        columns = torch.stack([actions.double(), *(known[name].double() for name in self._columns[1:])])
        self._chosen.copy_(columns.detach())

    def _pushed(self, frames: Tensor, first: Tensor) -> Tensor:
        moved = torch.cat([self._stacks[:, 1:], frames[:, None]], dim=1)
        return torch.where(first.view(-1, *[1] * frames.dim()), frames[:, None], moved)
