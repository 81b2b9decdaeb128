"""dqnspeed finds out how fast an Atari agent can learn on your machine, and gets it there."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dqnspeed")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"


def about() -> str:
    """The versions of dqnspeed, Hydra and torch."""
    return f"dqnspeed {__version__} (hydra {version('hydra-core')}, torch {version('torch')})"
