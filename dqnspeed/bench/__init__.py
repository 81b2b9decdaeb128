"""``python -m dqnspeed.bench``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.bench.command import main as command  # not needed by the processes that are measured

    command()
