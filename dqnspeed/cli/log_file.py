"""``train.log``, which may fail to be written."""

from __future__ import annotations

import contextlib
import logging
import sys


class LogFile(logging.FileHandler):
    """``train.log``; if it cannot be written one sentence is printed, once, and each record tries again."""

    _reported = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):  # what is buffered is lost
                stream.close()
        if not self._reported and not isinstance(error, FileNotFoundError):  # the run itself checks its folder
            print(f"dqnspeed: {self.baseFilename} could not be written: {error.strerror}.", file=sys.stderr)
        self._reported = True
