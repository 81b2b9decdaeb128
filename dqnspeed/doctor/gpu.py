"""``python -m dqnspeed.doctor.gpu``: tests dqnspeed on this machine's GPU, and writes a report.

Every file of tests and every training runs in a process of its own with a time limit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from dqnspeed.cli.app import fail, run_app
from dqnspeed.cli.errors import ASKED_FOR
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.doctor.gpu_page import FAILED, PASSED, SKIPPED, Result, render
from dqnspeed.system import atomic, machine
from dqnspeed.tracking.run_folder import DamagedError, read_metrics, read_summary

ROOT = Path(__file__).resolve().parents[2]
# Seconds that each part may take; what has not started by then is reported as not run.
LIMITS = {"tests": 540, "train": 300, "resume": 180, "timings": 210, "bench": 210}
ENOUGH = 90.0  # of a part's seconds: a training that had them and did not end has failed
FIRST = {"test_graph", "test_held", "test_family", "test_wrappers"}  # they are tried first: time may run out
FIGURES = (  # of the summary
    "steps_per_second", "updates_per_second", "updates", "startup_s", "wall_time_s", "return_mean_100", "peak_rss_mib",
    "peak_gpu_mib", "resumed_at", "busy", "execution", "acting", "replay_device",
)  # fmt: skip
REPORTED = ("time/", "perf/gpu_")  # of the last report


@dataclass(frozen=True)
class CheckConfig:
    part: str = option("what to try", choices=("all", *LIMITS), default="all")
    seconds: float = option("length of each training", gt=0, default=40.0)
    out: str = option("the report; parts that were tried earlier stay in it", default="docs/gpu.md")
    folder: str = option("where the runs and the results so far go", default="outputs/gpu")
    device: str = option("cpu tries the command itself", choices=("cuda", "cpu"), default="cuda")


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.doctor.gpu [KEY=VALUE...]",
    "Test dqnspeed on the GPU of this machine, in at most 24 minutes, and write a report.",
    CheckConfig,
)


class Part:
    """A part of the check, with its folder and time limit."""

    def __init__(self, name: str, options: CheckConfig, stamp: str):
        self.options, self.folder = options, Path(options.folder).absolute() / f"{stamp}-{name}"
        self._end = time.monotonic() + LIMITS[name]

    def left(self) -> float:
        return self._end - time.monotonic()

    def path(self, name: str) -> Path:
        return self.folder / re.sub(r"[^\w.]+", "_", name)

    def call(self, log_name: str, *command: str, seconds: float = math.inf) -> tuple[int | None, str]:
        """Exit code of ``python -m COMMAND`` (``None``: it ran out of time), and the end of what it printed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(f"{log_name}.log")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), ASKED_FOR: "0"}
        with path.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(max(0.0, min(self.left(), seconds)))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:  # the process and its actors
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return code, " / ".join(lines[-3:])

    def train(self, name: str, *overrides: str, resume: Path | None = None) -> Result:
        """Run a training from the command line and read its results."""
        left = self.left()
        if left < 1:
            return Result(name, SKIPPED, "not run: no time was left for it")
        folder = resume or self.path(name)
        arguments = [f"resume={folder}"] if resume else [f"hydra.run.dir='{folder}'", "tracking=local"]
        code, end = self.call(name, "dqnspeed.train", *arguments, *overrides, "tracking.progress=off")
        if code != 0:
            return broken_off(name, code, end, left)
        reports, damage = read_metrics(folder)
        try:
            summary = read_summary(folder)
        except DamagedError as error:
            return Result(name, FAILED, f"left no results ({error})")
        if not reports:
            return Result(name, FAILED, f"left no results ({damage or 'no metrics'})")
        figures = {key: summary.get(key) for key in FIGURES}
        figures["reported"] = {key: value for key, value in reports[-1].items() if key.startswith(REPORTED)}
        asked = {"execution=graph", "execution.graph=true"}.intersection(overrides)
        ran = {part: str(summary.get(part)) for part in ("execution", "acting")}
        if asked and not all(how.startswith("graph") for how in ran.values()):
            return Result(name, FAILED, f"ran {ran}", figures)
        if not summary["updates"]:
            return Result(name, FAILED, "learnt nothing in its time", figures)
        return Result(name, PASSED, figures=figures)


def broken_off(name: str, code: int | None, end: str, had: float) -> Result:
    """Of what did not end as it should, and had ``had`` seconds."""
    if code is None and had < ENOUGH:
        return Result(name, SKIPPED, f"not finished: {had:.0f} s were left for it")
    return Result(name, FAILED, f"{'took too long' if code is None else f'exit code {code}'}: {end}")


