"""The interface of both frameworks' trainers in a comparison of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from parity.runs.state import Arrays, TrainingState

Batch = Mapping[str, Any]
"""Numpy arrays: ``image`` (B, H, W, C) and ``label`` (B,)."""


class StepGradients(NamedTuple):
    """The loss and the gradients that one step computed."""

    loss: float
    gradients: Arrays
    """Gradients of the mean loss, before clipping."""


class Session(Protocol):
    """One run of one trainer."""

    def load(self, state: TrainingState) -> None:
        """Continue from another state."""
        ...

    def step(self, batch: Batch) -> StepGradients:
        """Do one update."""
        ...

    def state(self) -> TrainingState:
        """Return the state after the last update, in arrays of its own."""
        ...
