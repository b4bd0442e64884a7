"""How far two training states are apart, over all that the loss sees."""

from __future__ import annotations

import numpy as np

from parity.measure.error import joint_error
from parity.measure.invisible import Sight
from parity.runs.state import Arrays, TrainingState


def distances(sight: Sight, a: TrainingState, b: TrainingState) -> dict[str, float]:
    """||b - a||_2 / ||a||_2 over all that the loss sees, for each part of the state."""
    return {part: distance(sight, arrays, b.parts()[part]) for part, arrays in a.parts().items()}


def distance(sight: Sight, a: Arrays, b: Arrays) -> float:
    """||b - a||_2 / ||a||_2 over all that the loss sees of these tensors; infinite where a number is
    none."""
    return joint_error((sight.seen(name, b[name]), sight.seen(name, value)) for name, value in a.items())


def unseen_difference(sight: Sight, a: TrainingState, b: TrainingState) -> float:
    """The largest difference that a parameter has come to of which the loss sees nothing."""
    differences = [
        float(np.abs(sight.unseen(n, x).astype(np.float64) - sight.unseen(n, b.params[n])).max())
        for n, x in a.params.items()
        if sight.unseen(n, x).size
    ]
    return max(differences, default=0.0)
