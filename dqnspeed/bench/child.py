"""``python -m dqnspeed.bench.child``: a process that is measured; reads its :class:`Work`, pickled, from stdin."""

from __future__ import annotations

import logging
import pickle
import sys
import traceback

from dqnspeed.bench.counting import Counter


def main() -> None:
    counter = Counter()
    logging.basicConfig(level=logging.WARNING)
    try:
        work = pickle.load(sys.stdin.buffer)
        work.piece(work, counter)
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        counter.fail(f"{type(error).__name__}: {lines[0]}".rstrip(":. "))


if __name__ == "__main__":
    main()
