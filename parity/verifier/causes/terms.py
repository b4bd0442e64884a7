"""Wrong factors of terms of a sum: a rate, a weight, a scale that reaches further than A's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.causes import order
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.numbers import Slot, run_with_constants, slots
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import is_a, is_b, rerun, where
from parity.verifier.search.layouts import layout_changes
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 32
"""Largest region, in operations, whose numbers are tried."""
MOST_TRIALS = 12
LEAST_NUMBERS = 3
"""Fewest elements that one unknown factor must explain."""
MOST_TERMS = 6
SMALL = 1e-3
"""Factor up to which a term may be left out, if what is left is B's value."""


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find the one factor of a term of B's that, exchanged for another number, gives A's value."""
    if gap.value_a.size < LEAST_NUMBERS or len(gap.b.operations) > LARGEST:
        return None
    factors = [s for s in slots(gap.b) if s.operation.name in ("mul", "div") and _is_one(s.value)]
    for slot in factors[-MOST_TRIALS:][::-1]:  # the last is the nearest to the sum
        times = _solved(gap, slot)
        if times is None:
            continue
        if abs(times + 1) < FARTHEST.norm:
            return "sign", f"a term of B's has the other sign, with its {slot.text()}"
        where = f" at {slot.operation.source}" if slot.operation.source is not None else ""
        return "factor", f"a term of B's, with its {slot.text()}{where}, is {times:.10g} times A's"
    return None


def weights(gap: Gap, _: Index) -> Explanation | None:
    """Recognise B's value as the sum of A's terms, some of which are multiplied by other numbers."""
    terms = _terms(gap.a)
    if not 2 <= len(terms) <= MOST_TERMS or gap.value_a.size < LEAST_NUMBERS * len(terms):
        return None
    parts = _contributions(gap, terms)
    if parts is None:
        return None
    rest, *each = parts
    matrix = np.stack([part.ravel() for part in each], 1)
    if not np.isfinite(matrix).all() or not np.isfinite(gap.value_b).all():
        return None
    times = np.linalg.lstsq(matrix, (gap.value_b - rest).ravel(), rcond=None)[0]
    without = np.where(np.abs(times) < SMALL, 0, times)
    if is_b(gap, (matrix @ without).reshape(gap.value_b.shape) + rest):
        times = without  # of a term that is small beside the others nothing is left but rounding
    changed = [i for i, n in enumerate(times) if abs(n - 1) > FARTHEST.norm]
    value = (matrix @ times).reshape(gap.value_b.shape) + rest
    if not 0 < len(changed) < len(terms) or not is_b(gap, value):
        return None
    names = [where(gap.a.program.operations[terms[i]]) for i in changed]
    absent = dict.fromkeys(name for name, i in zip(names, changed, strict=True) if not times[i])
    if absent:
        return "term left out", f"only A adds that of {' and that of '.join(absent)}"
    scaled = " and ".join(
        f"that of {n} is {times[i]:.10g} times A's" for n, i in zip(names, changed, strict=True)
    )
    if len(changed) == 1 and abs(times[changed[0]] + 1) < FARTHEST.norm:
        return "sign", f"the term of {names[0]} has the other sign"
    return "factor", f"of the terms of a sum, {scaled}"


def orders(gap: Gap, index: Index) -> Explanation | None:
    """Recognise one term of B's sum as A's in another order, such as positions that are shifted."""
    terms = _terms(gap.a)
    if not 2 <= len(terms) <= MOST_TERMS or gap.value_a.size < LEAST_NUMBERS:
        return None
    parts = _contributions(gap, terms)
    for term, part in zip(terms, parts[1:], strict=True) if parts is not None else ():
        own = gap.value_b - (gap.value_a - part)
        said = order.judge(replace(gap, value_a=part, value_b=own, traced=True), index)
        if said is not None:
            return said[
                0
            ], f"of the terms of a sum, that of {where(gap.a.program.operations[term])}: {said[1]}"
    return None


def _terms(region: Region) -> list[int]:
    """Return the values whose sum or difference a region's value is, moved or not."""
    terms, stack, inside = [], [region.end], set(region.operations)
    while stack:
        index = stack.pop()
        op = region.program.operations[index]
        if index in inside and (op.is_layout or op.name in ("add", "sub", "rsub")):
            stack += op.inputs
        elif index not in terms:
            terms.append(index)
    return terms


def _contributions(gap: Gap, terms: Sequence[int]) -> list[np.ndarray] | None:
    """Return what a sum has without its terms, and what each term adds, in B's layout."""
    region, program = gap.a, gap.a.program
    given = program.values(terms)
    if not all(isinstance(value, np.ndarray) and value.dtype.kind == "f" for value in given.values()):
        return None
    zeros = {i: np.zeros_like(value) for i, value in given.items()}
    of_a = np.asarray(program.values([region.end])[region.end])
    changes = layout_changes(of_a.shape, gap.value_a.shape)
    change = next((each for each in changes if is_a(gap, each.of(of_a))), None)
    values = [rerun(region, given=zeros)]
    values += [rerun(region, given=zeros | {i: given[i]}) for i in terms]
    if change is None or any(v is None or np.shape(v) != of_a.shape for v in values):
        return None
    rest, *each = (change.of(np.asarray(v, float)) for v in values)
    return [rest, *(v - rest for v in each)]


def _is_one(value: object) -> bool:
    return np.size(value) == 1 and bool(np.all(np.isfinite(value))) and bool(np.all(value))  # type: ignore[call-overload]


def _solved(gap: Gap, slot: Slot) -> float | None:
    """Return how many times too large B's term is: solved from two runs, and checked in two others."""
    power = -1.0 if slot.operation.name == "div" and slot.position == 1 else 1.0
    one, two = (run_with_constants(gap.b, [(slot, slot.value * scale**power)]) for scale in (1.0, 2.0))
    if any(v is None or np.shape(v) != gap.value_a.shape for v in (one, two)):
        return None
    with np.errstate(all="ignore"):
        slope = np.asarray(two) - one
        scale = 1 + np.vdot(slope, gap.value_a - one).real / np.vdot(slope, slope).real
    if not np.isfinite(scale) or abs(scale) < FARTHEST.norm or abs(scale - 1) < FARTHEST.norm:
        return None
    values = (slot.value * float(each) ** power for each in (scale, (1 + scale) / 2))
    value, between = (run_with_constants(gap.b, [(slot, each)]) for each in values)
    if not is_a(gap, value) or between is None:
        return None
    # a number that is rounded to an index, as a quantile's, can turn any value into another
    linear = distance((one + value) / 2, np.asarray(between)) <= FARTHEST.norm
    return 1 / float(scale) if linear else None
