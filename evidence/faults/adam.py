"""A deliberately wrong Adam, in arithmetic that the arrays of both frameworks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AdamRule:
    """Departures of an Adam from arXiv 1412.6980, algorithm 1; by default none."""

    corrected: bool = True
    """Whether the moments are divided by 1 - beta^t."""
    late: int = 0
    """Number added to t in that correction."""
    root_of_sum: bool = False
    """Whether the epsilon is added inside the root."""
    damped: bool = True
    """Whether the gradient enters the first moment times 1 - beta1."""
    first_moment_kept: bool = False
    """Whether the first moment starts from values other than 0."""
    sign: bool = False
    """Whether the update is the sign of the first moment, as in Lion."""


def adam(
    rule: AdamRule, g: Any, m: Any, v: Any, t: Any, betas: tuple[float, float], eps: float
) -> tuple[Any, Any, Any]:
    """Compute one update of one parameter.

    Args:
        g, m, v: the gradient, and both moments before the update.
        t: the number of this update, counted from 1.

    Returns:
        The moments, and the direction that the learning rate multiplies.
    """
    beta1, beta2 = betas
    if rule.first_moment_kept:
        m = m + (t == 1) * g * abs(g)  # some other run's, but the same in both twins
    m = beta1 * m + ((1 - beta1) if rule.damped else 1.0) * g
    v = beta2 * v + (1 - beta2) * g * g
    t = t + rule.late
    first = m / (1 - beta1**t) if rule.corrected else m
    second = v / (1 - beta2**t) if rule.corrected else v
    if rule.sign:
        return m, v, first / (abs(first) + eps)
    return m, v, first / ((second + eps**2) ** 0.5 if rule.root_of_sum else second**0.5 + eps)
