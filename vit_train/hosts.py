"""One process's part in a run that several train together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hosts:
    """What one of several processes does, each of which runs the same program on its own devices."""

    leads: bool = True
    """Whether it writes the log and the folder's description, and speaks to the terminal."""
    rows: np.ndarray | None = None
    """Which rows of every batch it reads; None for all."""
    should_stop: Callable[[int], bool] | None = None
    """Given the updates done, whether all stop now since one of them was told to; None where there are
    no others to agree with."""
    of_leader: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers
    """Given float64 numbers by every process at once, those of the one that leads."""


ALONE = Hosts()
"""A process that trains by itself."""
