"""When two runs count as the same function: every tolerance, and where it comes from.

Errors are relative, ||a - b||_2 / ||b||_2 of a whole tensor; both exactly zero counts as equal.

float64 proves the algebra: the twins may differ by rounding only. Measured over every preset: at most
2e-14 (`parity check PRESET --dtype float64`); the bound of 1e-12 leaves room for depth.

float32 and bfloat16 prove the numerics. Each twin is measured against *its own* float64 run on the
same, rounded weights, and must pass twice. It stays within K times the type's epsilon, and within 4
times the other twin's distance - a path that is simply less accurate than its twin is a fault even
where K has room. Distances below one epsilon are the type's own grain and are not told apart.

The grain is coarser in three places. In a tensor of fewer than 64 numbers, where a few can be right
by luck, it grows by the square root (measured: of the 8-number gradients of mnist_exercise, one in
a hundred is 4 times nearer in one twin). In losses, which for a small batch depend on a few logits,
it is at least the distance of the logits. In gradients, whose errors share what happened to a few
images, it is at least that run's median distance of gradients, and at least the round-off of adding
their terms one after another. Where a distance is beyond 4 times the other all the same, both are
averaged over runs on nudged numbers: luck does not repeat itself. (A bound on the twins' mutual
distance by their own distances could never fail: triangle inequality.)

A loss is a difference of logits, and its error relative to numbers of their size.

Any other two programs are held to the envelope of rounding: the effect of one unit in the last
place of all parameters and inputs on one of them, times `FACTOR`.
"""

from __future__ import annotations

import math
from typing import Literal

DType = Literal["float64", "float32", "bfloat16"]
DEFAULT_DTYPES: tuple[DType, ...] = ("float64", "float32")
"""Types that a check of the function compares by default."""

FLOAT64 = 1e-12
"""Largest relative difference between the twins in float64."""

RATIO = 4.0
"""Largest distance of one twin to float64, as a multiple of the other twin's in the same type."""

FEW = 64
"""Size of a tensor below which its grain is coarser than one epsilon, by sqrt(FEW / numbers)."""

# Largest distance to float64 in epsilons of the type: powers of 2, more than twice the largest that is
# measured over the presets up to ViT-B size. The measurement, with its command, is the table in
# docs/parity.md, and nowhere else; a limit that it leaves more room stays as it was first set.
LIMITS: dict[str, dict[str, float]] = {
    "float32": {"modules": 128, "output": 64, "loss": 32, "gradients": 256},
    "bfloat16": {"modules": 16, "output": 16, "loss": 16, "gradients": 32},
}


SHADOW = 10.0
"""Largest distance between the twins' runs, as a multiple of a run's distance to its farthest shadow."""

STEP_LEVELS = ("loss", "gradients", "exp_avg", "exp_avg_sq", "momentum_buffer", "parameters", "ema")
"""Levels at which one training step is compared."""

# Values derived from gradients - moments, and changes of parameters and averages, each in its own
# grain - have the limits of gradients; docs/training_parity.md has a measurement and the command.
STEP_LIMITS: dict[str, dict[str, float]] = {
    dtype: {level: limits["loss" if level == "loss" else "gradients"] for level in STEP_LEVELS}
    for dtype, limits in LIMITS.items()
}


FACTOR = 32.0
"""Largest difference of two programs, as a multiple of the effect of one unit in the last place."""
ASSUMED = 256.0
"""Units in the last place granted to rounding where no nudge was run: the largest of `LIMITS`."""


def in_a_row(count: int) -> float:
    """Return the relative error of adding `count` float32 numbers of either sign one after another.

    Each addition is off by an error spread evenly over half a unit in the last place either way: 0.29 of
    the epsilon of a partial sum of mantissa 1, 0.2 of a typical one. Partial sums grow as the root of
    their length, so over n of them the squares add up to n / 2: 0.2 sqrt(n / 2) epsilons.

    Libraries add in different orders. PyTorch's LayerNorm adds up the gradients of its gain and bias
    token by token; XLA adds blocks first, which loses almost nothing.
    """
    return 0.2 * math.sqrt(count / 2) * epsilon("float32")


def epsilon(dtype: str) -> float:
    """Return the distance from 1 to the next number of a type."""
    import ml_dtypes  # imports numpy, which naming a type does not need

    return float(ml_dtypes.finfo(dtype).eps)
