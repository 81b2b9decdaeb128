"""A state as one safetensors file, written whole or not at all.

Arrays and weights are tensors of the file, everything else is JSON in its header, and a SHA-256 over both detects
damage. Nothing in it is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from dqnspeed.config.options import ConfigError
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import DamagedError

State = dict[str, Any]  # nested dicts with string keys; leaves are arrays, tensors or JSON values
UNREADABLE = OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError  # raised by a damaged file
_SEPARATOR = "/"
MAPPED = 2**20  # values from which on an array is not read into memory, which may not have room for a replay twice


def save(path: Path, state: State) -> None:
    """Write ``state`` to ``path`` whole or not at all, even if the machine loses power.

    Raises:
        OSError, SafetensorError: it could not be written; ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    facts = json.dumps(_take_arrays(state, "", arrays))
    with atomic.replace(path) as partial:
        save_file(arrays, partial, metadata={"facts": facts, "sha256": _checksum(facts, arrays)})


def load(path: Path) -> State:
    """The state in ``path``; tensors come back as arrays, of which large ones stay in the file until they are read.

    Raises:
        DamagedError: the file is truncated, changed, or no checkpoint.
        ConfigError: it cannot be read now, which says nothing of what it holds.
    """
    try:
        with path.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); try again later, or move it away for the one before it."
        ) from error
    try:
        with safe_open(path, framework="np") as file, safe_open(path, framework="pt") as mapped:
            metadata, arrays = file.metadata() or {}, {}
            for name in file.keys():  # noqa: SIM118  no mapping
                large = math.prod(file.get_slice(name).get_shape()) >= MAPPED
                arrays[name] = mapped.get_tensor(name).numpy() if large else file.get_tensor(name)
        facts = metadata["facts"]
        if _checksum(facts, arrays) != metadata["sha256"]:
            raise DamagedError(f"{path} is damaged: its contents do not match its checksum.")
        state: State = dict(json.loads(facts))
        for name, array in arrays.items():
            *parents, key = name.split(_SEPARATOR)
            node = state
            for parent in parents:
                node = node[parent]
            node[key] = array
        return state
    except UNREADABLE as error:
        raise DamagedError(f"{path} is damaged or no checkpoint ({type(error).__name__}: {error}).") from error


def facts_of(path: Path) -> State:
    """All of a checkpoint but its arrays, whose checksum is not looked at; raises :data:`UNREADABLE`."""
    with safe_open(path, framework="np") as file:
        facts: State = json.loads(file.metadata()["facts"])
    return facts


def _take_arrays(node: Mapping[str, Any], prefix: str, arrays: dict[str, np.ndarray]) -> State:
    """``node`` without its arrays, which are put into ``arrays`` by their path."""
    rest: State = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rest[key] = _take_arrays(value, f"{name}{_SEPARATOR}", arrays)
        elif isinstance(value, Tensor):
            arrays[name] = np.asarray(value.detach().cpu().numpy(), order="C")
        elif isinstance(value, np.ndarray):
            arrays[name] = np.asarray(value, order="C")
        else:
            rest[key] = value
    return rest


def _checksum(facts: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
