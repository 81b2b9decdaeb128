"""Arithmetic that a training changes is that of before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from conftest import make_run

from dqnspeed.execution.precision import arithmetic_kept, set_precision

MATMUL, CUDNN = cast("Any", torch.backends.cuda.matmul), cast("Any", torch.backends.cudnn)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = MATMUL.allow_tf32, CUDNN.allow_tf32
    yield
    MATMUL.allow_tf32, CUDNN.allow_tf32 = before


@pytest.mark.parametrize("tf32", [False, True])
def test_arithmetic_of_a_gpu_is_that_of_before(tf32: bool) -> None:
    MATMUL.allow_tf32, CUDNN.allow_tf32 = tf32, not tf32
    with arithmetic_kept():
        set_precision(make_run().execution)
        assert not MATMUL.allow_tf32 and not CUDNN.allow_tf32
    assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == (tf32, not tf32)
