"""Check dqnspeed on this machine's GPU in at most 12 minutes, and write ``docs/gpu.md``.

Four parts, the most important first: tests (pytest -m cuda), train (a DQN and the speedrun), emulator (compared with
the CPU) and throughput. Each result is written at once, so an interrupted check leaves a page.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import torch

from dqnspeed.cli.sweep_record import quoted
from dqnspeed.system import atomic, machine

ROOT = Path(__file__).resolve().parents[1]
EMULATOR = ROOT / "packages" / "atari-warp"
SOURCES = (str(ROOT), str(EMULATOR))
LIMITS = {"tests": 240, "train": 170, "emulator": 190, "throughput": 120}  # seconds
FIRST = ("test_graph", "test_family", "test_device_storage", "test_executions")  # in case time runs out
DQN = ("experiment=baseline", "num_envs=8", "algo.learning_starts=1000")
EXECUTIONS = {
    "eager": (),
    "graph": ("execution=graph",),
    "graph, bf16, channels_last": ("execution=graph", "execution.precision=bf16", "execution.channels_last=true"),
    "graph, compiled": ("execution=graph", "execution.compile=true"),
}
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
VERDICTS = {"PASSED": PASSED, "FAILED": FAILED, "ERROR": FAILED, "SKIPPED": SKIPPED}


@dataclass
class Result:
    name: str
    verdict: str
    detail: str = ""


@dataclass
class Part:
    """One part of the check: its results, and the seconds that it took."""

    name: str
    device: str
    folder: Path
    results: list[Result] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def left(self) -> float:
        return max(0.0, LIMITS[self.name] - (time.monotonic() - self.started))

    def call(self, name: str, *command: str, seconds: float = math.inf) -> tuple[int | None, str]:
        """Run ``python -m COMMAND``; returns its exit code, ``None`` if its time ran out, and its output."""
        log = self.folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', name)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])},
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(min(self.left(), seconds))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:  # the process and its actors
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return code, log.read_text(errors="replace")

    def pytest(self, name: str, *paths: str) -> Iterator[Result]:
        """Run the tests marked cuda in ``paths``; yields their count, and a row for each failed test."""
        workers = ["-n", "4"] if importlib.util.find_spec("xdist") else []
        code, log = self.call(name, "pytest", "-m", "cuda", "-v", "-p", "no:cacheprovider", *workers, *paths)
        yield from read_tests(name, code, log)

    def train(self, name: str, seconds: float, *overrides: str) -> Result:
        """Train for ``seconds`` and read the summary."""
        if self.left() < 1:
            return Result(name, SKIPPED, "no time left")
        folder = self.folder / re.sub(r"[^A-Za-z0-9]+", "_", name)
        code, log = self.call(
            name, "dqnspeed.train", *overrides, f"device={self.device}", f"stop.max_minutes={seconds / 60}",
            f"hydra.run.dir={quoted(str(folder))}", "tracking=local", "tracking.progress=off",
        )  # fmt: skip
        if code != 0:
            return failure(name, code, log)
        summary = json.loads((folder / "summary.json").read_text())
        shown = ("steps_per_second", "updates_per_second", "peak_gpu_mib", "return_mean_100")
        detail = ", ".join(f"{key} {summary[key]:,.1f}" for key in shown if summary[key] is not None)
        return Result(name, PASSED if summary["updates"] else FAILED, f"{detail}; {summary['execution']}")


def read_tests(name: str, code: int | None, log: str) -> Iterator[Result]:
    """The results in the output of pytest, which may have been killed."""
    found = re.findall(r"^\S*tests/\S+::.* (PASSED|FAILED|ERROR|SKIPPED)\b", log, re.MULTILINE)
    found += re.findall(r"^\[gw\d+\] \[ *\d+%\] (PASSED|FAILED|ERROR|SKIPPED) ", log, re.MULTILINE)
    verdicts = [VERDICTS[verdict] for verdict in found]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (PASSED, FAILED, SKIPPED))
    if code is None:
        counts += "; the others did not end in time"
    passed = code in (0, None) and FAILED not in verdicts and PASSED in verdicts
    yield Result(name, PASSED if passed else FAILED, counts)
    for test, reason in re.findall(r"^(?:FAILED|ERROR) (\S*tests/\S+)(?: - (.*))?$", log, re.MULTILINE):
        yield Result(test, FAILED, reason)


def failure(name: str, code: int | None, log: str) -> Result:
    """The result of a command that failed or ran out of time."""
    last = " / ".join([line.strip() for line in log.splitlines() if line.strip()][-3:])
    return Result(name, FAILED, f"{'not done in time' if code is None else f'exit code {code}'}: {last}")


def try_tests(part: Part) -> Iterator[Result]:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.cuda" in path.read_text()]
    chosen = sorted(files, key=lambda path: path.stem not in FIRST)
    yield from part.pytest("tests marked cuda", *(str(path.relative_to(ROOT)) for path in chosen))


def try_train(part: Part) -> Iterator[Result]:
    yield part.train("DQN", 25, *DQN)
    yield part.train("DQN, graph", 25, *DQN, "execution=graph")
    yield part.train("speedrun", 60, "experiment=speedrun")


def try_emulator(part: Part) -> Iterator[Result]:
    yield from part.pytest("emulator, tests marked cuda", str((EMULATOR / "tests").relative_to(ROOT)))


def try_throughput(part: Part) -> Iterator[Result]:
    name = "emulator, frames/s"
    command = ("atari_warp", "game=pong", "num_envs=256,16384", f"device={part.device}")
    code, log = part.call(name, *command, seconds=60)
    table = [line.strip("| ") for line in log.splitlines() if line.startswith("|") and "---" not in line]
    yield Result(name, PASSED, "<br>".join(table).replace("|", ",")) if code == 0 else failure(name, code, log)
    for execution, overrides in EXECUTIONS.items():
        yield part.train(f"DQN, batches of 256, {execution}", 6, *DQN, "algo.batch_size=256", *overrides)


PARTS = {"tests": try_tests, "train": try_train, "emulator": try_emulator, "throughput": try_throughput}


def render(parts: list[Part], head: str) -> str:
    """The page, with a table for each part."""
    lines = ["# On a GPU", "", f"Written by `make gpu`. {head}", ""]
    for part in parts:
        lines += [
            f"## {part.name.capitalize()}: {part.seconds:.0f} s",
            "",
            "| check | result | detail |",
            "|---|---|---|",
        ]
        lines += [f"| {row.name} | {row.verdict} | {row.detail.replace('|', '/')} |" for row in part.results] + [""]
    return "\n".join(lines)


def check(names: list[str], device: str, out: Path) -> bool:
    """Run the parts, and write the page after each result; returns whether all parts passed."""
    folder = ROOT / "outputs" / "gpu" / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder.mkdir(parents=True)
    here, packages = machine.describe(torch.device(device)), machine.versions()
    head = (
        f"{datetime.now():%Y-%m-%d}; {here['gpu'] or 'no GPU'}, {here['cpu']}, {here['cores']} cores; "
        f"Python {packages['python']}, torch {torch.__version__}, CUDA {torch.version.cuda}; "
        f"commit {machine.git_commit() or 'unknown'}."
    )
    parts = list[Part]()
    for name in names:
        part = Part(name, device, folder)
        parts.append(part)
        print(f"{name}: at most {LIMITS[name] / 60:.1f} minutes", flush=True)
        for result in PARTS[name](part):
            part.results.append(result)
            part.seconds = time.monotonic() - part.started
            print(f"  {result.verdict:<8} {result.name}: {result.detail}", flush=True)
            atomic.write_text(out, render(parts, head))
    return all(result.verdict != FAILED for part in parts for result in part.results)


def part_name(text: str) -> str:
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"{text}: is no part. Choose one of {', '.join(PARTS)}.")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", type=part_name, default=list(PARTS), metavar="PART", help="default: all")
    parser.add_argument("--out", type=Path, help="the page (default: docs/gpu.md)")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses the check; needs --out"
    )
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"gpu_check: torch {torch.__version__} finds no CUDA device. Nothing was checked.", file=sys.stderr)
        return 2
    if options.device == "cpu" and options.out is None:
        parser.error("--device cpu: needs a page of its own, because docs/gpu.md is for a GPU. Add --out FILE.")
    return 0 if check(options.parts, options.device, options.out or ROOT / "docs" / "gpu.md") else 1


if __name__ == "__main__":
    sys.exit(main())
