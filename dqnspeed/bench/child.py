"""``python -m dqnspeed.bench.child``: a process that is measured; reads its :class:`Work`, pickled, from stdin."""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

from dqnspeed.bench.counting import Counter


def main() -> None:
    counter = Counter()
    logging.basicConfig(level=logging.WARNING)
    try:
        work = pickle.load(sys.stdin.buffer)
        _program(work.piece)(work, counter)
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        counter.fail(f"{type(error).__name__}: {lines[0]}".rstrip(":. "))


def _program(name: str) -> Callable[[Any, Counter], None]:
    from dqnspeed.bench.work import PIECES

    if name in PIECES:
        return PIECES[name]
    from dqnspeed.bench.peers import training

    return training(name)


if __name__ == "__main__":
    main()
