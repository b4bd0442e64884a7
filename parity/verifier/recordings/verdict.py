"""Verdict of a diagnosis: the causes that explain a difference, or that no known cause does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from parity.verifier.report.compared import Compared


@dataclass(frozen=True)
class StepCause:
    """A known way in which two programs differ: with this one thing exchanged they are the same."""

    name: str
    """Slug, such as ``weight-decay`` or ``beta2``."""
    stage: str
    """Stage of the training step, by its name in `parity.measure.traces.format.Stage`."""
    where: tuple[str, ...]
    """Names of the parameters concerned; empty for all of a stage."""
    a: str
    """What A does, in words with numbers: ``beta2 0.95``."""
    b: str
    difference: float
    """||A's result - B's result||."""
    residual_a: float
    """||recomputed - result|| when A's result is recomputed by A's rule under this cause."""
    residual_b: float
    advice: str = ""
    """The line of code to change."""

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain data."""
        return asdict(self) | {"where": list(self.where)}


@dataclass(frozen=True)
class PlaceVerdict:
    """Causes of a difference at one place."""

    causes: tuple[StepCause, ...] = ()
    """Best first; empty if nothing differs or no known cause explains the difference."""
    unknown: str | None = None
    """Sentence to print if no known cause explains the difference."""
    compared: Compared | None = None
    """The two programs, compared on the parameters and the batch of the step; None if they were not."""
    same: bool = False
    """Whether both sides follow one rule, so that the difference is in what went into it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        said = {"causes": [cause.to_dict() for cause in self.causes], "unknown": self.unknown}
        return said | ({"programs": self.compared.to_dict()} if self.compared else {})
