"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dqnspeed")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"


def about() -> str:
    """The versions of dqnspeed, Hydra and torch."""
    return f"dqnspeed {__version__} (hydra {version('hydra-core')}, torch {version('torch')})"
