"""The side that a user names on the command line."""

from __future__ import annotations

from pathlib import Path

from parity.measure.traces.reader import is_trace
from parity.verifier.diff.build import Order
from parity.verifier.diff.process import InOwnProcess
from parity.verifier.diff.sides import Recorded, Side


def named_side(order: Order, python: Path | None = None) -> Side:
    """A trace as it is, or a model in a process of its own.

    Raises:
        MissingFileError, WeightsError: a trace that is damaged or not there.
        ConfigError: no such interpreter.
    """
    if is_trace(order.name) or order.name.endswith(".trace"):
        return Recorded(Path(order.name))
    return InOwnProcess(order, python)
