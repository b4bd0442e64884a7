"""Tables that a program makes for itself, such as indices of relative positions, with other numbers."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Cause, Said
from parity.verifier.programs.operation import Operation
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found, Region


def judge(found: Found, _: Index) -> Said | None:
    """Recognise two constants of one size, and show where they first differ."""
    a, b = _made(found.a), _made(found.b)
    if a is None or b is None or found.value.shape != found.instead.shape or found.value.size < 2:
        return None
    apart = np.argwhere(~np.isclose(found.value, found.instead, rtol=1e-9, atol=1e-12))
    if not len(apart):
        return None
    first = tuple(map(int, apart[0]))
    said = f"{len(apart)} of {found.value.size} numbers are others: at {list(first)}"
    return "table", f"{said} {found.instead[first]:.10g} where A has {found.value[first]:.10g}"


def _made(region: Region) -> Operation | None:
    """Return the constant, moved at most, that a region's value is; None if it is computed."""
    op = region.program.operations[region.end]
    while op.is_layout and op.inputs:
        op = region.program.operations[op.inputs[0]]
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
