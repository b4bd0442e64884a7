"""How far rounding alone may move a tensor; and which elements are only noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from parity.measure.error import norm, wide
from parity.measure.policies import Limit, assumed_limit
from parity.measure.tolerance import epsilon
from parity.measure.traces import Event, Site, Trace
from parity.verifier.recordings.pairs import EventPair, Traces

_NOISE_GRAINS = 1e3
"""Units in the last place of a leaf's largest gradient below which an element of the leaf is noise."""

GRAINS = 32
"""Units in the last place of the root mean square of all gradients below which a gradient is noise."""


def limit(traces: Traces, pair: EventPair, apart: Mapping[str, float]) -> Limit:
    """Return the limit for the error of a tensor that rounding explains.

    Args:
        apart: distances of the parameters that a later step starts from, see `parameters_apart`.
    """
    least, first = grain(pair), pair.a.step == traces.a.steps[0]
    if pair.a.stage == "batch" or (pair.a.stage == "parameters" and first):
        return Limit(least, "1 eps")  # nothing has been computed yet
    # later steps start from parameters that rounding has moved: Adam divides a gradient that is only
    # noise by its own size, so an element may move either way, and all that is computed from it follows
    own = pair.a.stage in ("parameters", "updated")
    left = apart.get(pair.a.path if own else "", 0.0)
    return assumed_limit(least, 1 + pair.a.step - traces.a.steps[0], left)


def above_noise(a: Trace, event: Event) -> np.ndarray | None:
    """Return a mask of the elements of a moment or updated parameter that are not noise; None for all.

    Where the gradient is zero in theory, as in the third of a packed bias that belongs to the keys, it
    is rounding noise. Adam divides it by its own size, so its steps are as large as any, in a random
    direction.
    """
    if event.stage not in ("moments", "updated"):
        return None
    site = Site(event.step, "gradients", event.path)
    if site not in a or a[site].spacing != event.spacing or a[site].shape != event.shape:
        return None
    gradient = np.abs(wide(a.read(site)))
    if not gradient.any():  # the loss does not depend on it, or rounding left nothing in this step
        before = [event.site._replace(step=step) for step in a.steps if step < event.step]
        return above_noise(a, a[before[-1]]) if before and before[-1] in a else None
    least = max(_NOISE_GRAINS * gradient.max(initial=0.0), GRAINS * usual_gradient(a, event.step))
    return gradient > least * epsilon(event.dtype)


@lru_cache(maxsize=4)
def usual_gradient(a: Trace, step: int) -> float:
    """Return the root mean square of all gradients of a step."""
    events = list(a.of("gradients", step))
    squares = sum(norm(a.read(each)) ** 2 for each in events if each.spacing is None)
    return math.sqrt(squares / max(sum(each.size for each in events if each.spacing is None), 1))


def grain(pair: EventPair) -> float:
    """Return the epsilon of the coarser of two types; 0 for integers."""
    types = {pair.a.dtype, pair.b.dtype}
    floats = [epsilon(name) for name in types if "float" in name]
    return max(floats, default=0.0)
