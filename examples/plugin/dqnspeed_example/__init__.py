"""An option of each kind for dqnspeed. Importing this package registers them."""

from pathlib import Path

from dqnspeed.config.registry import add_folder
from dqnspeed_example import (  # noqa: F401 (importing them registers their options)
    actors,
    algorithm,
    backend,
    exploration,
    network,
    optimizer,
    qr_dqn,
    replay,
    smooth_double,
    tracker,
    wrapper,
)

add_folder(Path(__file__).parent / "conf")
