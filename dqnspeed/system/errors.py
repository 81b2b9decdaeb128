"""An error in one line."""

from __future__ import annotations

FOREIGN = Exception, SystemExit, GeneratorExit  # that code of others may raise; Ctrl-C is not its own


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind if it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def kind_and_line(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
