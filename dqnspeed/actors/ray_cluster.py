"""A Ray cluster: whether it answers, joining it, and what it says of a failure, in a line."""

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

CONNECT_S = 15.0  # until somebody answers
LOCAL_STORE = 256 * 2**20  # bytes of the object store of a local cluster
TRIES, TOO_SLOW = 2, "timed out during startup"  # what Ray says when a busy machine has not started one within 30 s
COLOUR, MOST_SAID = re.compile(r"\x1b\[[0-9;]*m"), 400  # of what Ray says; characters
# At 0 a cluster has no other machines and listens on 127.0.0.1 alone, as on macOS. Else Ray listens to everybody, also
# where it is given that address.
LOOPBACK_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def reason_of(error: BaseException) -> str:
    """What Ray says of an actor that is lost, as one line: what happened, where, and why, which comes last."""
    lines = [line.strip().rstrip(".") for line in COLOUR.sub("", str(error)).splitlines() if line.strip()]
    at = next((k for k, line in enumerate(lines) if line.startswith("ip:")), None)
    told = [*lines[:1], *(lines[-1:] if at is None else lines[at : at + 2])]
    return "; ".join(dict.fromkeys(told))[:MOST_SAID] or type(error).__name__


def connected(option: str, address: str | None, own_cpus: float) -> Any:
    """Ray, connected to the cluster at ``address``, or to a local one of its own that has ``own_cpus``.

    Raises:
        ConfigError: it cannot be.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ[LOOPBACK_ALONE] = "0"  # read when Ray is imported
    import ray as module

    ray: Any = module
    how: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    if address is None:
        how |= {"num_cpus": math.ceil(own_cpus), "include_dashboard": False, "object_store_memory": LOCAL_STORE}
    for left in reversed(range(TRIES)):
        try:
            with children_ignore_signals(), preserve_handlers():
                ray.init(address=address or "local", **how)
            break
        except Exception as error:  # Ray's own kinds, and bare ones
            if left and address is None and TOO_SLOW in str(error):
                continue
            # Of versions that differ it has several lines.
            reason = " ".join(str(error).split())[:MOST_SAID].rstrip(".")
            raise ConfigError(f"{option}={address or 'null'}: the Ray cluster cannot be joined ({reason}).") from error
    return ray


def check_address(option: str, address: str | None) -> None:
    """Raise :class:`ConfigError` if ``address`` is none, or nobody answers there."""
    if address is None:
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        except OSError as error:
            raise ConfigError(
                f"{option}={address}: nobody answers there ({error.strerror or error}); ray status on its head node "
                f"says whether the cluster runs."
            ) from error
    elif address != "auto":
        raise ConfigError(f"{option}={address}: takes HOST:PORT, ray://HOST:PORT, auto or null.")


def check_room(ray: Any, option: str, address: str | None, cpus: float, each: float, gpus_each: float = 0) -> None:
    """Raise :class:`ConfigError` if the cluster is too small.

    Args:
        cpus: of all actors or jobs together; ``each``, ``gpus_each``: of one, which a machine must have.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has = sum(node.get("CPU", 0.0) for node in nodes)
    if has < cpus:
        raise ConfigError(f"{option}={address}: the cluster has {has:g} CPUs, and {cpus:g} are asked for.")
    for kind, asked in (("CPU", each), ("GPU", gpus_each)):
        most = max(node.get(kind, 0.0) for node in nodes)
        if most < asked:
            raise ConfigError(f"{option}={address}: no machine there has {asked:g} {kind}s, but {most:g} at most.")
