"""Wrong factors of one term of a sum: a rate, a weight."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Said
from parity.verifier.causes.numbers import Slot, exchanged, slots
from parity.verifier.search.exchange import is_a
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found

LARGEST = 32
"""Largest region, in operations, whose numbers are tried."""
MOST_TRIALS = 12
LEAST_NUMBERS = 3
"""Fewest elements that one unknown factor must explain."""


def judge(found: Found, _: Index) -> Said | None:
    """Find the one factor of a term of B's that, exchanged for another number, gives A's value."""
    if found.value.size < LEAST_NUMBERS or len(found.b.operations) > LARGEST:
        return None
    factors = [s for s in slots(found.b) if s.operation.name in ("mul", "div") and _is_one(s.value)]
    for slot in factors[-MOST_TRIALS:][::-1]:  # the last is the nearest to the sum
        times = _solved(found, slot)
        if times is None:
            continue
        if abs(times + 1) < 1e-9:
            return "sign", f"a term of B's has the other sign, with its {slot.text()}"
        where = f" at {slot.operation.source}" if slot.operation.source is not None else ""
        return "factor", f"a term of B's, with its {slot.text()}{where}, is {times:.10g} times A's"
    return None


def _is_one(value: object) -> bool:
    return np.size(value) == 1 and bool(np.all(np.isfinite(value))) and bool(np.all(value))  # type: ignore[call-overload]


def _solved(found: Found, slot: Slot) -> float | None:
    """Return how many times too large B's term is: solved from two runs, and checked in a third."""
    power = -1.0 if slot.operation.name == "div" and slot.position == 1 else 1.0
    one, two = (exchanged(found.b, [(slot, slot.value * scale**power)]) for scale in (1.0, 2.0))
    if any(v is None or np.shape(v) != found.value.shape for v in (one, two)):
        return None
    with np.errstate(all="ignore"):
        slope = np.asarray(two) - one
        scale = 1 + np.vdot(slope, found.value - one).real / np.vdot(slope, slope).real
    if not np.isfinite(scale) or abs(scale) < 1e-6 or abs(scale - 1) < 1e-9:
        return None
    value = exchanged(found.b, [(slot, slot.value * float(scale) ** power)])
    return 1 / float(scale) if is_a(found, value) else None
