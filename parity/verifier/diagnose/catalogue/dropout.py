"""Dropout and stochastic depth that are active: told by their zeros and by the factor 1 / (1 - p)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment


def computations(segment: Segment) -> Iterator[Computation]:
    """A tensor as it is, or with some of its values zeroed and the others scaled up."""
    same = [x for _, x in sources(segment) if x.shape == segment.result.shape]
    if not same or segment.parameters:
        return
    x = same[0]
    options = [Option("nothing dropped", None, torch="model.eval()", jax="model.eval()")]
    found = _dropped(x, segment.result)
    if found is not None:
        options.append(found)

    def compute(v: Values) -> np.ndarray:
        return x if v["dropout"] is None else np.where(v["dropout"][0], x * v["dropout"][1], 0.0)

    aspect = Aspect("dropout", "dropout-active", tuple(options))
    yield Computation("dropout", (aspect,), compute)


def _dropped(x: np.ndarray, result: np.ndarray) -> Option | None:
    known = x != 0
    kept = result != 0
    gone = known & ~kept
    count, dropped = int(known.sum()), int(gone.sum())
    if not 0 < dropped < count:
        return None
    factor = float((result[kept] * x[kept]).sum() / (x[kept] ** 2).sum())
    images = gone.reshape(len(gone), -1)
    whole = bool((images.all(axis=1) | ~images.any(axis=1)).all())
    draws = len(gone) if whole else count
    rate = 1.0 - 1.0 / factor if factor > 1.0 else 0.0
    share = dropped / count
    # without the factor, or with zeros far from the rate it tells, it is something else
    if rate and abs(share - rate) > 6.0 * math.sqrt(rate * (1.0 - rate) / draws) + 1.0 / draws:
        return None
    if not rate and abs(factor - 1.0) > 1e-3:
        return None
    what = "drop path" if whole else "dropout"
    scaled = f"{what} {rate:.3g} active" if rate else f"{what} active, without 1 / (1 - p)"
    return Option(f"{scaled}, {share:.2g} of it zero", (kept | ~known, factor))
