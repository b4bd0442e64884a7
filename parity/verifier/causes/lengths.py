"""Rows that B lacks, or has twice, where its values are longer or shorter than A's: no value of A's can
stand in their place, so nothing is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from parity.measure.shown import first_few
from parity.verifier.causes.order import LARGEST, LONGEST, rows_of
from parity.verifier.programs.operation import Operation
from parity.verifier.search.region import Gap, Region

STEPS = 6
"""Operations behind the first that part, among which one of another length is sought."""


def other_rows(gap: Gap) -> str:
    """Say which of A's rows B has, where one axis is longer or shorter; empty where it is not that."""
    for (of_a, a), (of_b, b) in product(_values(gap.a), _values(gap.b)):
        apart = [i for i, (n, m) in enumerate(zip(a.shape, b.shape, strict=False)) if n != m]
        if (
            of_a.name != of_b.name
            or a.ndim != b.ndim
            or len(apart) != 1
            or max(a.size, b.size) > LARGEST
        ):
            continue
        axis = apart[0]
        if max(a.shape[axis], b.shape[axis]) > LONGEST:
            continue
        a, b = (np.moveaxis(each, axis, 0) for each in (a, b))
        rows, reverse = rows_of(a, b), rows_of(b, a)
        if rows is None and reverse is None:
            continue
        start = f"axis {axis} of {list(of_b.shape)} has {len(b)} rows where A's has {len(a)}"
        return start if rows is None else f"{start}: A's rows {first_few(rows, 12)}"
    return ""


def _values(region: Region) -> Iterator[tuple[Operation, np.ndarray]]:
    """Yield the first values of a region that part, and those behind them."""
    program = region.program
    values = program.values([region.end, *region.behind(STEPS).operations])
    for i, value in values.items():
        op = program.operations[i]
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and op.run is not None:
            yield op, value
