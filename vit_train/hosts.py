"""One process's part in a run that several train together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hosts:
    """One process's part in a run; each process runs the same program on its own devices."""

    leads: bool = True
    """Whether this process writes the log and the folder's description, and prints to the terminal."""
    rows: np.ndarray | None = None
    """The rows of every batch that this process reads; None for all."""
    should_stop: Callable[[int], bool] | None = None
    """Given the updates done, whether all processes stop now because one was told to; None without
    other processes."""
    of_leader: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers
    """Given float64 numbers by every process at once, returns the leader's."""


ALONE = Hosts()
"""A process that trains by itself."""
