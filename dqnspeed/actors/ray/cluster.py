"""Ray cluster: check of its address, connection to it, and its errors in one line."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
from typing import Any

from dqnspeed.config.options import ConfigError
from dqnspeed.system.child_processes import children_ignore_signals
from dqnspeed.system.signals import preserve_handlers

ADDRESS = "parallelism.address"  # option of actors
CONNECT_TIMEOUT_S = 15.0
LOCAL_STORE = 256 * 2**20  # bytes of the object store of a local cluster
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MAX_REASON = 400  # characters of an error of Ray
# At 0 a cluster listens on 127.0.0.1 alone. Otherwise Ray listens to every machine, even if it is given that address.
LOOPBACK_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def reason_of(error: BaseException) -> str:
    """Ray's error about a lost actor in one line: event, machine, and the reason, which comes last."""
    lines = [line.strip().rstrip(".") for line in COLOUR.sub("", str(error)).splitlines() if line.strip()]
    at = next((k for k, line in enumerate(lines) if line.startswith("ip:")), None)
    told = [*lines[:1], *(lines[-1:] if at is None else lines[at : at + 2])]
    return "; ".join(dict.fromkeys(told))[:MAX_REASON] or type(error).__name__


def connected(option: str, address: str | None, own_cpus: float) -> Any:
    """Ray, connected to the cluster at ``address``, or to a new local cluster that has ``own_cpus``.

    Raises:
        ConfigError: the cluster cannot be joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ[LOOPBACK_ALONE] = "0"  # read when Ray is imported
    import ray as module

    ray: Any = module
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"num_cpus": math.ceil(own_cpus), "include_dashboard": False, "object_store_memory": LOCAL_STORE}
    try:
        with children_ignore_signals(), preserve_handlers():
            ray.init(address=address or "local", **options)
    except Exception as error:  # Ray raises errors of its own and bare exceptions
        reason = " ".join(str(error).split())[:MAX_REASON].rstrip(".")  # may have several lines
        raise ConfigError(f"{option}={address or 'null'}: the Ray cluster cannot be joined ({reason}).") from error
    return ray


def check_address(option: str, address: str | None) -> None:
    """Raise :class:`ConfigError` if ``address`` is not valid, or nobody answers there."""
    if address is None:
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise ConfigError(
                f"{option}={address}: nobody answers there ({error.strerror or error}); ray status on its head node "
                f"says whether the cluster runs."
            ) from error
    elif address != "auto":
        raise ConfigError(f"{option}={address}: takes HOST:PORT, ray://HOST:PORT, auto or null.")


def check_room(ray: Any, option: str, address: str | None, cpus: float, gpus: float = 0) -> None:
    """Raise :class:`ConfigError` if no machine of the cluster has the CPUs and GPUs that one actor or job needs."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind, asked in (("CPU", cpus), ("GPU", gpus)):
        most = max(node.get(kind, 0.0) for node in nodes)
        if most < asked:
            raise ConfigError(f"{option}={address}: no machine there has {asked:g} {kind}s, but {most:g} at most.")
