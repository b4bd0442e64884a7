"""Search for leaves that are sums: a class token with its row of the position table added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import ml_dtypes
import numpy as np

from parity.verifier.match.fingerprint import common_type
from parity.verifier.match.leaves import Leaves
from parity.verifier.match.links import Sum


def sums(
    side: Literal["a", "b"],
    one: Leaves,
    rest: Sequence[str],
    other: Leaves,
    terms: Sequence[str],
    tables: Sequence[str],
) -> list[Sum]:
    """Find left-over leaves of one side that are a left-over leaf plus a row of a table of the other.

    Args:
        side: the side that `one` is.
        rest: the left-over leaves of `one`.
        terms: the left-over leaves of `other`.
        tables: those of `terms` that are partly matched, as the other rows of a position table are.
    """
    results = []
    for name in rest:
        size = one.size(name)
        wide = [t for t in tables if other.shapes[t][-1] == size < other.size(t)]
        for term in (t for t in terms if other.size(t) == size > 1):
            rows = [(t, row) for t in wide for row in _rows(one, name, other, term, t)]
            if len(rows) == 1:
                results.append(Sum(side, name, term, *rows[0]))
                break
    return results


def _rows(one: Leaves, name: str, other: Leaves, term: str, table: str) -> Iterable[int]:
    """Return the rows of a table that, added to a leaf, make another leaf, up to rounding of the sum."""
    kind = common_type(one.types[name], other.types[table])
    if kind is None or kind.kind in "iub":
        return ()
    total, first = (each.astype(np.float64).reshape(-1) for each in (one.load(name), other.load(term)))
    rows = other.load(table).astype(np.float64).reshape(-1, len(total))
    limit = 2 * float(ml_dtypes.finfo(kind).eps) * np.maximum(np.abs(rows), np.abs(first))
    return np.flatnonzero((np.abs(rows + first - total) <= limit).all(axis=1)).tolist()
