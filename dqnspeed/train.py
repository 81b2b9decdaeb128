"""``python -m dqnspeed.train``, and ``dqnspeed.train(...)`` after this module has replaced the function."""

import sys
from types import ModuleType

from dqnspeed.cli.api import train
from dqnspeed.cli.train import main


class CallableModule(ModuleType):
    """A module that can be called, because importing a submodule replaces the attribute of its name."""

    __call__ = staticmethod(train)


if __name__ == "__main__":
    main()
else:
    sys.modules[__name__].__class__ = CallableModule
