"""Bounds on how far rounding moves a recorded value from its rule computed exactly."""

from __future__ import annotations

import numpy as np

from parity.verifier.recordings.steps.sides import RecordedSide

SHARES = {
    "loss": 64,
    "gradients": 2000,
    "clipped": 64,
    "learning rate": 16,
    "moments": 400,
    "updated": 2000,
}
"""Number of roundings that is allowed of what a stage changes. That of the update is large because
1 - beta2^t is small, and optax computes it in the type of the parameters."""
FLOOR = 1e-3
"""Least bound, as a share of one rounding of the root mean square: smaller elements count as zero. A
thousand of them, off by as much, are off by less than one rounding of the whole."""
TINY = 1e-150
"""Stand-in for zero in divisors and squares: its square, 1e-300, is a normal number of float64."""


def noise(side: RecordedSide) -> dict[str, np.ndarray]:
    """Return bounds on the rounding of every element of the result, by entry."""
    segment, eps = side.segment, side.eps
    share = SHARES[segment.stage] * eps
    kinds: dict[str, list[str]] = {}
    for key in segment.result:
        kinds.setdefault(key.rpartition(" ")[2] if segment.stage == "moments" else "", []).append(key)
    bounds = {}
    for keys in kinds.values():
        squares = [np.mean(segment.result[key] ** 2) for key in keys if segment.result[key].size]
        rms = float(np.sqrt(np.mean(squares))) if squares else 0.0
        for key in keys:
            if segment.stage == "gradients":  # sums in another order, rounded like their largest terms
                own = np.sqrt(np.mean(segment.result[key] ** 2))
                bounds[key] = np.full_like(segment.result[key], share * (rms + own) + TINY)
            else:
                bounds[key] = _bound(side, key, share) + (FLOOR * eps * rms or TINY)
    return bounds


def _bound(side: RecordedSide, key: str, share: float) -> np.ndarray:
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
