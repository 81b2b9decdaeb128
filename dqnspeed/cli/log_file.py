"""``train.log``, where the disk may refuse it."""

from __future__ import annotations

import contextlib
import logging
import sys


class LogFile(logging.FileHandler):
    """``train.log``; a disk that refuses it is told in one sentence, once, and it is tried again with each record."""

    _reported = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not even be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):  # what it still holds goes with it
                stream.close()
        if not self._reported and not isinstance(
            error, FileNotFoundError
        ):  # the run itself notices that its folder is gone
            print(f"dqnspeed: {self.baseFilename} could not be written: {error.strerror}.", file=sys.stderr)
        self._reported = True
