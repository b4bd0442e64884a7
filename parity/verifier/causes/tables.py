"""Tables that a program makes for itself, such as indices of relative positions, with other numbers."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.operation import Operation
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise two constants of one size, and show where they first differ."""
    a, b = _made(gap.a), _made(gap.b)
    if a is None or b is None or gap.value_a.shape != gap.value_b.shape or gap.value_a.size < 2:
        return None
    apart = np.argwhere(~np.isclose(gap.value_a, gap.value_b, rtol=1e-9, atol=1e-12))
    if not len(apart):
        return None
    first = tuple(map(int, apart[0]))
    start = f"{len(apart)} of {gap.value_a.size} numbers are others: at {list(first)}"
    return "table", f"{start} {gap.value_b[first]:.10g} where A has {gap.value_a[first]:.10g}"


def _made(region: Region) -> Operation | None:
    """Return the constant, moved at most, that a region's value is; None if it is computed."""
    op = region.program.maker(region.end)
    return op if op.kind == "constant" else None


CAUSES = (
    Cause(
        "table",
        "A table of constants has other numbers.",
        judge,
        "x @ w + table",
        "x @ w + other_table",
    ),
)
