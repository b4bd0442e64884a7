"""The rule of a moving average of the parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parity.measure.error import norm, wide
from parity.measure.site import Site
from parity.measure.tolerance import epsilon
from parity.measure.traces import Trace
from parity.verifier.recordings.rounding import Traces
from parity.verifier.recordings.steps.fitting import snap, text
from parity.verifier.recordings.steps.names import CAUSES
from parity.verifier.recordings.verdict import PlaceVerdict, StepCause

ROUNDINGS = 64
"""Units in the last place of the average that its rule may miss it by."""


class AverageFit(NamedTuple):
    """An average recomputed as decay * the one before + (1 - decay) * the updated parameter."""

    decay: float
    uncertainty: float
    residual: float


def explain_average(traces: Traces, a: Site, b: Site) -> PlaceVerdict | None:
    """Explain two averages of one parameter that differ; None if one follows another rule."""
    first, second = _fit(traces.a, a), _fit(traces.b, b)
    if first is None or second is None:
        return None
    if abs(first.decay - second.decay) <= first.uncertainty + second.uncertainty:
        return PlaceVerdict(unknown="updated: both averages have the same decay", same=True)
    name, advice = CAUSES["updated", "decay of the average"]
    words = [
        f"decay of the average {text(snap(each.decay, each.uncertainty))}" for each in (first, second)
    ]
    apart = norm(wide(traces.a.read(a)).ravel() - wide(traces.b.read(b)).ravel())
    cause = StepCause(
        name, "updated", (), words[0], words[1], apart, first.residual, second.residual, advice
    )
    return PlaceVerdict(causes=(cause,))


def _fit(trace: Trace, site: Site) -> AverageFit | None:
    """Fit the decay; the first average begins with the parameters of the first step."""
    earlier = [step for step in trace.steps if step < site.step]
    before = site._replace(step=earlier[-1]) if earlier else Site(site.step, "parameters", site.path)
    new = site._replace(port="")
    if before not in trace or new not in trace or trace[site].spacing is not None:
        return None
    old, value, average = (wide(trace.read(each)).ravel() for each in (before, new, site))
    x, y = old - value, average - value
    bound = ROUNDINGS * epsilon(trace[site].dtype) * norm(average)
    size = norm(x)
    if size <= bound:
        return None
    decay = float(np.vdot(x, y)) / size**2
    residual = norm(y - decay * x)
    return AverageFit(decay, bound / size, residual) if residual <= bound else None
