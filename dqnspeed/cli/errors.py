"""Mistakes of the user as one sentence each."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException, ValidationError
from yaml.reader import ReaderError

from dqnspeed.cli import schemas
from dqnspeed.config.options import ConfigError, in_words, nearest
from dqnspeed.system.messages import first_line

ASKED_FOR = "DQNSPEED_FULL_ERROR"  # the user's HYDRA_FULL_ERROR, since this process and jobs of a sweep set their own
FULL_ERROR = os.environ.get(ASKED_FOR, os.environ.get("HYDRA_FULL_ERROR")) == "1"
USER_ERRORS = (ConfigError, HydraException, OmegaConfBaseException)
READERS = ("hydra", "omegaconf", "yaml")


class RunError(Exception):
    """A run failed after its start; the message is for the user."""


def is_user_error(error: Exception) -> bool:
    """Whether ``error`` is a mistake of the user: a configuration error, or raised in Hydra, OmegaConf or YAML."""
    if isinstance(error, USER_ERRORS):
        return True
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    known = [package for package in (name.partition(".")[0] for name in names) if package in ("dqnspeed", *READERS)]
    return bool(known) and known[-1] in READERS


@contextlib.contextmanager
def as_config_error(overrides: Sequence[str] = ()) -> Iterator[None]:
    """Raise a mistake of the user as :class:`ConfigError` with the sentence of the command line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ConfigError) or not is_user_error(error):
            raise
        raise ConfigError(explain(error, overrides)) from None


def explain(error: BaseException, arguments: Sequence[str] | None = None) -> str:
    """One sentence for an error of composition, with similar names if a name is unknown.

    Args:
        arguments: the overrides that were composed; by default the command line.
    """
    if isinstance(error, ConfigError):
        return str(error)
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(error)
    if isinstance(error, (UnicodeDecodeError, ReaderError)):
        return f"an option file: cannot be read ({first_line(error)})."
    if isinstance(error, RecursionError):
        return "an option file: leads back to itself."
    if mark := getattr(error, "problem_mark", None):  # of YAML, in a file or in a value
        place = f"{mark.name}, line {mark.line + 1}" if mark.buffer is None else mark.buffer.rstrip("\0")
        return f"{place}: {getattr(error, 'problem', '')}."
    if isinstance(error, MissingConfigException):
        return _explain_missing_option(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the output folder'}: {error.strerror}."
    if sweep := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'", text):
        return (
            f"{sweep.group(1)}: a sweep over several values needs dqnspeed.train -m, and a value with a comma quotes."
        )
    if isinstance(error, OverrideParseException):
        quoted = "KEY='\"VALUE\"' where it has other signs"
        return f"{error.override}: cannot be read; give GROUP=OPTION or KEY=VALUE ({quoted})."
    if "Config group override must be" in text:
        line = sys.argv[1:] if arguments is None else arguments
        named = [f"{argument}: " for argument in line if re.match(r"[\w/]*=([\d.]*|null|true|false)$", argument)]
        return f"{''.join(named[:1])}a group takes the name of one of its options."
    if known := re.search(r"Could not append to config\. An item is already at '([\w.@/]+)'", text):
        return f"+{known.group(1)}: is an option already; drop the +."
    full_key = getattr(cause, "full_key", None) or "".join(re.findall(r"full_key: (\S+)", text)[:1])
    file = re.match(r"In '(.*)': \w+ raised while composing config:\n(.*)", text)
    where = f", in the option file {file.group(1)}" if file else ""
    if full_key and re.search(r"Key '.+' (?:is )?not in", f"{text}\n{cause}"):
        return f"{full_key}: there is no such option{where}{nearest(full_key, schemas.keys())}."
    if full_key and "is not Optional" in str(cause):
        return f"{full_key}=null: needs a value."
    wrong_type = isinstance(cause, ValidationError) or "ValidationError raised" in text
    if wrong_type and (refused := _explain_type(full_key, f"{text}\n{cause}")):
        return f"{refused}{where}."
    if file:
        return f"{full_key or file.group(1)}: {file.group(2).rstrip('.')}{where}."
    if full_key and "missing mandatory value" in str(cause):
        return f"{full_key}: has no value. Give one: {full_key}=VALUE."
    if full_key:
        return f"{full_key}: {first_line(cause)}."
    group = re.search(r"Could not override '([\w./]+)'", text)
    if group and "No match in the defaults list" in text:
        return f"{group.group(1)}: there is no such option{nearest(group.group(1), schemas.keys())}."
    return f"{first_line(error)}."


def _explain_type(full_key: str, text: str) -> str:
    """The refused value in OmegaConf's ``text``, and the types of the option; empty if the option takes any type."""
    key, element, _ = full_key.partition("[")
    kinds = schemas.kinds().get(key, set[Any]())
    if element:
        kinds = {kind for one in kinds for kind in get_args(one)}
    value = re.search(r"Value '(.*?)' of type '(\w+)'", text)
    shown = f"={value[1].lower() if value[2] == 'bool' else value[1]}" if value else ""
    return f"{full_key}{shown}: must be {in_words(kinds)}" if in_words(kinds) else ""


_LAUNCHERS = {"submitit_slurm": "slurm", "submitit_local": "slurm", "joblib": "joblib"}  # the extra of each launcher


def _explain_missing_option(error: MissingConfigException) -> str:
    missing = error.missing_cfg_file
    group, _, name = str(missing).rpartition("/")
    allowed = list(error.options or [])
    if not group:
        return f"{first_line(error)}."
    if extra := _LAUNCHERS.get(name) if group == "hydra/launcher" else None:
        return f"{group}={name}: is not installed; pip install 'dqnspeed[{extra}]' brings it."
    choose = f"; choose one of {', '.join(allowed)}" if allowed else ""
    return f"{group}={name}: there is no such option{nearest(name, allowed)}{choose}."
