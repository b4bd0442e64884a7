"""What the layers of a model that is given in training mode do in that mode alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from parity.measure.shown import first_three
from parity.verifier.programs.operation import Source
from parity.verifier.programs.program import TRAINING, Program

RATES = ("p", "rate")
"""Names of the rate of a layer whose class says what it is a rate of."""


@dataclass(frozen=True)
class Training:
    """A layer that computes something else in training mode."""

    path: str
    of: str
    """Its class."""
    does: str
    """What it does, such as "dropout"."""
    rate: float | None = None
    """The share that it drops; None where it drops nothing."""
    built: Source | None = None
    """The line that built it, where that is known."""

    def text_of(self, times: int = 1) -> str:
        """Say what it does, how much, where and how often: "dropout (0.5, port.py:12)"."""
        rate = "" if self.rate is None else f"{self.rate:g}, "
        where = str(self.built) if self.built else self.path or self.of
        return f"{self.does} ({rate}{where}{f'; {times} times' if times > 1 else ''})"

    @property
    def in_full(self) -> str:
        """Name it with its path and its class: "blocks.0.drop (Dropout, 0.5, port.py:12)"."""
        rate = "" if self.rate is None else f"{self.rate:g}"
        about = ", ".join(filter(None, (self.of, rate, str(self.built or ""))))
        return f"{self.path or 'the model'} ({about})"


def training_of(path: str, layer: Any, built: Source | None) -> list[Training]:
    """Return what a layer, which is in training mode, does there alone; empty if that is nothing."""
    name = type(layer).__name__
    found = []
    for key, value in vars(layer).items():
        rated = "drop" in key.lower() or (key in RATES and "drop" in name.lower())
        if rated and isinstance(value, float) and value > 0:
            does = "drop path" if "path" in f"{name}{key}".lower() else "dropout"
            found.append(Training(path, name, does, value, built))
    if "batchnorm" in name.lower() and getattr(layer, "track_running_stats", True):
        found.append(Training(path, name, "batch norm", None, built))
    return found


def texts(layers: Iterable[Training]) -> list[str]:
    """Describe what is on, the same of one line together: "dropout (0.1, port.py:12; 24 times)"."""
    groups: dict[Any, list[Training]] = {}
    for each in layers:
        groups.setdefault((each.does, each.rate, each.built), []).append(each)
    return [group[0].text_of(len(group)) for group in groups.values()]


def note_training(program: Program, layers: Iterable[Training]) -> None:
    """Note that a model was given in training mode, and what is on then."""
    layers = list(layers)
    program.trained += [text for text in texts(layers) if text not in program.trained]
    shown = [each.in_full for each in layers]
    on = f"; as it was given, these are on: {first_three(shown, 'more')}" if shown else ""
    if TRAINING + on not in program.notes:
        program.notes.append(TRAINING + on)
