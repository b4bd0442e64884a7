"""Rows of a value that are averaged, added, compared or taken alone: pooling, the mean of two heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from parity.verifier.causes.cause import Cause, Said
from parity.verifier.search.exchange import is_a, is_b, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found

LARGEST = 1 << 22
"""Most elements of a value whose rows are tried."""
MOST_STARTS = 9
"""How many first rows are tried as the beginning of a reduction."""
_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "mean": np.mean, "sum": np.sum, "largest": np.max, "smallest": np.min
}  # fmt: skip


def judge(found: Found, _: Index) -> Said | None:
    """Recognise another reduction of the same rows, or one of other rows."""
    shape = tuple(n for n in found.value.shape if n > 1)
    if found.value.dtype.kind != "f":
        return None
    for region in (found.b, found.a):
        for x in region.program.values(outside(region)).values():
            x = np.asarray(x)
            if x.dtype.kind != "f" or not found.value.size < x.size <= LARGEST:
                continue
            for axis, n in enumerate(x.shape):
                if n > 1 and tuple(m for i, m in enumerate(x.shape) if i != axis and m > 1) == shape:
                    said = _explained(found, x, axis)
                    if said is not None:
                        return "reduction", said
    return None


def _explained(found: Found, x: np.ndarray, axis: int) -> str | None:
    of_a, of_b = [], []
    for said, value in _reduced(x, axis):
        value = value.reshape(found.value.shape)
        of_a += [said] if is_a(found, value) else []
        of_b += [said] if is_b(found, value) else []
    if len(of_a) != 1 or len(of_b) != 1:
        return None
    return f"{of_b[0]} of axis {axis} of {list(x.shape)} where A has {of_a[0]}"


def _reduced(x: np.ndarray, axis: int) -> Iterator[tuple[str, np.ndarray]]:
    rows = np.moveaxis(x, axis, 0)
    for start in range(min(len(rows) - 1, MOST_STARTS)):
        which = f"rows {start} to {len(rows) - 1}" if start else "all rows"
        for name, reduce in _KINDS.items():
            yield f"the {name} of {which}", reduce(rows[start:], axis=0)
    for i, row in enumerate(rows[:64]):
        yield f"row {i}", row


CAUSES = (
    Cause(
        "reduction",
        "B takes the mean, sum or extreme of other rows, or another of these.",
        judge,
        "(x @ w).mean(1) @ v",
        "(x @ w)[:, 1:].mean(1) @ v",
    ),
)
