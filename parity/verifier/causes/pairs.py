"""Rotary positions that turn other pairs of channels: neighbours, or the two halves."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.exchange import closer_moved, computing, from_input, outside, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise B's value as that of A's operations on reordered channels, in which halves are
    neighbours, or neighbours halves."""
    names = [op.name for op in computing(gap.a)]
    if names.count("mul") < 2 and "neg" not in names:
        return None  # by cosines and by sines: what turns nothing is another order of the same
    read = gap.a.program.values([i for i in outside(gap.a) if from_input(gap.a, i)])
    for n in sorted({np.shape(v)[-1] for v in read.values() if np.ndim(v) > 1}):
        if n % 2 or n < 4:
            continue
        meshed = np.arange(n).reshape(2, -1).T.ravel()  # 0, n/2, 1, n/2 + 1, ...
        for order, of_a, of_b in (
            (meshed, "neighbours", "the two halves"),
            (np.argsort(meshed), "the two halves", "neighbours"),
        ):
            given = {i: v[..., order] for i, v in read.items() if np.ndim(v) > 1 and v.shape[-1] == n}
            value = rerun(gap.a, given=given)
            if value is None:
                continue
            for axis in (i for i, size in enumerate(value.shape) if size == n):
                back = np.take(value, np.argsort(order), axis)
                if closer_moved(gap.value_b, back, gap.error):
                    said = f"{of_b} of {n} channels where A turns {of_a}"
                    if "mul" not in names:  # cosines and sines are A's
                        return "axis split the other way round", f"{said}, by A's sines"
                    return "rotary pairs", said
    return None


CAUSES = (
    Cause(
        "rotary pairs",
        "Rotary positions turn other pairs of channels: neighbours, or the two halves.",
        judge,
        "turned_neighbours(x @ w) @ v",
        "turned_halves(x @ w) @ v",
    ),
)
