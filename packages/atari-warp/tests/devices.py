"""Devices that the tests play on."""

from __future__ import annotations

import pytest
import warp as wp

needs_cuda = [pytest.mark.cuda, pytest.mark.skipif(not wp.is_cuda_available(), reason="needs a CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
