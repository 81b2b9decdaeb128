"""``python -m dqnspeed.report``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.report.command import main as command  # the parts of this package can be had without it

    command()
