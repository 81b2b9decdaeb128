"""``python -m dqnspeed.options``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.options.command import main as command  # not needed to import other parts of this package

    command()
