"""Several processes that train one network together: what they tell each other (torch.distributed)."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError
from dqnspeed.system import machine

dist: Any = torch.distributed  # which does not say what it exports
# Of orders and of states, which others may have to wait for; one that is gone closes its connection.
FOREVER = datetime.timedelta(days=365)
RANK, SIZE, LOCAL, PORT = "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"  # as torchrun sets them
HERE = "LOCAL_WORLD_SIZE"
FILE = "DQNSPEED_WORLD"  # the file by which processes that this program started find one another
_RUN, _HERE, _ERROR = "run", "rank {} is here", "error of rank {}"


class LostRankError(ActorError):
    """Another process of the world is gone, or does not answer."""


class World:
    """The ``size`` processes of a run, of which this is the one numbered ``rank``; rank 0 leads.

    Numbers go through gloo, on the host. Gradients go through NCCL if they are on a GPU, else through gloo too.

    Args:
        store: by which they find one another; ``timeout_s``: silence after which another one counts as lost.
        look: says what became of the others, where that can be seen.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        store: Any,
        device: torch.device,
        timeout_s: float,
        look: Callable[[], str | None] = lambda: None,
    ):
        self.rank, self.size = rank, size
        self.seconds = 0.0  # spent averaging, waits for others included
        self._store, self._look, self._timeout = store, look, datetime.timedelta(seconds=timeout_s)
        self._meet(timeout_s)
        try:
            with self._answered(connects=True):
                dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=self._timeout)
                self._orders = dist.new_group(backend="gloo", timeout=FOREVER)
                self._gradients = dist.group.WORLD
                if device.type == "cuda":
                    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # by one sentence, and no abort
                    self._gradients = dist.new_group(backend="nccl", timeout=self._timeout)
                    dist.all_reduce(torch.zeros(1, device=device), group=self._gradients)  # connects them
        except BaseException:
            self.close()
            raise

    def command(self, *numbers: float) -> Sequence[float]:
        """What rank 0 gives, to all; the others give as many numbers, which do not count."""
        told = torch.tensor(numbers, dtype=torch.float64)
        # The others may wait for long, while rank 0 plays an evaluation.
        self._wait(dist.broadcast(told, src=0, group=self._orders, async_op=True), patient=True)
        return list(told.tolist())

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """``(K,) float64`` of each to ``(size, K)`` for all."""
        found = torch.empty(self.size, *numbers.shape, dtype=torch.float64)
        own = torch.from_numpy(np.ascontiguousarray(numbers, np.float64))
        self._wait(dist.all_gather(list(found), own, async_op=True))
        return found.numpy()

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace all of these by their means over all ranks, in one message."""
        parts = list(tensors)
        begin = time.perf_counter()
        flat = torch.cat([part.detach().reshape(-1).float() for part in parts])
        self._wait(dist.all_reduce(flat, group=self._gradients, async_op=True))
        flat /= self.size
        for part, mean in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            part.detach().copy_(mean.view_as(part))
        self.seconds += time.perf_counter() - begin

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks."""
        begin, total = time.perf_counter(), tensor.detach().clone()
        self._wait(dist.all_reduce(total, group=self._gradients, async_op=True))
        self.seconds += time.perf_counter() - begin
        return total

    def send(self, rank: int, data: bytes) -> None:
        """Bytes for another one, which calls :meth:`receive`."""
        for part in (torch.tensor([len(data)]), torch.frombuffer(bytearray(data), dtype=torch.uint8)):
            self._wait(dist.isend(part, dst=rank, group=self._orders), patient=True)

    def receive(self, rank: int) -> bytes:
        """The bytes that ``rank`` sends."""
        size = torch.zeros(1, dtype=torch.int64)
        self._wait(dist.irecv(size, src=rank, group=self._orders), patient=True)
        data = torch.empty(int(size), dtype=torch.uint8)
        self._wait(dist.irecv(data, src=rank, group=self._orders), patient=True)
        return data.numpy().tobytes()

    def fail(self, sentence: str) -> None:
        """Tell the others why this one ends."""
        fail(self._store, self.rank, sentence)

    def close(self) -> None:
        """Leave; the others notice."""
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):  # there may be none yet
            dist.destroy_process_group()
        # With the last reference to a group its threads end. One that still lets go of a tensor takes the GIL, and
        # would end the process (std::terminate) if Python were shutting down; who refers to this world is unknown.
        self._orders = self._gradients = None

    def _meet(self, timeout_s: float) -> None:
        """Wait until all are here; torch's own wait would go on if one had died."""
        keys, deadline = [_HERE.format(rank) for rank in range(self.size)], time.monotonic() + timeout_s
        self._store.set(keys[self.rank], "")
        while not self._store.check(keys):
            why = self._why(patience_s=0)
            if why is None and time.monotonic() > deadline:
                why = f"it did not start within {timeout_s:.0f} s"
            if why is not None:
                raise LostRankError(self._lost(why))
            time.sleep(0.05)

    def _wait(self, work: Any, patient: bool = False) -> None:
        if work is not None:
            with self._answered():
                work.wait() if patient else work.wait(self._timeout)

    @contextlib.contextmanager
    def _answered(self, connects: bool = False) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            why, said = self._why(), f"gloo says: {str(error).strip().splitlines()[0]}"
            if why is None and connects:  # though all are here
                raise LostRankError(
                    f"execution.world_size={self.size}: the processes of this run cannot connect ({said}); all ports "
                    f"between their machines must be open, and GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME may name the "
                    f"network."
                ) from error
            raise LostRankError(self._lost(why or said)) from error

    def _lost(self, why: str) -> str:
        why = why.rstrip(".")
        return f"execution.world_size={self.size}: one of the processes of this run is lost, so all end ({why})."

    def _why(self, patience_s: float = 2.0) -> str | None:
        deadline = time.monotonic() + patience_s  # what it has to say may come after its connection is closed
        while True:
            for rank in range(self.size):
                with contextlib.suppress(RuntimeError):
                    if rank != self.rank and self._store.check([_ERROR.format(rank)]):
                        return f"rank {rank}: {self._store.get(_ERROR.format(rank)).decode()}"
            if seen := self._look():
                return seen
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.1)


