"""Reductions over other rows, or of another kind (mean, sum, maximum, one row): pooling, two heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.exchange import closer, is_a, is_b, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 1 << 22
"""Most elements of a value whose rows are tried."""
MOST_VALUES = 12
"""How many values of a region are tried as what is averaged, and as its weights."""
MOST_STARTS = 9
"""How many first rows are tried as the beginning of a reduction."""
_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "mean": np.mean, "sum": np.sum, "largest": np.max, "smallest": np.min
}  # fmt: skip


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise another reduction of the same rows, or one of other rows."""
    shape = tuple(n for n in gap.value_a.shape if n > 1)
    if gap.value_a.dtype.kind != "f":
        return None
    weighted = _weighted(gap, gap.a, gap.value_b) or _weighted(gap, gap.b, gap.value_a)
    if weighted is not None:
        return weighted
    for region in (gap.b, gap.a):
        for x in region.program.values(outside(region)).values():
            x = np.asarray(0 if isinstance(x, tuple) else x)
            if x.dtype.kind != "f" or not gap.value_a.size < x.size <= LARGEST:
                continue
            for axis, n in enumerate(x.shape):
                if n > 1 and tuple(m for i, m in enumerate(x.shape) if i != axis and m > 1) == shape:
                    message = _explained(gap, x, axis)
                    if message is not None:
                        return "reduction", message
    return None


def _weighted(gap: Gap, region: Region, plain: np.ndarray) -> Explanation | None:
    """Recognise a mean of all numbers in the place of a region's mean of some, as of masked patches."""
    known = region.program.values([*outside(region), *region.operations]).values()
    arrays = [v for v in known if isinstance(v, np.ndarray) and v.dtype.kind in "fb"]
    values = [v.astype(float) for v in arrays if 1 < v.size <= LARGEST][:MOST_VALUES]
    own = gap.value_a if region is gap.a else gap.value_b
    masks = [v for v in values if np.isin(v, (0, 1)).all() and v.any()]
    for x, w in product(values, masks):
        if x.shape != w.shape or x is w:
            continue
        for axis in (None, *range(x.ndim)):
            with np.errstate(all="ignore"):
                some, all_ = (x * w).sum(axis) / w.sum(axis), x.mean(axis)
            if np.size(some) == own.size and all(
                closer(wanted, np.reshape(value, wanted.shape), gap.error)
                for wanted, value in ((own, some), (plain, all_))
            ):
                means = [f"the mean of {list(x.shape)}", "that of the numbers that a mask keeps"]
                means = means if region is gap.a else means[::-1]
                return "reduction", f"{means[0]} where A has {means[1]}"
    return None


def _explained(gap: Gap, x: np.ndarray, axis: int) -> str | None:
    of_a, of_b = [], []
    for name, value in _reduced(x, axis):
        value = value.reshape(gap.value_a.shape)
        of_a += [name] if is_a(gap, value) else []
        of_b += [name] if is_b(gap, value) else []
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
