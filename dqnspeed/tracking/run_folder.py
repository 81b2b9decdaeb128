"""A run's folder: names of its files, and reading them."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dqnspeed.config.options import ConfigError
from dqnspeed.system import messages

METRICS, EPISODES = "metrics.jsonl", "episodes.csv"
SUMMARY = "summary.json"
EVALUATING = "time/evaluating"  # metric: seconds of evaluations, which ``time`` leaves out
BEGUN = "run.json"  # the run's overrides, and the part of the summary that is known from the start
CONFIG = "config.json"  # our own copy of the configuration
HYDRA = ".hydra"  # Hydra's own copy, which nothing here reads
CHECKPOINTS, VIDEOS = "checkpoints", "videos"
BEST = f"{CHECKPOINTS}/best.safetensors"
PLAYED, TABLE = "play.jsonl", "table.png"
TENSORBOARD, WANDB = "tensorboard", "wandb"
WANDB_ID = f"{WANDB}/id.txt"
LOCK = ".lock"
RUNS = ("outputs", "multirun")  # where runs are unless hydra.run.dir or hydra.sweep.dir says otherwise
SWEEP = "multirun.yaml"  # above the folders of the runs of a sweep
SWEEP_JOBS, STUDY = "sweep.json", "study.db"  # in a sweep's folder: its command line and jobs; Optuna's study
# Files that are written in place, and folders with such files.
WRITTEN = (METRICS, EPISODES, PLAYED, LOCK, HYDRA, CHECKPOINTS, VIDEOS, TENSORBOARD, WANDB, SWEEP, STUDY, "train.log")
MAX_YAML_CHARACTERS = 2**20

# The columns of episodes.csv, and the types of their values.
EPISODE_COLUMNS: dict[str, Callable[[str], Any]] = {
    "episode": int, "begun": int, "return": float, "length": int, "env": int, "agent_step": int, "time": float,
    "video": str,
}  # fmt: skip

Row = dict[str, Any]


class DamagedError(Exception):
    """A file of a run cannot be used; the message names the file in one sentence for the user."""


@contextlib.contextmanager
def looking_into(folder: Path) -> Iterator[None]:
    """Turn an :class:`OSError` of reading ``folder`` into a :class:`ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be looked into ({error.strerror}).") from error


def why_not_made(folder: Path, error: OSError) -> str:
    """The reason for which ``folder`` cannot be made; a link that leads nowhere is named."""
    link = next((at for at in (folder, *folder.parents) if at.is_symlink() and not at.exists()), None)
    if link is None:
        return str(error.strerror)
    return f"{link} is a link to {link.readlink()}, which does not exist; make that folder or remove the link"


def holds_run(folder: Path) -> bool:
    """Whether a run has written into ``folder``."""
    return (folder / METRICS).exists()


def check_links(folder: Path) -> None:
    """Raise :class:`ConfigError` if a link leads out of ``folder`` where a run or a sweep would write."""
    root = folder.resolve()
    for name in WRITTEN:
        # W&B writes into a new folder each time, and links from there to logs in its cache.
        below = (root / WANDB_ID,) if name == WANDB else (root / name).rglob("*")
        for path in (root / name, *below):
            if path.is_symlink() and root not in path.resolve().parents:
                raise ConfigError(
                    f"{folder / path.relative_to(root)}: is a link that leads out of this folder, to files of others. "
                    f"Remove the link."
                )


def read_yaml(path: Path) -> str:
    """Text of a YAML file that Hydra wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is too large, or has aliases: a few lines of aliases may stand for more than memory holds.
        yaml.YAMLError: the file is no YAML.
    """
    text = path.read_text(encoding="utf-8")
    if len(text) > MAX_YAML_CHARACTERS or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise ValueError(f"{path} has aliases or is too large")
    return text


def group_of(sweep: Path) -> str:
    """Name of the group of a sweep's runs, which does not depend on the working folder."""
    return "/".join(sweep.resolve().parts[-2:])


def sweep_above(folder: Path) -> Path | None:
    """Folder of the sweep of the run in ``folder``, further above if the name of a job has a slash."""
    return next((above for above in folder.parents if (above / SWEEP).exists()), None)


def holding(folders: Iterable[Path], *names: str) -> set[Path]:
    """Folders at or below ``folders`` with a file of one of these names, each folder once."""
    found = dict[Path, Path]()
    for folder in folders:
        for at, _, files in os.walk(folder):
            if not {*names}.isdisjoint(files):
                found.setdefault(Path(at).resolve(), Path(at))
    return {*found.values()}


def newest_run(what: str, is_one: Callable[[Path], bool] = holds_run) -> Path:
    """Folder of the run in ``outputs/`` or ``multirun/`` that reported last, also of a run that is training.

    Args:
        what: the runs for which ``is_one`` is true, in words.

    Raises:
        ConfigError: there is no such run.
    """
    reported = dict[Path, float]()
    for folder in holding(map(Path, RUNS), METRICS):
        with contextlib.suppress(OSError):  # a folder may be removed meanwhile, or may not be read
            if is_one(folder):
                reported[folder] = (folder / METRICS).stat().st_mtime
    if not reported:
        raise ConfigError(
            f"{' and '.join(f'{name}/' for name in RUNS)}: hold no {what}; "
            f"{messages.command('train', 'experiment=speedrun')} makes one."
        )
    return max(reported, key=lambda folder: reported[folder])


def read_summary(folder: Path, name: str = SUMMARY) -> Row:
    """Read the summary of a run, or the part that is known at the start.

    Raises:
        DamagedError: there is no such file, or the file cannot be read.
    """
    path = folder / name
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: is damaged ({error}).") from error
    if not isinstance(summary, dict):
        raise DamagedError(f"{path}: is damaged (no summary).")
    return summary


def read_config(folder: Path) -> Row:
    """Read the configuration of a run; empty if the file cannot be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return config if isinstance(config, dict) else {}
    return {}


def flat(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Values by ``group.key``."""
    return {
        f"{name}.{key}" if isinstance(node, Mapping) else name: value
        for name, node in plain.items()
        for key, value in (node.items() if isinstance(node, Mapping) else [("", node)])
    }


def read_overrides(folder: Path) -> list[str]:
    """Read the overrides of a run up to its last resume; empty if the file cannot be read."""
    with contextlib.suppress(DamagedError, KeyError, TypeError):
        return [str(line) for line in read_summary(folder, BEGUN)["overrides"]]
    return []


def read_metrics(folder: Path) -> tuple[list[Row], str]:
    """Read the reports of a run: numbers by the names of metrics, ``step`` and ``time``.

    Returns:
        The readable reports, and a sentence if some cannot be read.
    """
    return _read_lines(folder / METRICS, _report)


def read_episodes(folder: Path) -> tuple[list[Row], str]:
    """Read the finished episodes of a run: values by the names of :data:`EPISODE_COLUMNS`.

    Returns:
        The readable episodes, and a sentence if some cannot be read.
    """
    return _read_lines(folder / EPISODES, _episode)


def _read_lines(path: Path, read: Callable[[str], Row | None]) -> tuple[list[Row], str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return [], f"{path}: cannot be read ({error.strerror})."
    rows, lost = [], 0
    for line in lines:
        try:
            rows.append(read(line))
        except (ValueError, csv.Error):
            lost += 1
    damage = f"{path}: is damaged; {lost} of its {len(lines)} lines cannot be read, the others are taken."
    return [row for row in rows if row is not None], damage if lost else ""


def _report(line: str) -> Row:
    report = json.loads(line)
    numbers = isinstance(report, dict) and all(isinstance(value, (int, float)) for value in report.values())
    if not numbers or not {"step", "time"} <= set(report):
        raise ValueError
    return dict(report)


def _episode(line: str) -> Row | None:
    if line == ",".join(EPISODE_COLUMNS):
        return None
    values = next(csv.reader([line]))
    return {name: kind(value) for (name, kind), value in zip(EPISODE_COLUMNS.items(), values, strict=True)}
