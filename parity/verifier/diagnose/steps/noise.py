"""How far rounding alone takes a recorded value from the same rule computed exactly."""

from __future__ import annotations

import numpy as np

from parity.verifier.diagnose.steps.sides import Side

SHARES = {
    "loss": 64,
    "gradients": 2000,
    "clipped": 64,
    "learning rate": 16,
    "moments": 400,
    "updated": 2000,
}
"""Roundings of what a stage changes. The update's many are those of 1 - beta2^t, which is small, and
which optax computes in the type of the parameters."""
FLOOR = 1e-3
"""Of one rounding of the root mean square: elements that are smaller are as good as zero."""
TINY = 1e-150
"""In place of zero, where something is divided by it and squared."""


def noise(side: Side) -> dict[str, np.ndarray]:
    """A bound on the rounding of every element of the result, by its entries."""
    segment, eps = side.segment, side.eps
    share = SHARES[segment.stage] * eps
    kinds: dict[str, list[str]] = {}
    for key in segment.result:
        kinds.setdefault(key.rpartition(" ")[2] if segment.stage == "moments" else "", []).append(key)
    found = {}
    for keys in kinds.values():
        squares = [np.mean(segment.result[key] ** 2) for key in keys if segment.result[key].size]
        rms = float(np.sqrt(np.mean(squares))) if squares else 0.0
        for key in keys:
            if segment.stage == "gradients":  # made by other sums, each rounded as its largest terms are
                own = np.sqrt(np.mean(segment.result[key] ** 2))
                found[key] = np.full_like(segment.result[key], share * (rms + own) + TINY)
            else:
                found[key] = _bound(side, key, share) + (FLOOR * eps * rms or TINY)
    return found


def _bound(side: Side, key: str, share: float) -> np.ndarray:
    segment = side.segment
    result = segment.result[key]
    if segment.stage == "updated":
        start = segment.parameters[key]
        return 2 * side.eps * np.abs(start) + share * np.abs(start - result)
    if segment.stage == "moments":
        start = segment.moments_before.get(key, np.zeros_like(result))
        return 4 * side.eps * (np.abs(start) + np.abs(result)) + share * np.abs(result - start)
    if segment.stage == "loss" and segment.logits is not None:
        return share * (np.abs(result) + np.abs(segment.logits).max(initial=0.0))
    return share * np.abs(result)
