"""Devices that the tests play on, and cases that take long together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import warp as wp

needs_cuda = [pytest.mark.cuda, pytest.mark.skipif(not wp.is_cuda_available(), reason="needs a CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def mostly_integration(cases: Iterable[Any], every: int) -> list[Any]:
    """Test parameters: each ``every``-th case for ``make test``, and the others for ``make integration``."""
    return [pytest.param(case, marks=[pytest.mark.integration] * (k % every > 0)) for k, case in enumerate(cases)]
