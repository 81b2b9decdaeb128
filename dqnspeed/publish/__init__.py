"""``python -m dqnspeed.publish``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.publish.command import main as command  # not needed to import other parts of this package

    command()
