"""Plans shared by the tests, because composition takes time."""

from __future__ import annotations

import functools

from conftest import TOY

from dqnspeed.bench.plan import Plan

SMALL = ["model=small", "replay.buffer_size=10000"]


@functools.cache
def toy() -> Plan:
    return Plan(["seed=3", *(override for override in TOY if "threads" not in override)])


@functools.cache
def pong() -> Plan:
    return Plan(["env=pong", *SMALL])
