"""``python -m dqnspeed.doctor``."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.doctor.command import main as command  # the parts of this package can be had without it

    command()
