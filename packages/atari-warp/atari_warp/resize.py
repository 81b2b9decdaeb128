"""Weights of a resize by area, as OpenCV's ``INTER_AREA`` computes it."""

from __future__ import annotations

import numpy as np

NEGLIGIBLE = 1e-3  # part of a pixel that OpenCV leaves out


def area_weights(size: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels among ``size`` that each of ``to`` pixels is made of, and their weights.

    Returns:
        Indices ``(to, terms) int32`` and weights ``(to, terms) float32``, padded with weights of 0.
    """
    scale = size / to
    rows: list[list[tuple[int, float]]] = []
    for k in range(to):
        begin, end = k * scale, (k + 1) * scale
        width = min(scale, size - begin)
        last = min(int(np.floor(end)), size - 1)
        first = min(int(np.ceil(begin)), last)
        terms = [(first - 1, (first - begin) / width)] if first - begin > NEGLIGIBLE else []
        terms += [(pixel, 1.0 / width) for pixel in range(first, last)]
        if end - last > NEGLIGIBLE:
            terms.append((last, min(end - last, 1.0, width) / width))
        rows.append(terms)
    most = max(map(len, rows))
    table = np.array([terms + [(terms[-1][0], 0.0)] * (most - len(terms)) for terms in rows])
    return table[..., 0].astype(np.int32), table[..., 1].astype(np.float32)
