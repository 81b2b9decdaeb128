"""How torch's OpenMP threads wait for one another.

By default they spin at every barrier, which is quick alone; beside another busy process each spin burns the time that
the thread waited for would need, and a run on two cores falls to a twentieth of its speed. OpenMP reads these
variables when torch loads it, so that they must be set before torch is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

# GNU's and LLVM's runtimes read the first (GNU's then spins 0 times), LLVM's alone the last.
PASSIVE = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_OURS = "DQNSPEED_WAIT_POLICY"  # so that a child knows that what it inherited is no wish of the user's


def wait_passively(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let idle threads sleep, here and in child processes, unless the user said how they wait or torch is there."""
    if "torch" not in sys.modules and not any(name in environ for name in VARIABLES):
        environ.update(PASSIVE)
        environ[_OURS] = PASSIVE["OMP_WAIT_POLICY"]


def describe(environ: MutableMapping[str, str] = os.environ) -> dict[str, str | None]:
    """The wait policy and who set it, for ``summary.json``: ``dqnspeed``, ``user``, or nobody, it being too late."""
    policy = environ.get("OMP_WAIT_POLICY")
    given = any(name in environ for name in VARIABLES)
    ours = policy is not None and policy == environ.get(_OURS)
    return {"wait_policy": policy, "set_by": "dqnspeed" if ours else "user" if given else "too late"}
