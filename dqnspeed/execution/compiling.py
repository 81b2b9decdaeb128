"""Compilation of functions of tensors, for ``execution.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` as one graph, which joins its operations in few kernels.

    Results are rounded as without compilation if this torch has an option for it. Otherwise a GPU rounds a product and
    a sum once.
    """
    from torch._inductor import config

    options: dict[str, Any] = {"emulate_precision_casts": True} if hasattr(config, "emulate_precision_casts") else {}
    return torch.compile(function, fullgraph=True, dynamic=False, options=options)


def compiled_for_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` for a CPU: kernels are called from C++, without Python.

    Operations that cannot be traced split the graph.
    """
    return torch.compile(function, dynamic=False, options={"cpp_wrapper": True})


def compiled_with_gradients(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Compile ``function``, which returns gradients too, as one graph for a CPU; ``None`` if this torch cannot."""
    from torch._dynamo import config

    if not hasattr(config, "trace_autograd_ops"):
        return None
    config.trace_autograd_ops = True
    return compiled_for_cpu(function)
