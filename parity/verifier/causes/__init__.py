"""Names for what went wrong at a place, found by exchanging one thing in its small regions.

Each name stands for one exchange, and is given only if that exchange turns B's value into A's,
downstream of which everything is known to meet. A fault that fits no exchange has no name.
"""

from __future__ import annotations

import numpy as np

from parity.verifier.causes import (
    activations,
    attended,
    branches,
    collectives,
    epsilons,
    exchanged,
    factors,
    masks,
    norms,
    numbers,
    operands,
    operators,
    order,
    pairs,
    pooling,
    reads,
    reductions,
    rescaled,
    residual_order,
    rounded,
    several,
    skips,
    slopes,
    splits,
    statistics,
    steps,
    tables,
    terms,
    windows,
)
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.instead import may_be_another
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap
from parity.verifier.search.widened import widened

_FILES = (activations, attended, collectives, epsilons, masks, norms, numbers, factors, operands,
          operators, order, pairs, pooling, reads, reductions, residual_order, rounded, skips, slopes,
          statistics, steps, tables, windows)  # fmt: skip
CAUSES: tuple[Cause, ...] = tuple(cause for file in _FILES for cause in file.CAUSES)
"""Every cause that a place may be given. Operations that one side alone has on some rows are called "of
a part"."""

_JUDGES = (
    slopes.nothing,
    numbers.judge,
    epsilons.judge,
    activations.judge,
    masks.judge,
    masks.padded,
    statistics.judge,
    statistics.moments,
    statistics.mean_off,
    pooling.judge,
    skips.not_updated,
    residual_order.judge,
    skips.judge,
    order.judge,
    splits.judge,
    reads.row,
    reads.rows,
    order.repeated,
    windows.judge,
    operators.judge,
    reads.operand,
    reads.operand_of_a,
    operators.axes,
    factors.judge,
    skips.too_many_of_a_part,
    slopes.judge,
    reductions.judge,
    terms.judge,
    terms.weights,
    terms.orders,
    steps.judge,
    rounded.judge,
    operands.exchanged,
    exchanged.judge,
    operands.moved,
    tables.judge,
    attended.judge,
    several.judge,
    rescaled.judge,
    pairs.judge,
)
"""The judges, from those that say most to those that say least."""


def cause_of(gap: Gap, index: Index) -> Explanation:
    """Return the first cause that explains a place, or two empty strings."""
    if gap.value_b.dtype.kind not in "fc":
        judges = (masks.diagonal, masks.written, numbers.judge, order.judge, operators.judge,
                  tables.judge, masks.truth, reads.indices)  # fmt: skip
        return next(filter(None, (judge(gap, index) for judge in judges)), ("", ""))
    read = reads.other_value(gap, index) or reads.returned(gap, index)
    if read is not None or (_are_signs(gap.value_a) and _are_signs(gap.value_b)):
        return read or ("", "")
    if gap.value_a.shape != gap.value_b.shape:
        return attended.judge(gap, index) or ("", "")
    explanation = _first(gap, index)
    if (
        explanation is not None
        and explanation[0] in _UNLESS_ANOTHER
        and may_be_another(gap, explanation[0], index)
    ):
        return "", ""
    if explanation is None and (wider := widened(gap, index)) is not None:
        explanation = _first(wider, index)
    return explanation or branches.judge(gap, index, _JUDGES) or ("", "")


_UNLESS_ANOTHER = ("left out", "norm left out", "scale left out")
"""Names that are not true where B has another operation in the place of A's."""


def _are_signs(value: np.ndarray) -> bool:
    """Return whether a value is one number with two signs: too little to tell what became of it."""
    sizes = np.abs(value[value != 0])
    return sizes.size > 1 and bool((sizes == sizes[0]).all() and value.min() < 0 < value.max())


def _first(gap: Gap, index: Index) -> Explanation | None:
    """Return what the first judge that explains a place says of it."""
    return next(filter(None, (judge(gap, index) for judge in _JUDGES)), None)


__all__ = ["CAUSES", "Cause", "Explanation", "cause_of"]
