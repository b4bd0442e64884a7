"""Dropout that is on in a recording: a module whose output is its input with some elements left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parity.measure.error import wide
from parity.measure.traces import Trace
from parity.verifier.recordings.pairs import Traces
from parity.verifier.recordings.steps.fitting import snap, text
from parity.verifier.recordings.steps.names import PlaceVerdict, named


class Dropped(NamedTuple):
    """A module that leaves out elements."""

    path: str
    rate: float
    size: float
    """Norm of the difference of its output and its input."""


def dropout(traces: Traces, step_a: int, step_b: int) -> PlaceVerdict | None:
    """Return the cause that one side alone drops values at random in a step, or a sentence if both do;
    None if neither is seen to."""
    found = _first(traces.a, step_a), _first(traces.b, step_b)
    told = next((each for each in found if each is not None), None)
    if told is None:
        return None
    if None not in found:
        return PlaceVerdict(
            unknown="dropout is on in both, with other masks: switch it off, to compare what follows"
        )
    words = [
        f"dropout {text(each.rate)}, in {each.path}" if each else "dropout: none seen" for each in found
    ]
    return PlaceVerdict(causes=(named("forward", "dropout", words, told.size),))


def _first(trace: Trace, step: int) -> Dropped | None:
    for event in trace.of("forward", step):
        module = trace.modules.get(event.path)
        site = event.site._replace(port="in")
        if (
            event.port != "out"
            or module is None
            or "drop" not in module.name.lower()
            or site not in trace
        ):
            continue
        x, y = wide(trace.read(site)).ravel(), wide(trace.read(event)).ravel()
        if x.shape != y.shape:
            continue
        left = (y == 0) & (x != 0)
        kept = ~left & (x != 0)
        if not left.any() or not kept.any():
            continue
        ratios = y[kept] / x[kept]
        if np.ptp(ratios) <= 1e-2 * np.abs(ratios).max():
            rate = 1 - 1 / float(np.median(ratios))
            return Dropped(event.path, snap(rate, 1e-2 if event.dtype == "bfloat16" else 1e-5),
                           float(np.linalg.norm(y - x)))  # fmt: skip
    return None
