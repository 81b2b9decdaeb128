"""Plans that the tests share: composing takes its time."""

from __future__ import annotations

import functools

from conftest import TOY

from dqnspeed.bench.plan import Plan

SMALL = ["model=small", "replay.capacity=10000"]


@functools.cache
def toy() -> Plan:
    return Plan([override for override in TOY if "threads" not in override], seed=3)


@functools.cache
def pong() -> Plan:
    return Plan(["env=pong", *SMALL], seed=3)
