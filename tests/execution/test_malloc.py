"""Memory of freed tensors stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Number of pages that the system maps while tensors of 48 MiB are made and freed, without and with kept memory.
FAULTS = """
import resource, types, torch
from dqnspeed.execution.malloc import keep_memory
for keep in (False, True):
    keep_memory(types.SimpleNamespace(keep_memory=keep))
    torch.ones(48 << 20, dtype=torch.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(48 << 20, dtype=torch.uint8)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_if_the_run_says_so() -> None:
    printed = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True).stdout
    given_back, kept = map(int, printed.split())
    assert 5 * kept < given_back