def try_tests(part: Part) -> Iterator[Result]:
    """Every test marked cuda, by file; files without one are not imported, as they may need other packages."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in path.read_text()]
    if not files:
        yield Result("tests marked cuda", SKIPPED, "there is no tests/ beside this package; run from the source tree")
        return
    for path in sorted(files, key=lambda path: path.stem not in FIRST):
        yield from _try_file(part, path, part.left() / 2)  # one that hangs leaves time for others


def _try_file(part: Part, path: Path, seconds: float) -> Iterator[Result]:
    if seconds < 1:
        yield Result(path.name, SKIPPED, "not run: no time was left for it")
        return
    report = part.path(f"{path.stem}.xml")
    code, end = part.call(
        path.stem, "pytest", "-m", "cuda", "-v", "-W", "ignore::pytest.PytestConfigWarning", "-p", "no:cacheprovider",
        f"--junitxml={report}", str(path), seconds=seconds,
    )  # fmt: skip
    if not report.exists():
        yield from _ended_before(part.path(f"{path.stem}.log").read_text(errors="replace"))
        yield broken_off(path.name, code, end, seconds)
        return
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".")
        verdict, reason = PASSED, ""
        for tag, meaning in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
            if (found := case.find(tag)) is not None:
                verdict, reason = meaning, " ".join((found.get("message") or "").splitlines()[:1])[:300]
        yield Result(name, verdict, reason, {"seconds": float(case.get("time") or 0)})


def _ended_before(log: str) -> Iterator[Result]:
    """What pytest has printed of tests that ended before it was killed."""
    for name, verdict in re.findall(r"^(\S+::.*\S) (PASSED|FAILED|ERROR|SKIPPED)\b", log, re.MULTILINE):
        yield Result(name, {"PASSED": PASSED, "SKIPPED": SKIPPED}.get(verdict, FAILED), "see its log")


EMULATED = ("16,256,4096,16384", "65536")  # games at once
RECIPES = "baseline speedrun speedrun_dqn a3c pqn".split()  # of conf/experiment


def try_train(part: Part) -> Iterator[Result]:
    """Each recipe for the same time."""
    minutes = f"stop.max_minutes={part.options.seconds / 60}"
    for recipe in RECIPES:
        early = ["algo.learning_starts=1000"] if recipe == "baseline" else []  # else a minute may be too short to learn
        name = ", ".join([recipe, *early])
        yield part.train(name, f"experiment={recipe}", minutes, f"device={part.options.device}", *early)


QUICK = ("model=small", "algo.learning_starts=500")
RESUMED = {
    "dqn serial": (*QUICK, "num_envs=2"),
    "dqn graph": (*QUICK, "num_envs=2", "execution=graph"),
    "ppo overlap": ("algo=ppo", "wrappers=native", "parallelism=overlap", "model=small"),
    "a3c 2 actors": ("algo=a3c", "num_envs=4", "parallelism.num_actors=2", "model=small"),
}


def try_resume(part: Part) -> Iterator[Result]:
    """Resume runs on the GPU, and then on a CPU."""
    seconds = min(4.0, part.options.seconds)
    for name, overrides in RESUMED.items():
        folder, before = None, 0.0
        for stage, device in (("start", part.options.device), ("resume", part.options.device), ("resume, CPU", "cpu")):
            arguments = (f"device={device}", f"stop.max_minutes={(before + seconds) / 60}")
            given = _resumed_with(overrides, device) if folder else overrides
            result = part.train(f"{name}: {stage}", *given, *arguments, resume=folder)
            folder = folder or part.path(f"{name}: {stage}")
            before = result.figures.get("wall_time_s", 0.0)
            yield result
            if result.verdict != PASSED:
                break
        else:
            resumed = len(result.figures["resumed_at"])
            yield Result(f"{name}: resumed", PASSED if resumed == 2 else FAILED, f"{resumed} times")


def _resumed_with(overrides: Sequence[str], device: str) -> Sequence[str]:
    """What a run of ``overrides`` is resumed with: a graph, where it had one and ``device`` is a GPU."""
    return [f"execution.graph={str(device != 'cpu').lower()}"] if "execution=graph" in overrides else []


EXECUTIONS = {
    "eager": (),
    "bf16": ("execution.precision=bf16",),
    "channels_last": ("execution.channels_last=true",),
    "lean": ("execution=lean",),
    "compiled": ("execution=compiled",),
    "graph": ("execution=graph",),
    "graph, tf32": ("execution=graph", "execution.precision=tf32"),
    "graph, bf16, channels_last": ("execution=graph", "execution.precision=bf16", "execution.channels_last=true"),
    "graph of 4 updates": (
        "execution=graph",
        "execution.updates_per_graph=4",
        "num_envs=16",
        "algo.steps_per_update=4",
    ),
    "eager, experience on the CPU": ("replay.device=cpu",),
    "unpinned copies": ("execution.pin_memory=false",),
    "ppo, eager": ("algo=ppo", "wrappers=native"),
    "ppo, graph": ("algo=ppo", "wrappers=native", "execution=graph"),
    "pqn, graph": ("algo=pqn", "wrappers=native", "execution=graph"),
    "graph, compiled": ("execution=graph", "execution.compile=true"),
}


def try_timings(part: Part) -> Iterator[Result]:
    """The same DQN, with batches large enough for a GPU, in every kind of execution, and two on-policy algorithms."""
    same = ("algo.learning_starts=600", "algo.batch_size=256", f"device={part.options.device}")
    for name, overrides in EXECUTIONS.items():
        seconds = min(15.0 if "compiled" in name else 5.0, part.options.seconds)  # drawing is compiled meanwhile
        yield part.train(name, *same, f"stop.max_minutes={seconds / 60}", *overrides)


def try_bench(part: Part) -> Iterator[Result]:
    """The pieces of a training, updates in every kind of execution among them, against what the GPU could do; and the
    emulator there, beside ALE."""
    out, device, left = part.path("bench"), f"device={part.options.device}", part.left()
    code, end = part.call("bench", "dqnspeed.bench", "suite=micro", f"out={out}", device)
    found = out / "bench.md"
    if found.exists():
        figures = {"text": found.read_text()}
        yield Result("suite=micro", PASSED if code == 0 else FAILED, "" if code == 0 else end, figures)
    else:
        yield broken_off("suite=micro", code, end, left)
    for games in EMULATED:
        name, left = f"emulator, num_envs={games}", part.left()
        if left < 1:
            yield Result(name, SKIPPED, "not run: no time was left for it")
            continue
        code, end = part.call(name, "dqnspeed.emulator", "game=pong", f"num_envs={games}", device)
        if code != 0:
            yield broken_off(name, code, end, left)
            continue
        table = [line for line in part.path(f"{name}.log").read_text().splitlines() if line.startswith("|")]
        yield Result(name, PASSED, figures={"text": "\n".join([f"# Pong, {name}", "", *table])})


PARTS: dict[str, Callable[[Part], Iterator[Result]]] = {
    "tests": try_tests,
    "train": try_train,
    "resume": try_resume,
    "timings": try_timings,
    "bench": try_bench,
}


def check(options: CheckConfig) -> dict[str, Any]:
    """Run the parts of ``options``; returns the results of all parts so far, and writes them to folder and report."""
    path, out = Path(options.folder) / "results.json", Path(options.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = _earlier(path)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for name in PARTS if options.part == "all" else (options.part,):
        print(f"{name}: at most {LIMITS[name] / 60:.0f} minutes", flush=True)
        part, begin, found = Part(name, options, stamp), time.monotonic(), list[Result]()
        for result in PARTS[name](part):
            found.append(result)
            print(f"  {result.verdict:<8} {result.name} {result.reason}".rstrip(), flush=True)
        results[name] = {
            "when": stamp,
            "seconds": round(time.monotonic() - begin),
            "length_s": options.seconds,
            "machine": machine.describe(torch.device(options.device)),
            "versions": {**machine.versions(), "cuda": torch.version.cuda},
            "commit": machine.git_commit(),
            "results": [dataclasses.asdict(result) for result in found],
        }
        atomic.write_json(path, results)
        atomic.write_text(out, render(results, list(PARTS)))
    return results


def _earlier(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _main() -> None:
    options = parse(sys.argv[1:])
    if options.device == "cuda" and not torch.cuda.is_available():
        build = "" if torch.version.cuda else ", a build without CUDA,"
        fail(f"gpu_check: torch {torch.__version__}{build} finds no CUDA device here, so nothing was tried.")
    results = check(options)
    tried = PARTS if options.part == "all" else (options.part,)
    found = [result for name in tried for result in results[name]["results"]]
    counts = ", ".join(f"{sum(r['verdict'] == v for r in found)} {v}" for v in (PASSED, FAILED, SKIPPED))
    print(f"{counts}; {options.out}")
    if any(result["verdict"] == FAILED for result in found):
        sys.exit(1)


def parse(arguments: list[str]) -> CheckConfig:
    """The options of a command line.

    Raises:
        ConfigError: one is unknown or out of range, or would overwrite a GPU's results with a CPU's.
    """
    options, _ = COMMAND_LINE.read(arguments)
    if options.device == "cpu" and not {options.out, options.folder}.isdisjoint({CheckConfig.out, CheckConfig.folder}):
        raise ConfigError("device=cpu: give out=FILE and folder=FOLDER too, so that no GPU's results are overwritten.")
    return options


def main() -> None:
    """Console entry point."""
    run_app(_main)


if __name__ == "__main__":
    main()
