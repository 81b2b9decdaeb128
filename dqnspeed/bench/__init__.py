"""``python -m dqnspeed.bench``: measure which speed-ups pay on this machine."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.bench.command import main as command  # not needed by the measured processes

    command()
