"""How actor processes come to the weights of a learner on a GPU: they look at a copy on the host."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from dqnspeed.execution.transfer import ToDevice
from dqnspeed.networks.base import Network


class HostWeights:
    """A copy of the learner's weights in shared memory on the host; pickled for an actor, it is the same memory.

    An actor has a network of its own, and loads the copy whenever it is newer. Actors read it together, and the learner
    writes it when none of them reads. A lock keeps the two apart, as counters cannot on a processor that reorders reads
    and writes. It is one on a file, which the system releases when its holder is killed; no semaphore is.

    Args:
        lock: a file for it, in a folder that lasts as long as the actors.
    """

    def __init__(self, network: Network, lock: Path):
        self._copy = {name: t.detach().to("cpu", copy=True).share_memory_() for name, t in _weights(network).items()}
        self._version = network.version.clone().share_memory_()
        self._lock = lock
        self._to_device: ToDevice | None = None  # an actor's

    def load_into(self, network: Network) -> None:
        """Bring an actor's network up to date."""
        if int(network.version) == int(self._version):  # one number, for which no lock is needed
            return
        weights = _weights(network)
        if self._to_device is None:
            self._to_device = ToDevice(next(iter(weights.values())).device, pin_memory=True)
        with self._locked(fcntl.LOCK_SH), torch.no_grad():
            there = self._to_device(self._copy)  # by way of memory that a GPU reads by itself
            for name, tensor in weights.items():
                tensor.copy_(there[name])
            network.version.copy_(self._version)

    def store(self, tensors: Mapping[str, Tensor], version: int) -> bool:
        """Replace the copy, or return False at once if an actor is reading it."""
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                for name, tensor in tensors.items():
                    self._copy[name].copy_(tensor)
                self._version.fill_(version)
        except BlockingIOError:
            return False
        return True

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with self._lock.open("a") as lock:  # anew, since the lock is that of an open file; it ends with the block
            fcntl.flock(lock, how)
            yield


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
        if self._under_way is None or not (self._landed is None or self._landed.query()):
            return
        if self._weights.store(self._landing, self._under_way):  # else it is tried at the next call
            self._under_way = None


def _weights(network: Network) -> dict[str, Tensor]:
    """All that a network computes with."""
    return dict(network.state_dict(keep_vars=True))
