"""Measure what an open live page costs a training, in pairs of runs that take turns to go first.

python tools/page_cost.py pairs=12 seconds=20 experiment=speedrun
python tools/page_cost.py saliency=true experiment=standard env=breakout

Other arguments are overrides of the training. A program that reads the page takes the place of a browser, which may be
on another machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import option


@dataclass(frozen=True)
class CostConfig:
    pairs: int = option("pairs of runs", ge=1, default=12)
    seconds: float = option("seconds of training of each run", gt=0, default=20.0)
    page: bool = option("the page is open; false: live=true, and nobody looks", default=True)
    saliency: bool = option("the page shows saliency", default=False)


COMMAND_LINE = CommandLine(
    "python tools/page_cost.py [KEY=VALUE...] [OVERRIDE...]",
    "Measure what an open live page costs a training.",
    CostConfig,
    others="overrides of the training",
    is_other=lambda argument: "=" in argument,
)


def main() -> None:
    """Print the ratio of each pair, and their median."""
    options, overrides = COMMAND_LINE.read(sys.argv[1:])
    ratios = list[float]()
    for number in range(options.pairs):
        order = (True, False) if number % 2 else (False, True)
        speeds = {live: speed(options, overrides, number, live) for live in order}
        ratios.append(speeds[True] / speeds[False])
        print(f"pair {number + 1}: {speeds[False]:,.0f} steps/s, with the page {speeds[True]:,.0f}: {ratios[-1]:.3f}")
    print(f"median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


def speed(options: CostConfig, overrides: list[str], seed: int, live: bool) -> float:
    """Steps per second of a run.

    Raises:
        RunError: the run failed, or nothing came from its page.
    """
    messages = 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        words = [f"hydra.run.dir={run}", f"seed={seed}", f"stop.max_minutes={options.seconds / 60}"]
        words += ["stop.reward_bound=null", "tracking=local", f"live={str(live).lower()}"]
        command = [sys.executable, "-m", "dqnspeed.train", *overrides, *words]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = re.search(r"live page: (\S+)", line)
                if found and options.page:
                    messages = asyncio.run(look(found[1], options.saliency))
        if process.returncode:
            raise RunError(f"the run failed: {shlex.join(command)}")
        if live and options.page and not messages:
            raise RunError(f"no page was shown by {shlex.join(command)}")
        return float(json.loads((run / "summary.json").read_text())["steps_per_second"])


async def look(url: str, saliency: bool) -> int:
    """Read the page until the run has ended, as a browser does; returns the number of messages."""
    import aiohttp

    address, messages = url.replace("/?", "/socket?"), 0
    async with aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
        await socket.send_str(json.dumps({"saliency": saliency}))
        async for _ in socket:
            messages += 1
    return messages


if __name__ == "__main__":
    run_app(main)
