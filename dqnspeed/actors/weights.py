"""How actor processes come to the learner's weights: they open them where they are, or look at a copy on the host."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor

from dqnspeed.networks.base import Network


class OpenedWeights:
    """The learner's network, pickled for an actor, which shares its weights.

    If they cannot be opened there (CUDA IPC may be missing), the actor still starts and sends the reason.
    """

    def __init__(self, network: Network | None, reason: str = ""):
        self.network, self.reason = network, reason

    def __reduce__(self) -> Any:
        return _open_weights, (bytes(ForkingPickler.dumps(self.network)),)


def _open_weights(pickled: bytes) -> OpenedWeights:
    try:
        return OpenedWeights(pickle.loads(pickled))
    except Exception as error:
        return OpenedWeights(None, first_line(error))


def first_line(error: Exception) -> str:
    """The first line of an error's message; CUDA's errors add hints for debugging kernels."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


class HostWeights:
    """A copy of the learner's weights in shared memory on the host; pickled for an actor, it is the same memory.

    An actor has a network of its own, and loads the copy whenever it is newer. There are two copies, which are written
    in turn, so that neither side waits for the other, or holds a lock when it is killed. Counters say which is whole;
    what is written before a counter must be seen before it, as a processor of the x86 family warrants.
    """

    def __init__(self, network: Network, context: Any):
        self._copies = [
            {name: t.detach().to("cpu", copy=True).share_memory_() for name, t in _weights(network).items()}
            for _ in range(2)
        ]
        self._begun, self._stored = (context.RawValue("q", 0) for _ in range(2))  # how often
        self._versions = context.RawArray("q", [int(network.version)] * 2)

    def load_into(self, network: Network) -> None:
        """Bring an actor's network up to date."""
        while True:
            stored = self._stored.value
            version = self._versions[stored % 2]
            if int(network.version) == version:
                return
            with torch.no_grad():
                for name, tensor in _weights(network).items():
                    tensor.copy_(self._copies[stored % 2][name])
            if self._begun.value < stored + 2:  # else it was overwritten meanwhile
                network.version.fill_(version)
                return

    def store(self, tensors: dict[str, Tensor], version: int) -> None:
        """Replace the older copy."""
        self._begun.value += 1
        turn = self._begun.value % 2
        for name, tensor in tensors.items():
            self._copies[turn][name].copy_(tensor)
        self._versions[turn] = version
        self._stored.value = self._begun.value


class Publisher:
    """The learner's side: copies its weights to the host while it goes on, the newest as soon as the last are there."""

    def __init__(self, network: Network, weights: HostWeights):
        self._network, self._weights = network, weights
        self._device = next(network.parameters()).device
        pinned = self._device.type == "cuda"
        self._landing = {
            name: torch.empty(t.shape, dtype=t.dtype, pin_memory=pinned) for name, t in _weights(network).items()
        }
        self._under_way: int | None = None  # the version of what is copied
        self._published = int(network.version)
        self._landed: torch.cuda.Event | None = None

    def publish(self) -> None:
        """Called often; nothing waits for the device."""
        self._arrive()
        if self._under_way is not None:
            return
        version = int(self._network.version)
        if version == self._published:
            return
        for name, tensor in _weights(self._network).items():
            self._landing[name].copy_(tensor.detach(), non_blocking=True)
        if self._device.type == "cuda":
            self._landed = torch.cuda.Event()
            self._landed.record()
        self._under_way = self._published = version
        self._arrive()

    def _arrive(self) -> None:
        if self._under_way is not None and (self._landed is None or self._landed.query()):
            self._weights.store(self._landing, self._under_way)
            self._under_way = None


def _weights(network: Network) -> dict[str, Tensor]:
    """All that a network computes with."""
    return dict(network.state_dict(keep_vars=True))
