"""Published agents on the Hugging Face Hub, ``hub:USER/NAME``: downloads, and uploads."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dqnspeed.config.options import ConfigError, check_installed
from dqnspeed.system.messages import kind_and_line

HUB = "hub:"
ANSWER_S = 10  # for the Hub to answer
MAX_MIB = 500  # of a download; agents have 1 to 20
_ADDRESS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_NAMED = re.compile(r"hub:[^\s,'\"\]]+")  # in an override, which may list several
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SNAPSHOT = re.compile(r"models--(.+)")  # a folder of the library's cache

T = TypeVar("T")


def pinned(address: str) -> str:
    """``address`` with the commit that its revision names now, which is printed.

    Raises:
        ConfigError: the address is none, the library is not installed, or the Hub has no such agent or does not answer.
    """
    repo, revision = _parts(address)
    if revision and _COMMIT.fullmatch(revision):
        return address
    exact = f"{HUB}{repo}@{_info(address).sha}"
    print(f"{address} is {exact}", flush=True)
    return exact


def with_commits(arguments: Sequence[str]) -> list[str]:
    """Arguments of ``train`` in which ``init=hub:...`` names a commit, so that all jobs of a sweep start alike.

    Raises:
        ConfigError: as :func:`pinned`.
    """
    exact = functools.cache(pinned)
    return [_NAMED.sub(lambda found: exact(found[0]), one) if one.startswith("init=") else one for one in arguments]


def download(address: str, index: str, again: bool = False) -> Path:
    """Download the agent at ``address``, unless it is in the Hub's cache, and return its folder there.

    Args:
        address: with the commit, as :func:`pinned` returns it.
        index: name of a file that an agent must have.
        again: also download files that are in the cache.

    Raises:
        ConfigError: the Hub has no such agent, does not answer, or its files are too large.
    """
    from huggingface_hub import snapshot_download

    repo, commit = _parts(address)
    if not again:
        try:
            return Path(snapshot_download(repo, revision=commit, local_files_only=True))
        except Exception:  # it is not in the cache, or not complete
            pass
    found = _info(address)
    names = [each.rfilename for each in found.siblings]
    if index not in names:
        raise ConfigError(f"{address}: holds no agent of dqnspeed (no {index}).")
    if outside := [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise ConfigError(f"{address}: names {outside[0]}, which is outside of its folder.")
    size = sum(each.size or 0 for each in found.siblings)
    if size > MAX_MIB * 2**20:
        raise ConfigError(f"{address}: has {size / 2**20:,.0f} MiB, and an agent has at most {MAX_MIB}.")
    return Path(_asked(address, lambda: snapshot_download(repo, revision=commit, force_download=again)))


def name_in_cache(folder: Path) -> str | None:
    """``USER_NAME`` of a folder in the Hub's cache; ``None`` for another folder."""
    found = _SNAPSHOT.fullmatch(folder.parent.parent.name) if folder.parent.name == "snapshots" else None
    return found[1].replace("--", "_") if found else None


def check_upload(address: str) -> None:
    """Check that an agent can be uploaded to ``address``, before it is made.

    Raises:
        ConfigError: there is no token, the Hub does not take it or does not answer, or the repository holds no agent.
    """
    repo, revision = _parts(address)
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    if revision is not None:
        raise ConfigError(f"to={address}: an upload takes no revision. Give hub:USER/NAME.")
    if get_token() is None:
        raise ConfigError(f"to={address}: needs a token. Run hf auth login, or set HF_TOKEN.")
    user = _asked(f"to={address}", lambda: _within(HfApi().whoami))
    owners = [user["name"], *(org["name"] for org in user.get("orgs", []))]
    if (owner := repo.partition("/")[0]) not in owners:
        raise ConfigError(f"to={address}: the token is of {user['name']}, who cannot write for {owner}. Use another.")
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ConfigError(f"to={address}: the token may only read. Run hf auth login with one that may write.")
    try:
        names = [each.rfilename for each in _within(lambda: HfApi().model_info(repo)).siblings or []]
    except RepositoryNotFoundError:
        return
    except Exception as error:
        raise _problem(f"to={address}", error) from error
    if "index.json" not in names and set(names) - {".gitattributes", "README.md"}:
        raise ConfigError(f"to={address}: holds something else than an agent of dqnspeed. Give another name.")


def upload(folder: Path, address: str) -> str:
    """Upload the agent in ``folder`` as one commit, and return the address of its page.

    Raises:
        ConfigError: the Hub refuses it, or does not answer.
    """
    from huggingface_hub import HfApi

    repo, _ = _parts(address)
    option, api = f"to={address}", HfApi()
    page = _asked(option, lambda: _within(lambda: api.create_repo(repo, exist_ok=True)))
    _asked(
        option,
        lambda: api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message="Agent of dqnspeed", delete_patterns="*"
        ),
    )
    return str(page)


def _parts(address: str) -> tuple[str, str | None]:
    """The repository and the revision of an address.

    Raises:
        ConfigError: it is no address of the Hub, or the library of the Hub is not installed.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(f"{address}: is no address of the Hub. Give hub:USER/NAME, or hub:USER/NAME@REVISION.")
    check_installed(address, "huggingface_hub", "hub")
    return found[1], found[2]


def _info(address: str) -> Any:
    """The Hub's record of a repository: its commit, and names and sizes of its files."""
    from huggingface_hub import HfApi

    repo, revision = _parts(address)
    return _asked(address, lambda: _within(lambda: HfApi().model_info(repo, revision=revision, files_metadata=True)))


def _within(function: Callable[[], T]) -> T:
    """The result of ``function``; :class:`TimeoutError` after :data:`ANSWER_S` seconds, since the library may wait."""
    results, errors = list[T](), list[BaseException]()

    def ask() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {ANSWER_S} s")
    return results[0]


def _asked(option: str, function: Callable[[], T]) -> T:
    """The result of a call of the Hub's library, whose errors become sentences."""
    try:
        return function()
    except Exception as error:
        raise _problem(option, error) from error


def _problem(option: str, error: Exception) -> ConfigError:
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RevisionNotFoundError):
        return ConfigError(f"{option}: the Hub has no such revision.")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ConfigError(f"{option}: the Hub has no such agent, or it is private. Run hf auth login for your own.")
    if isinstance(error, errors.HFValidationError):
        return ConfigError(f"{option}: is no name that the Hub takes.")
    if status in (401, 403):
        may = " with a token that may write there" if option.startswith("to=") else ""
        return ConfigError(f"{option}: the Hub refuses the token. Run hf auth login{may}.")
    where = os.environ.get("HF_ENDPOINT", "the Hub")
    return ConfigError(f"{option}: {where} cannot be used ({kind_and_line(error)}). Try again later.")
