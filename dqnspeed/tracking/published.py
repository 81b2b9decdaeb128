"""Published agents: folders to give away, whose index has the SHA-256 of every file; in the zoo, or on the Hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.system import atomic
from dqnspeed.system.messages import __version__
from dqnspeed.tracking import hub
from dqnspeed.tracking.run_folder import RUNS, Row, looking_into

INDEX = "index.json"  # in every published folder, and written last
CARD, EVALUATION, CURVE, CURVE_IMAGE, REPLAY = "README.md", "evaluation.json", "curve.csv", "curve.png", "replay.mp4"
ADDRESS = "zoo:"
ZOO = Path(__file__).resolve().parents[1] / "zoo"


def is_published(folder: Path) -> bool:
    with looking_into(folder):
        return (folder / INDEX).exists()


def zoo() -> list[str]:
    """Names of the games whose agents ship with this package."""
    return sorted(index.parent.name for index in ZOO.glob(f"*/{INDEX}"))


def folder_at(address: str) -> Path:
    """The folder that ``FOLDER``, ``zoo:GAME`` or ``hub:USER/NAME`` names; the files of a published one are checked.

    Raises:
        ConfigError: the zoo or the Hub has no such agent, the Hub does not answer, or a file is missing or damaged.
    """
    if address.startswith(hub.HUB):
        return _from_hub(address)
    folder = Path(address)
    if address.startswith(ADDRESS):
        game, games = address.removeprefix(ADDRESS), zoo()
        if game not in games:
            there = f"Choose one of {', '.join(games)}" if games else "The zoo of this version is empty"
            raise ConfigError(f"{address}: there is no such agent{nearest(game, games)}. {there}.")
        folder = ZOO / game
    if is_published(folder):
        _check_files(folder)
    return folder


def _from_hub(address: str) -> Path:
    exact = hub.pinned(address)
    folder = hub.download(exact, INDEX)
    try:
        _check_files(folder)
    except ConfigError:  # a file of the cache may have been cut
        folder = hub.download(exact, INDEX, again=True)
        _check_files(folder)
    return folder


def copy_published(folder: Path, to: Path) -> None:
    """Copy the files of a published agent to the new folder ``to``, and no others.

    Raises:
        ConfigError: a file is a link to a file elsewhere, which is not to be given away.
        OSError: a file cannot be copied.
    """
    names = [*json.loads((folder / INDEX).read_bytes())["files"], INDEX]
    check_inside(folder, names)
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the card may have been deleted
            shutil.copyfile(folder / name, to / name)


def check_inside(folder: Path, names: Iterable[str]) -> None:
    """Raise :class:`ConfigError` if one of the files ``names`` is a link to a file outside of ``folder``."""
    cached = hub.name_in_cache(folder) is not None  # the Hub's cache has links to its own files
    root = folder.resolve().parents[1] if cached else folder.resolve()
    for name in names:
        if root not in (folder / name).resolve().parents:
            raise ConfigError(f"{folder / name}: is a link to a file elsewhere. Replace it by the file.")


def output_of(folder: Path) -> Path:
    """The folder for results of playing the agent in ``folder``; a published folder is never changed."""
    name = hub.name_in_cache(folder) or folder.resolve().name
    return Path(RUNS[0], "play", name) if is_published(folder) else folder


def read_evaluation(folder: Path) -> Row | None:
    """The evaluation of a published agent, with the fields of a line of ``play.jsonl``; ``None`` for a run.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder / EVALUATION
    if not is_published(folder):
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: float(found[name]) for name in ("return_mean", "return_std", "epsilon")}
        settings = {"deterministic": bool(found["deterministic"]), "noop_max": found["noop_max"]}
        if not (games := list(found["games"])):
            raise ValueError
        return {**found, **numbers, **settings, "games": games}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged ({type(error).__name__}). {_ADVICE}") from error


def write_index(folder: Path) -> None:
    """Write the index of all files in ``folder``."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != INDEX)
    files = {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}
    atomic.write_json(folder / INDEX, {"dqnspeed": __version__, "files": files})


_ADVICE = "Get the folder again."


def _check_files(folder: Path) -> None:
    """Raise :class:`ConfigError` if a file of the index is missing or damaged. The card may be edited."""
    try:
        known = {str(name): digest for name, digest in json.loads((folder / INDEX).read_bytes())["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{folder / INDEX}: is damaged ({type(error).__name__}). {_ADVICE}") from error
    for name, digest in known.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ConfigError(f"{folder / INDEX}: names {name}, which is outside of its folder. {_ADVICE}")
        try:
            found = _sha256(path) if path.is_file() else ""  # reading a pipe would never end
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
        if name != CARD and found != digest:
            problem = "does not match its SHA-256 in" if found else "is missing, and listed in"
            raise ConfigError(f"{path}: {problem} {INDEX}. {_ADVICE}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
