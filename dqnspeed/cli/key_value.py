"""``KEY=VALUE``: the command line and ``--help`` of the small commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from dqnspeed.config.options import ConfigError, alternatives, check_values, in_words, nearest, usage

T = TypeVar("T")


@dataclass(frozen=True)
class CommandLine(Generic[T]):
    """The command line of a command.

    Attributes:
        call: the command and its arguments, for the help.
        about: purpose of the command.
        schema: a frozen dataclass of options, whose fields are made by :func:`dqnspeed.config.options.option`.
        others: other arguments of the command, in words; empty: it takes none.
        is_other: whether an argument that sets no option is such an argument; by default every one.
    """

    call: str
    about: str
    schema: type[T]
    others: str = ""
    is_other: Callable[[str], bool] = lambda _: True

    def read(self, arguments: Sequence[str]) -> tuple[T, list[str]]:
        """Read the options and the other arguments; ``--help`` prints the help and exits.

        The last value of a key counts.

        Raises:
            ConfigError: an option is unknown, missing, cannot be read or is out of range.
        """
        if any(argument in ("-h", "--help") for argument in arguments):
            print(usage(self.call, self.about, self.schema))
            sys.exit()
        kinds, values, others = get_type_hints(self.schema), dict[str, Any](), list[str]()
        for argument in arguments:
            key, equals, _ = argument.partition("=")
            if equals and key in kinds:
                values[key] = _value(argument, kinds[key])
            elif self.others and not argument.startswith("-") and self.is_other(argument):
                others.append(argument)
            else:
                near = nearest(key.lstrip("-"), list(kinds))
                besides = f"; or {self.others}" if self.others else ""
                raise ConfigError(
                    f"{argument}: is no option{near}; give KEY=VALUE, where KEY is one of {', '.join(kinds)}{besides}."
                )
        return typed(self.schema, values), others


def typed(schema: type[T], values: Mapping[str, Any]) -> T:
    """An instance of ``schema`` with these values.

    Raises:
        ConfigError: a key is unknown, or a value is missing, of another type or out of range.
    """
    cfg, kinds = OmegaConf.structured(schema), get_type_hints(schema)
    for key, value in values.items():
        if key not in kinds:
            raise ConfigError(f"{key}: there is no such option{nearest(key, list(kinds))}.")
        try:
            cfg = OmegaConf.merge(cfg, {key: value})
        except ValidationError as error:
            shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
            raise ConfigError(f"{key}={shown}: must be {in_words(alternatives(kinds[key]))}.") from error
    for field in fields(cast("Any", schema)):
        if OmegaConf.is_missing(cfg, field.name):
            raise ConfigError(f"{field.name}: is missing; give {field.name}=VALUE, {field.metadata['about']}.")
    options = OmegaConf.to_object(cfg)
    check_values(options)
    return cast("T", options)


def _value(argument: str, kind: Any) -> Any:
    """The value of ``KEY=VALUE`` as Hydra reads it; unquoted text may have any character."""
    key, _, text = argument.partition("=")
    if not text:
        raise ConfigError(f"{argument}: has no value.")
    if str in alternatives(kind) and text != "null" and text[0] not in "'\"[{":
        return text
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException as error:
        raise ConfigError(f"{argument}: cannot be read; quote it, as in {key}='\"VALUE\"'.") from error
    return text if override.is_sweep_override() else override.value()
