"""The global random generators of this process: seeding, saving and restoring them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed torch, and the global generators of NumPy and Python, which a user's environment may use."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


@contextlib.contextmanager
def preserve() -> Iterator[None]:
    """Restore the global generators after the block."""
    before = state_dict()
    try:
        yield
    finally:
        load_state_dict(before)


def state_dict() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "python": [version, list(words), gauss],
        "cuda": {str(device): torch.cuda.get_rng_state(device).numpy() for device in _cuda_devices()},
        "mps": torch.mps.get_rng_state().numpy() if torch.backends.mps.is_available() else None,
    }


def load_state_dict(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    for device in _cuda_devices():
        if str(device) in state["cuda"]:  # a run without CUDA saved none
            torch.cuda.set_rng_state(torch.from_numpy(state["cuda"][str(device)]), device)
    if torch.backends.mps.is_available() and state["mps"] is not None:
        torch.mps.set_rng_state(torch.from_numpy(state["mps"]))


def _cuda_devices() -> range:
    """The devices in use by this process, since asking for a state would initialize CUDA."""
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
