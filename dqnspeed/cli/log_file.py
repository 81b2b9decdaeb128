"""``train.log``, which may fail to be written."""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

from dqnspeed.system import atomic


class LogFile(logging.FileHandler):
    """``train.log``; if it cannot be written one sentence is printed, once."""

    _reported = False

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(cast("BinaryIO", atomic.open_regular(Path(self.baseFilename), "ab")), encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._reported:
            print(f"dqnspeed: {self.baseFilename} could not be written: {sys.exc_info()[1]}.", file=sys.stderr)
        self._reported = True
