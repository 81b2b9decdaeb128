"""Published agents on the Hugging Face Hub, ``hub:USER/NAME``: downloads, and uploads."""

from __future__ import annotations

import errno
import functools
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, TypeVar

from dqnspeed.config.options import ConfigError, check_installed
from dqnspeed.system.messages import kind_and_line
from dqnspeed.tracking.run_folder import BEST, CONFIG

HUB = "hub:"
ANSWER_S = 10  # for the Hub to answer
TRANSFER_S = 600  # for all files of an agent
MAX_MIB = 500  # of a download; agents have 1 to 20
_ADDRESS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_NAMED = re.compile(r"hub:[^\s,'\"\])]+")  # in an override, which may list several
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

    def one(argument: str) -> str:
        is_init = argument.lstrip("+").startswith("init=")
        return _NAMED.sub(lambda found: exact(found[0]), argument) if is_init else argument

    return [one(argument) for argument in arguments]


def download(address: str, index: str, again: bool = False) -> Path:
    """Download the agent at ``address``, unless it is in the Hub's cache, and return its folder there.

    Args:
        address: with the commit, as :func:`pinned` returns it.
        index: name of a file that an agent must have.
        again: also download files that are in the cache.

    Raises:
        ConfigError: the Hub has no such agent, does not answer, or its files are too large.
    """
    repo, commit = _parts(address)
    from huggingface_hub import snapshot_download

    if not again:
        try:
            return Path(snapshot_download(repo, revision=commit, local_files_only=True))
        except Exception:  # it is not in the cache, or not complete
            pass
    found = _info(address)
    names = [each.rfilename for each in found.siblings]
    if index not in names:
        raise ConfigError(f"{address}: holds no agent of dqnspeed (no {index}). Check the name.")
    if outside := [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise ConfigError(f"{address}: names {outside[0]}, which is outside of its folder. Do not use it.")
    size = sum(each.size or 0 for each in found.siblings)
    if size > MAX_MIB * 2**20:
        raise ConfigError(f"{address}: has {size / 2**20:,.0f} MiB, for at most {MAX_MIB} of an agent. Check the name.")
    fetched = _asked(address, lambda: snapshot_download(repo, revision=commit, force_download=again), TRANSFER_S)
    return Path(fetched)


def name_in_cache(folder: Path) -> str | None:
    """``USER_NAME`` of a folder in the Hub's cache; ``None`` for another folder."""
    found = _SNAPSHOT.fullmatch(folder.parent.parent.name) if folder.parent.name == "snapshots" else None
    return found[1].replace("--", "_") if found else None


def check_upload(address: str) -> None:
    """Check that an agent can be uploaded to ``address``, before it is made.

    Raises:
        ConfigError: there is no token, the Hub does not take it or does not answer, or the repository holds no agent.
    """
    option = f"to={address}"
    repo, revision = _parts(address, option)
    from huggingface_hub import HfApi, get_token

    api = HfApi()
    if revision is not None:
        raise ConfigError(f"{option}: an upload takes no revision. Give hub:USER/NAME.")
    if get_token() is None:
        raise ConfigError(f"{option}: needs a token. Run hf auth login, or set HF_TOKEN.")
    user = _asked(option, api.whoami)
    owners = [user["name"], *(org["name"] for org in user.get("orgs", []))]
    if (owner := repo.partition("/")[0]) not in owners:
        raise ConfigError(f"{option}: the token is of {user['name']}, who cannot write for {owner}. Use another.")
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ConfigError(f"{option}: the token may only read. Run hf auth login with one that may write.")
    if _asked(option, lambda: api.repo_exists(repo)):
        names = {each.rfilename for each in _asked(option, lambda: api.model_info(repo)).siblings or []}
        if not names >= {"index.json", CONFIG, BEST} and names - {".gitattributes", "README.md"}:
            raise ConfigError(f"{option}: holds no agent of dqnspeed. Give another name.")


def upload(folder: Path, address: str) -> str:
    """Upload the agent in ``folder`` as one commit, and return the address of its page.

    Raises:
        ConfigError: the Hub refuses it, or does not answer.
    """
    from huggingface_hub import HfApi

    option, api = f"to={address}", HfApi()
    repo, _ = _parts(address, option)
    page = _asked(option, lambda: api.create_repo(repo, exist_ok=True))
    commit = functools.partial(api.upload_folder, commit_message="Agent of dqnspeed", delete_patterns="*")
    _asked(option, lambda: commit(repo_id=repo, folder_path=folder), TRANSFER_S)
    return str(page)


def _parts(address: str, option: str | None = None) -> tuple[str, str | None]:
    """The repository and the revision of an address, which ``option`` gives.

    Raises:
        ConfigError: it is no address of the Hub, or the library of the Hub is not installed.
    """
    option, found = option or address, _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(f"{option}: is no address of the Hub. Give hub:USER/NAME, or hub:USER/NAME@REVISION.")
    check_installed(option, "huggingface_hub", "hub")
    return found[1], found[2]


def _info(address: str) -> Any:
    """The Hub's record of a repository: its commit, and names and sizes of its files."""
    repo, revision = _parts(address)
    from huggingface_hub import HfApi

    return _asked(address, lambda: HfApi().model_info(repo, revision=revision, files_metadata=True))


def _asked(option: str, function: Callable[[], T], seconds: float = ANSWER_S) -> T:
    """The result of a call of the Hub's library. The library may wait for ever, and its errors become sentences."""
    answer = Future[T]()

    def ask() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(seconds)
    except FutureTimeoutError as error:
        slow = "does not answer" if seconds == ANSWER_S else f"needs more than {seconds} s for the files"
        raise ConfigError(f"{option}: {_hub()} {slow}. Try again later.") from error
    except Exception as error:
        raise ConfigError(f"{option}: {_problem(error, writes=option.startswith('to='))}") from error


def _problem(error: Exception, writes: bool) -> str:
    """A sentence on an error of the Hub's library."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RevisionNotFoundError):
        return "the Hub has no such revision. Leave it out to get the newest."
    if isinstance(error, errors.GatedRepoError):
        return "the Hub gives access on request only. Ask for it on the page of the agent."
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hub has no such agent, or it is private. Run hf auth login for your own."
    if isinstance(error, errors.HFValidationError):
        return "is no name that the Hub takes. Give hub:USER/NAME."
    if status in (401, 403):
        return f"the Hub refuses the token. Run hf auth login{' with a token that may write there' if writes else ''}."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return f"cannot be stored ({error.strerror}). Make room, or name another cache in HF_HOME."
    return f"{_hub()} cannot be used ({kind_and_line(error)}). Try again later."


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "the Hub")
