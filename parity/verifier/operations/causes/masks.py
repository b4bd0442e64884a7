"""Scores behind a mask on one side only."""

from __future__ import annotations

import numpy as np

from parity.verifier.operations.causes.exchange import Cause
from parity.verifier.operations.meeting import Index
from parity.verifier.operations.region import Found, distance


def judge(found: Found, _: Index) -> Cause | None:
    """Scores behind a mask on one side only."""
    a, b = found.value, found.instead
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.dtype.kind != "f":
        return None
    shut_a, shut_b = a < -1e3, b < -1e3
    if (
        np.array_equal(shut_a, shut_b)
        or (shut_a.any() and shut_b.any())
        or (max(a.max(), b.max()) > 1e3)
    ):
        return None
    shut, one, other = (shut_a, a, b) if shut_a.any() else (shut_b, b, a)
    if distance(np.where(shut, 0, one), np.where(shut, 0, other)) > 1e-12:
        return None
    future = ~np.tri(a.shape[-1], dtype=bool)
    name = "causal mask" if np.array_equal(shut, np.broadcast_to(future, shut.shape)) else "mask"
    return name, "only A has it" if shut_a.any() else "only B has it"