def fail(store: Any, rank: int, sentence: str) -> None:
    """Leave word why the process ``rank`` ends."""
    with contextlib.suppress(RuntimeError):
        store.set(_ERROR.format(rank), sentence)


def offer(store: Any, configuration: str) -> None:
    """Give the others the configuration of the run."""
    store.set(_RUN, configuration)


def offered(store: Any) -> str:
    """The configuration of the run, once rank 0 gives it."""
    return str(store.get(_RUN).decode())


def store_in(file: Path, size: int) -> Any:
    """A store in a file, of ``size`` processes of this machine."""
    return dist.FileStore(str(file), size)


def store_here() -> Any:
    """The store of the processes that this one was started with."""
    if path := os.environ.get(FILE):
        return store_in(Path(path), int(os.environ[SIZE]))
    store, _, _ = next(dist.rendezvous("env://"))
    return store


def rank_here() -> int:
    """The rank that torchrun, or another process of this program, gave to this process; 0 without one."""
    return int(os.environ.get(RANK, "0")) if is_launched() else 0


def size_here() -> int:
    """How many processes this one was started as one of."""
    return int(os.environ[SIZE]) if is_launched() else 1


def ranks_here(run: RunConfig) -> int:
    """How many of the processes of a run are on this machine."""
    size = run.execution.world_size
    return min(size, int(os.environ.get(HERE, size))) if is_launched() else size


def is_launched() -> bool:
    """Whether this process was started as one of several, as torchrun does it."""
    rank, size, port = (os.environ.get(name, "") for name in (RANK, SIZE, PORT))
    return rank.isdigit() and size.isdigit() and size != "1" and (port.isdigit() or FILE in os.environ)


def device_of_rank(run: RunConfig) -> torch.device:
    """The device of this process: of several GPUs that with its number on this machine."""
    device = machine.pick_device(run.device)
    if device.type == "cuda" and run.execution.world_size > 1:
        device = torch.device("cuda", int(os.environ.get(LOCAL, "0")))
        torch.cuda.set_device(device)
    return device


def check_world(run: RunConfig) -> None:
    """Raise :class:`ConfigError` if this machine, or what started this process, does not fit ``world_size``."""
    size = run.execution.world_size
    if size_here() not in (1, size):
        raise ConfigError(
            f"execution.world_size={size}: this process was started as one of {size_here()} ({SIZE} in its "
            f"environment); set execution.world_size={size_here()}."
        )
    if size == 1:
        return
    if not dist.is_available():
        raise ConfigError(f"execution.world_size={size}: this torch was built without torch.distributed.")
    device = machine.pick_device(run.device)
    if device.type == "mps":
        raise ConfigError(f"execution.world_size={size}: takes device=cpu or cuda, not mps.")
    if device.type == "cuda" and ranks_here(run) > torch.cuda.device_count():
        raise ConfigError(
            f"execution.world_size={size}: needs as many GPUs, and this machine has {torch.cuda.device_count()}; "
            f"lower it, or use device=cpu."
        )
