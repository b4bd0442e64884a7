"""`StateRecords`: the common form of what a library's training script records about a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parity.runs.foreign.entries import Entries
from parity.runs.foreign.statements import Statements


@dataclass(frozen=True)
class StateRecords:
    """Records of a training state; weights and moments are not read."""

    library: str
    """Name of the library, in words."""
    optimizer: Entries
    """The state dict of the optimiser."""
    said: Statements
    """The fields of the recipe that the records state."""
    half: bool | None = None
    """Whether products are computed in half precision; None if unknown."""
    step: int | None = None
    """Number of updates done, if the records state it."""
    epochs_done: int | None = None
    """Number of whole epochs done, if the state was written at the end of one."""
    steps_per_epoch: int | None = None
    given: dict[str, Any] = field(default_factory=dict)
    """Fields of the schema that the records state."""
    part: str | None = None
    """Part of the file with the parameters; None if the file has only one model."""
    ema: str | None = None
    """Part of the file with their average; None if there is none."""
    version: str | None = None
    """Version of the library, if the order of parameters depends on it."""
    notes: tuple[str, ...] = ()
    """Notes on state that is not carried over."""
