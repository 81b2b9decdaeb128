"""Arrays on their way to a device."""

from __future__ import annotations

import numpy as np
import torch

from dqnspeed.execution.transfer import pack, packed_size, unpack


def test_packed_arrays_come_out_as_they_went_in() -> None:
    given = {
        "a": torch.arange(7, dtype=torch.int64), "b": torch.tensor(True), "c": torch.rand(3, 5),
        "d": torch.empty(0, 4), "e": torch.arange(11, dtype=torch.uint8)[None],
    }  # fmt: skip
    buffer = torch.full((packed_size(given) + 13,), 255, dtype=torch.uint8)
    pack(given, buffer)
    for name, found in unpack(given, buffer).items():
        assert found.dtype == given[name].dtype and found.shape == given[name].shape
        np.testing.assert_array_equal(found, given[name])
