"""Acting as one CUDA graph: frame stacks, network and choice of actions on the device."""

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
    """Stacks frames and chooses actions on the device, for a fixed number of environments.

    Each step makes one copy to the device and one back. The first has the newest frames, unless these are on the device
    already. The second has the actions and their columns; the host waits for it, but not for later launches. All random
    numbers are drawn on the device.

    Args:
        seed: seed of the random numbers.
        capture_graph: function that captures the graph.
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
        inputs = {
            "frames": frames, "first": torch.ones(num_envs, dtype=torch.bool), "epsilon": torch.zeros(num_envs),
        }  # fmt: skip
        pinned = device.type == "cuda"
        self._host_bytes = torch.zeros(packed_size(inputs), dtype=torch.uint8, pin_memory=pinned)
        self._host_inputs = unpack(inputs, self._host_bytes)
        self._device_bytes = torch.zeros_like(self._host_bytes, device=device)
        self._inputs = unpack(inputs, self._device_bytes)
        self._bytes_of_frames = packed_size({"frames": frames})
        self._frames_on_device = False  # the newest frames are in ``_inputs``, else in ``_host_inputs``
        self._stacks = torch.zeros(num_envs, spec.stack, *spec.frame_shape, dtype=dtype, device=device)
        self._columns = ("actions", *policy.columns)
        self._outputs = torch.zeros(len(self._columns), num_envs, dtype=torch.float64, device=device)
        self._host_outputs = torch.zeros(self._outputs.shape, dtype=torch.float64, pin_memory=pinned)
        self._launch: Launch | None = None

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        self._frames_on_device = isinstance(frames, Tensor) and frames.device == self._device_bytes.device
        self._newest_frames.copy_(torch.as_tensor(frames))
        self._host_inputs["first"].copy_(torch.from_numpy(first))

    def __call__(self, epsilon: float | np.ndarray) -> Callable[[], Acted]:
        self.warm_up()
        assert self._launch is not None
        self._host_inputs["epsilon"].copy_(torch.as_tensor(epsilon))
        begin = self._bytes_of_frames if self._frames_on_device else 0
        self._device_bytes[begin:].copy_(self._host_bytes[begin:], non_blocking=True)
        version = int(self._policy.network.version)
        self._launch()
        self._host_outputs.copy_(self._outputs, non_blocking=True)
        copied = None
        if self._device.type == "cuda":
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self._device))
        return functools.partial(self._acted, copied, version)

    @property
    def device_actions(self) -> Tensor:
        return self._outputs[0]

    @property
    def device_frames(self) -> Tensor:
        return self._inputs["frames"]

    def values(self) -> np.ndarray:
        return self._policy.values(self._newest_stacks().flatten(1, 2))

    def warm_up(self) -> None:
        if self._launch is not None:
            return
        stacks, random = self._stacks.clone(), self._random.state_dict()
        with seeding.preserve(), refusals_of("acting"):
            for last in (False, True):
                prepared(self._step, self._device, last)
            self._launch = self._capture(self._step, self._device)
        self._stacks.copy_(stacks)
        self._random.load_state_dict(random)

    def state_dict(self) -> dict[str, Any]:
        stacks = self._newest_stacks().cpu().numpy()
        return {"stack": {"stacks": stacks}, "policy": {"random": self._random.state_dict()}}

    def load_state_dict(self, state: Mapping[str, Any], stacks: bool = True) -> None:
        if stacks:
            saved = torch.from_numpy(np.array(state["stack"]["stacks"]))
            self._stacks[:, 1:] = saved[:, :-1].to(self._device)  # the next step pushes the newest frames
            self._frames_on_device = False
            self._newest_frames.copy_(saved[:, -1])
            self._host_inputs["first"].zero_()
        if "random" in state["policy"]:  # other policies save random numbers of the host
            self._random.load_state_dict(state["policy"]["random"])

    def _acted(self, copied: torch.cuda.Event | None, version: int) -> Acted:
        if copied is not None:
            copied.synchronize()
        actions, *columns = self._host_outputs.numpy().copy()
        acting = {name: column.astype(np.float32) for name, column in zip(self._columns[1:], columns, strict=True)}
        if acting:
            acting["versions"] = np.full(len(actions), version)
        return actions.astype(np.int64), acting

    @property
    def _newest_frames(self) -> Tensor:
        return (self._inputs if self._frames_on_device else self._host_inputs)["frames"]

    def _newest_stacks(self) -> Tensor:
        return self._pushed(self._newest_frames.to(self._device), self._host_inputs["first"].to(self._device))

    def _step(self) -> None:
        """Work of one step on the device, which the graph captures."""
        policy, execution = self._policy, self._policy.execution
        self._stacks.copy_(self._pushed(self._inputs["frames"], self._inputs["first"]))
        with gradients_off(execution), precision(execution, self._device):
            output = policy.output(self._stacks.flatten(1, 2))
            actions, columns = policy.choose(output, self._inputs["epsilon"], self._random)
        rows = [actions, *(columns[name] for name in self._columns[1:])]
        outputs = torch.stack([torch.as_tensor(row).double() for row in rows])
        self._outputs.copy_(outputs.detach())

    def _pushed(self, frames: Tensor, first: Tensor) -> Tensor:
        moved = torch.cat([self._stacks[:, 1:], frames[:, None]], dim=1)
        return torch.where(first.view(-1, *[1] * frames.dim()), frames[:, None], moved)
