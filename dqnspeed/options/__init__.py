"""``python -m dqnspeed.options``: the reference of all options."""

from __future__ import annotations


def main() -> None:
    """Console entry point."""
    from dqnspeed.options.command import main as command  # imports Hydra and torch, which take seconds

    command()
