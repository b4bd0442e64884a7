"""What a diagnosis says: the causes that explain a difference, or that none of the known ones does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    """One known way in which two programs differ: exchanging that one thing makes them the same."""

    name: str
    """A slug: ``weight-decay``, ``beta2``."""
    stage: str
    """Of the training step, as `parity.measure.traces.format.Stage` names it."""
    where: tuple[str, ...]
    """Names of the parameters that it concerns; empty for all of a stage."""
    a: str
    """What A does, in words with numbers: ``beta2 0.95``."""
    b: str
    difference: float
    """||A's result - B's result||."""
    residual_a: float
    """What is left of A's result when it is recomputed under this cause: ||recomputed - result||."""
    residual_b: float
    advice: str = ""
    """The line of code to change."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"where": list(self.where)}


@dataclass(frozen=True)
class Verdict:
    """Why two programs differ at one place."""

    causes: tuple[Cause, ...] = ()
    """Best first; empty where nothing differs or nothing known explains it."""
    unknown: str | None = None
    """The sentence to print when nothing known explains the difference."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"causes": [cause.to_dict() for cause in self.causes], "unknown": self.unknown}
