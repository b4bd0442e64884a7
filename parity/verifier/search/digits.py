"""Values that are A's in exact arithmetic, but that B computes in a way that loses digits: a variance in
one pass, E[x^2] - E[x]^2, of numbers far from zero.

A nudge of all leaves shows it: it moves B's value much farther than A's, and the two values are no
farther apart than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import is_weak, size_of
from parity.verifier.search.nearness import movements
from parity.verifier.search.pairing import Outputs, Pairs
from parity.verifier.search.places import MOST, Search
from parity.verifier.search.region import Gap
from parity.verifier.search.round import Round
from parity.verifier.search.trials import Trial

TIMES = 16.0
"""How many times farther than A's value a nudge must move B's."""
BEYOND = 2.0
"""How many times farther from A's than A's own rounding explains an output must be."""
FARTHEST = 1e-6
"""Largest relative distance at which two values count as the same with lost digits: ten of sixteen lost.
Two other values agree so by chance in one of the seven numbers of a fingerprint, not in all."""


def loses_digits(a: Program, b: Program, pairs: Pairs) -> bool:
    """Return whether nothing but B's own sensitivity explains how far an output of B is from A's."""
    suspects = [(x, y) for x, y in pairs if _moved(b.operations[y]) >= TIMES * _moved(a.operations[x])]
    outputs = Outputs(a, b, suspects)
    return any(
        outputs.error((x, y), a.values([x])[x], b.values([y])[y]) > BEYOND * a.operations[x].near.norm
        for x, y in suspects
    )


def _moved(op: Operation) -> float:
    """Return the relative distance that rounding explains, however large it is."""
    size = size_of(op) if op.mark is not None else 0.0
    return max(op.near.norm, FACTOR * op.grain / size if size else 0.0)


def lost_digits(search: Search) -> Iterator[tuple[Gap, str]]:
    """Find the values of B that lose digits which A keeps, and put A's in their place.

    Yields:
        A place, and the message about it.
    """
    if not search.unequal():
        return
    limits = {index: FACTOR * each.norm for index, each in movements(search.b).items()}
    for _ in range(MOST):
        now = search.round()
        first = None if now is None else _first(now, limits)
        if first is None or first[0].repaired is None:
            return
        search.b = first[0].repaired
        yield first


def _first(now: Round, limits: Mapping[int, float]) -> tuple[Gap, str] | None:
    """Return the first value of B that is A's but for the digits that it loses."""
    for y in sorted(now.unmet_b):
        op, limit = now.b.operations[y], limits.get(y, 0.0)
        if op.mark is None or op.is_layout or is_weak(op) or not limit <= FARTHEST:
            continue
        for of_a in now.index.find(op.mark, close=limit):
            times = limit / of_a.near.norm
            if times < TIMES or of_a.size != op.size:
                continue
            value = now.a.values([of_a.index])[of_a.index]
            now.look_up([y])
            arrangement = min(
                arrangements(value, op.shape),
                key=lambda each: distance(each, now.window[y]),
                default=None,
            )
            apart = np.inf if arrangement is None else distance(arrangement, now.window[y])
            if arrangement is None or not BEYOND * of_a.near.norm < apart <= limit:
                continue
            repair = now.repair(Trial(of_a.index, y, np.ascontiguousarray(arrangement), ()), 1)
            if repair is not None:
                return now.gap(repair), f"rounding moves B's value {times:.0f} times as far as A's"
    return None
