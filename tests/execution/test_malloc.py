"""Memory of freed tensors stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Number of pages that the system maps while tensors of 48 MiB are made and freed in turn.
FAULTS = """
import resource, types, torch
from dqnspeed.execution.malloc import keep_memory
keep_memory(types.SimpleNamespace(keep_memory={keep}))
torch.ones(48 << 20, dtype=torch.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(48 << 20, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_if_the_run_says_so() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, check=True).stdout)
        for keep in (True, False)
    )
    assert 5 * kept < given_back
