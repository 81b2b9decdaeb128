"""What ``execution.compile`` makes of functions: graphs of few kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of tensors and numbers as one graph of the compiler's, which joins its operations in few kernels.

    It rounds as they do, where torch has a way: else a GPU's compiler makes one rounding of a product and a sum.
    """
    from torch._inductor import config

    options: dict[str, Any] = {"emulate_precision_casts": True} if hasattr(config, "emulate_precision_casts") else {}
    return torch.compile(function, fullgraph=True, dynamic=False, options=options)


def compiled_with_gradients(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """``function``, which returns gradients too, as one graph for a CPU, or ``None`` where torch has no way.

    Autograd's engine has no part in it, and its kernels are called from C++ and not from Python. What cannot be traced
    breaks it into several.
    """
    from torch._dynamo import config

    if not hasattr(config, "trace_autograd_ops"):
        return None
    config.trace_autograd_ops = True
    return torch.compile(function, dynamic=False, options={"cpp_wrapper": True})
