"""Distances between two training states, over the numbers that the loss depends on."""

from __future__ import annotations

import numpy as np

from parity.measure.error import joint_error
from parity.measure.invisible import Sight
from parity.runs.state import Arrays, TrainingState


def distances(sight: Sight, a: TrainingState, b: TrainingState) -> dict[str, float]:
    """Compute ||b - a||_2 / ||a||_2 of each part of the state, over the numbers that the loss sees."""
    return {part: distance(sight, arrays, b.parts()[part]) for part, arrays in a.parts().items()}


def distance(sight: Sight, a: Arrays, b: Arrays) -> float:
    """Compute ||b - a||_2 / ||a||_2 of tensors together, over the numbers that the loss sees.

    It is infinite if a value is not a number.
    """
    return joint_error((sight.seen(name, b[name]), sight.seen(name, value)) for name, value in a.items())


def unseen_difference(sight: Sight, a: TrainingState, b: TrainingState) -> float:
    """Compute the largest difference among parameter values that the loss does not depend on."""
    differences = [
        float(np.abs(sight.unseen(n, x).astype(np.float64) - sight.unseen(n, b.params[n])).max())
        for n, x in a.params.items()
        if sight.unseen(n, x).size
    ]
    return max(differences, default=0.0)
