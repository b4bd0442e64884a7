"""What a library's training script says of a run, in one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parity.runs.foreign.entries import Entries
from parity.runs.foreign.statements import Statements


@dataclass(frozen=True)
class Records:
    """A training state, its weights and moments unread."""

    library: str
    """Whose it is, in words."""
    optimizer: Entries
    """The state dict of its optimiser."""
    said: Statements
    """What it states of the recipe."""
    half: bool | None = None
    """Whether products are computed in half precision; None if unknown."""
    step: int | None = None
    """Updates done, where it says so itself."""
    epochs_done: int | None = None
    """Whole epochs done, where it was written at the end of one."""
    steps_per_epoch: int | None = None
    given: dict[str, Any] = field(default_factory=dict)
    """Fields of the schema that it states."""
    part: str | None = None
    """Where the parameters are in the file; None where there is no other model in it."""
    ema: str | None = None
    """Where their average is; None where there is none."""
    version: str | None = None
    """Of the library, where its order of parameters depends on it."""
    notes: tuple[str, ...] = ()
    """What is not carried, a sentence each."""
