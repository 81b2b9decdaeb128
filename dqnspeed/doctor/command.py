"""``python -m dqnspeed.doctor env=...``: finds out why an agent does not learn in an environment."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.cli.compose import from_hydra, own_hydra
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.cli.preflight import compose_line
from dqnspeed.config.combinations import untuned, unused
from dqnspeed.config.options import ConfigError, option
from dqnspeed.doctor.checkup import WRONG
from dqnspeed.doctor.diagnosis import diagnose

ABOUT = """Check an environment by a random policy and a few updates.

Prints one line for each finding: ok, look (worth a look) or wrong (prevents learning), and what to do about it.
The exit code is 1 if something is wrong."""
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


@dataclasses.dataclass(frozen=True)
class DoctorConfig:
    seconds: float = option("time for which the random policy plays, in seconds", gt=0, default=60.0)
    picture: str = option("file to draw an observation into, as the network gets it", default="doctor.png")


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.doctor env=NAME [GROUP=OPTION or KEY=VALUE of dqnspeed.train...] [KEY=VALUE...]",
    ABOUT,
    DoctorConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
)


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:] or ["--help"])
    image = Path(options.picture)
    if not image.absolute().parent.is_dir():
        raise ConfigError(f"picture={image}: there is no such folder.")
    if image.suffix.lower() not in PICTURE_SUFFIXES:
        raise ConfigError(f"picture={image}: must end with one of {', '.join(PICTURE_SUFFIXES)}.")
    with own_hydra():
        run = from_hydra(compose_line(overrides))
    for sentence in (*untuned(run, overrides), *unused(run, overrides)):
        print(f"dqnspeed: {sentence}", file=sys.stderr)
    print(f"{run.env.id}, algo={run.algo.name}: a random policy plays for {options.seconds:g} s", flush=True)
    is_wrong = False
    for finding in diagnose(run, options.seconds, image):
        print(finding, flush=True)
        is_wrong |= finding.verdict == WRONG
    if is_wrong:
        sys.exit(1)


def main() -> None:
    """Console entry point."""
    run_app(_main)
