"""``python -m dqnspeed.bench``: which of these speed-ups pays on this machine?"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dqnspeed.bench import result as results
from dqnspeed.bench.pairs import check_statistics
from dqnspeed.bench.plan import BASELINE
from dqnspeed.bench.progress import Bar, shown
from dqnspeed.bench.recommend import ALLOWED
from dqnspeed.bench.result import Disturbances, Result
from dqnspeed.bench.suites import SUITES, Suite
from dqnspeed.cli.app import run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.hint import BENCH
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError, option
from dqnspeed.runs.folder_lock import locked_folder, new_folder
from dqnspeed.system import atomic, machine, shell
from dqnspeed.tracking.run_folder import DamagedError

ABOUT = """Measure on this machine which of the engineering speed-ups pays, and end with one line to paste.

Everything is measured in pairs with its reference, in turns, so that a noisy machine slows both. GROUP=OPTION and
KEY=VALUE of dqnspeed.train, such as env=breakout, hold for all that is measured. Ctrl-C keeps what was measured."""


@dataclass(frozen=True)
class BenchConfig:
    suite: str = option(
        "quick: in ten minutes; full: every combination; micro: parts; peers: other libraries alone, beside one line",
        choices=SUITES,
        default="quick",
    )
    out: str | None = option("a new folder for the result, null: one in bench/", default=None)
    resume: str | None = option("the folder of a result: measure what is missing in it", default=None)
    peers: bool = option("other libraries too (needs the extra peers)", default=False)
    allow: str | None = option("kinds of change the line may make: task, algorithm or task,algorithm", default=None)
    seed: int = option("seed of everything random", ge=0, lt=2**32, default=0)
    compare: str | None = option("no measuring: OLD.json, and beside it NEW.json, to compare", default=None)
    fail_below: float | None = option("with compare: exit code 1 if a piece fell below this ratio", gt=0, default=None)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.bench [KEY=VALUE...] [GROUP=OPTION or KEY=VALUE of dqnspeed.train...]\n"
    "  python -m dqnspeed.bench compare=OLD.json NEW.json [fail_below=0.9]",
    ABOUT,
    BenchConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
    is_other=lambda _: True,
)


def _main() -> None:
    arguments = sys.argv[1:]
    options, overrides = COMMAND_LINE.read(arguments)
    if options.compare is not None:
        return _compare(options, arguments, overrides)
    if options.fail_below is not None:
        raise ConfigError(f"fail_below={options.fail_below:g}: belongs to compare=OLD.json NEW.json.")
    _allowed(options.allow)
    check_statistics()
    if options.resume is not None:
        return _resume(Path(options.resume), options, arguments)
    return _measure(options, overrides)


def _compare(options: BenchConfig, arguments: Sequence[str], others: Sequence[str]) -> None:
    from dqnspeed.bench import compare

    for argument in arguments:
        if argument not in others and not argument.startswith(("compare=", "fail_below=")):
            raise ConfigError(f"{argument}: does not go with compare=, which measures nothing; fail_below does.")
    if len(others) != 1:
        raise ConfigError(f"compare={options.compare}: takes two files, as in compare=OLD.json NEW.json.")
    compare.command(Path(str(options.compare)), Path(others[0]), options.fail_below)


def _measure(options: BenchConfig, overrides: Sequence[str]) -> None:
    suite = Suite(options.suite, overrides, options.seed)
    peers = _with_peers(suite, options.peers)
    folder = _new_folder(options.out)
    with locked_folder(folder, resumed=False):
        device = machine.pick_device(suite.plan.reference.device)
        result = Result(
            command=shlex.join(["python", "-m", "dqnspeed.bench", *sys.argv[1:]]), started=results.now(),
            suite=options.suite, env=suite.plan.reference.env.id, seed=options.seed, overrides=list(overrides),
            machine=machine.describe(device), versions=machine.versions(), commit=machine.git_commit(),
            peers=peers, allow=options.allow,
        )  # fmt: skip
        try:
            _run(suite, folder, result)
        finally:
            if not (folder / results.FILE).exists():  # it could not be written
                shutil.rmtree(folder, ignore_errors=True)


def _resume(folder: Path, options: BenchConfig, arguments: Sequence[str]) -> None:
    given = {argument.partition("=")[0]: argument for argument in arguments}
    for key, argument in given.items():
        if key not in ("resume", "peers", "allow"):
            raise ConfigError(f"{argument}: cannot be changed in a result that is resumed; peers and allow can.")
    if not folder.is_dir():
        raise ConfigError(f"resume={folder}: there is no such folder.")
    try:
        earlier = results.read(folder / results.FILE)
    except DamagedError as error:
        raise ConfigError(f"resume={folder}: {error}") from error
    if earlier.suite not in SUITES:
        raise ConfigError(f"resume={folder}: its suite is {earlier.suite}; choose one of {', '.join(SUITES)}.")
    suite = Suite(earlier.suite, earlier.overrides, earlier.seed)
    peers = _with_peers(suite, options.peers if "peers" in given else earlier.peers)
    here = machine.describe(machine.pick_device(suite.plan.reference.device))
    for key in ("cpu", "gpu", "cores", "device"):
        if earlier.machine.get(key) != here[key]:
            raise ConfigError(
                f"resume={folder}: was measured on another machine ({key} is {earlier.machine.get(key)} there and "
                f"{here[key]} here)."
            )
    now = {"commit": machine.git_commit(), **machine.versions()}
    found = [*earlier.disturbances.before, *earlier.disturbances.after]
    for name, before in {"commit": earlier.commit, **earlier.versions}.items():
        if now.get(name) != before:
            sentence = f"was begun with {name} {before}, and here it is {now.get(name)}."
            print(f"dqnspeed: resume={folder}: {sentence}", file=sys.stderr)
            found.append(f"the bench {sentence}")
    with locked_folder(folder, resumed=True):
        atomic.clear(folder)
        whole = [one for one in earlier.measurements if one.error is None]  # what failed is tried again
        begun = dataclasses.replace(
            earlier, measurements=whole, complete=False, ended=None, peers=peers,
            allow=options.allow if "allow" in given else earlier.allow,
            disturbances=Disturbances(list(dict.fromkeys(found))),
        )  # fmt: skip
        _run(suite, folder, begun)


def _run(suite: Suite, folder: Path, result: Result) -> None:
    seconds = suite.seconds(result, result.peers)
    print(f"suite={suite.name} takes about {shown(seconds)} minutes here; the result goes to {folder}", flush=True)
    with Bar(seconds) as bar:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, bar.interrupt)
        try:
            result = suite.run(result, folder / results.FILE, bar, result.peers, _allowed(result.allow))
        except KeyboardInterrupt:
            rest = shell.command("bench", f"resume={folder}")
            print(f"dqnspeed: interrupted; {rest} measures the rest.", file=sys.stderr)
            _tell(results.read(folder), folder)
            raise
    _tell(result, folder)
    baseline = result.find("rungs", BASELINE)
    if baseline is not None and baseline.error:
        raise RunError(f"the baseline could not be measured, and so no line is recommended: {baseline.error}")


def _tell(result: Result, folder: Path) -> None:
    from dqnspeed.bench import show

    show.table(result)
    for sentence in show.write(result, folder):
        print(f"dqnspeed: {sentence}", file=sys.stderr)
    print(folder)


def _new_folder(named: str | None) -> Path:
    try:
        if named is None:
            return new_folder(Path(BENCH, datetime.now().strftime("%Y-%m-%d_%H-%M-%S")))
        folder = Path(named)
        folder.mkdir(parents=True)
    except FileExistsError as error:
        if named is None:
            raise ConfigError(f"{BENCH}: is a file, where the folder of results goes; name one, out=FOLDER.") from error
        raise ConfigError(f"out={named}: is there already; name a new folder, or resume={named} goes on.") from error
    except OSError as error:
        raise ConfigError(f"out={named or BENCH}: cannot be made ({error.strerror}).") from error
    return folder


def _allowed(allow: str | None) -> list[str]:
    named = [] if allow is None else [name.strip() for name in allow.strip("[]").split(",")]
    for name in named:
        if name not in ALLOWED:
            raise ConfigError(f"allow={allow}: takes {', '.join(ALLOWED)} or both, as in allow={','.join(ALLOWED)}.")
    return [changes.EXACT, changes.EQUIVALENT, *(ALLOWED[name] for name in named)]


def _with_peers(suite: Suite, peers: bool) -> bool:
    """Whether other libraries are measured; raises :class:`ConfigError` if they are to be and cannot."""
    alone = suite.name == "peers"
    if peers or alone:
        from dqnspeed.bench.peers import check

        check(suite.plan, alone)
    return peers or alone


def main() -> None:
    """Console entry point."""
    run_app(_main)
