"""``python -m dqnspeed.train``; and ``dqnspeed.train(...)`` once this module has taken the place of the function."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dqnspeed.cli.embedded import train
from dqnspeed.cli.train import main
from dqnspeed.tracking.results import Results


class CallableModule(ModuleType):
    """This module, which can be called: a package's attribute is its submodule once that is imported."""

    def __call__(self, overrides: Sequence[str] = (), folder: str | Path | None = None) -> Results:
        """As the function :func:`dqnspeed.train`."""
        return train(overrides, folder)


if __name__ == "__main__":
    main()
else:
    sys.modules[__name__].__class__ = CallableModule
