"""``python -m dqnspeed.play``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.play.command import main as command  # not needed to import other parts of this package

    command()
