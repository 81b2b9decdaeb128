"""``python -m dqnspeed.train``; and ``dqnspeed.train(...)`` once this module has taken the place of the function."""

import sys
from types import ModuleType

from dqnspeed.cli.api import train
from dqnspeed.cli.train import main


class CallableModule(ModuleType):
    """This module, which can be called: a package's attribute is its submodule once that is imported."""

    __call__ = staticmethod(train)


if __name__ == "__main__":
    main()
else:
    sys.modules[__name__].__class__ = CallableModule
