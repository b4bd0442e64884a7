"""Masks of scores that differ, or that one side alone has."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import computing, from_input, grain, is_a, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap

SHUT = 1e3
"""Size from which a negative score is shut: its exponential is zero in float64, which ends at that of
-745, beside any score above -255."""
LARGEST = 96
"""Largest region, in operations, that is run again."""


def diagonal(gap: Gap, _: Index) -> Explanation | None:
    """Recognise triangles of truth values that end at different diagonals."""
    a, b = gap.value_a, gap.value_b
    if a.dtype != bool or a.shape != b.shape or a.ndim < 2:
        return None
    of_a, of_b = _diagonal(a), _diagonal(b)
    if of_a is None or of_b is None or of_a[1] != of_b[1]:
        return None
    return "causal mask", f"it ends at diagonal {of_b[0]} where A's ends at {of_a[0]}"


def written(gap: Gap, index: Index) -> Explanation | None:
    """Recognise masks that both programs make for themselves, and that differ."""
    if any(from_input(region, region.end) for region in (gap.a, gap.b)):
        return None  # what is computed of data may be in another order, as the data is
    return truth(gap, index)


def truth(gap: Gap, _: Index) -> Explanation | None:
    """Recognise truth values, as of tokens that are kept, that differ."""
    a, b = gap.value_a, gap.value_b
    if a.dtype != bool or b.dtype != bool or a.shape != b.shape:
        return None
    message = _related(a, b)
    return "mask", message or f"{(a != b).sum()} of {a.size} truth values are others than A's"


def _related(a: np.ndarray, b: np.ndarray) -> str:
    """Say how a mask of B's is made of A's; empty where it is not."""
    if (a != b).all():
        return "it shuts what A keeps, and keeps what A shuts"
    if a.ndim > 1 and a.shape[-1] == a.shape[-2] and np.array_equal(a, b.swapaxes(-1, -2)):
        return "it is A's, transposed"
    return ""


def _diagonal(mask: np.ndarray) -> tuple[int, bool] | None:
    """Return the last diagonal of a lower triangle, and whether the triangle is what is true."""
    n, m = mask.shape[-2:]
    rows = mask[(0,) * (mask.ndim - 2)]
    for k in range(-n, m):
        lower = np.tri(n, m, k, dtype=bool)
        if np.array_equal(rows, lower) or np.array_equal(rows, ~lower):
            return (k, bool(rows[-1, 0])) if (mask == rows).all() else None
    return None


def _shut_later(gap: Gap) -> np.ndarray | None:
    """Return the elements that B masks where it reads the value, if it computes nothing before."""
    if gap.b.operations:
        return None
    for value in gap.b.program.values(gap.b.readers).values():
        if np.shape(value) == gap.value_b.shape and (value < -SHUT).any():
            return value < -SHUT
    return None


def _others(of_a: np.ndarray, of_b: np.ndarray) -> Explanation:
    """Name the difference of two masks that shut different elements."""
    ends = _diagonal(of_a), _diagonal(of_b)
    if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
        return "mask", _related(of_a, of_b) or "it shuts other elements than A's"
    return "causal mask", f"it ends at diagonal {ends[1][0]} where A's ends at {ends[0][0]}"


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise scores that are masked on one side only, or at other elements."""
    a, b = gap.value_a, gap.value_b
    if a.ndim < 2 or a.dtype.kind != "f":
        return None
    shut_a, shut_b = a < -SHUT, b < -SHUT
    if shut_a.any() and not shut_b.any() and (later := _shut_later(gap)) is not None:
        return _others(shut_a, later)
    if shut_a.any() and shut_b.any():
        seen = ~(shut_a | shut_b)
        equal = not seen.any() or distance(a[seen], b[seen]) <= grain(gap)
        return _others(shut_a, shut_b) if equal and not np.array_equal(shut_a, shut_b) else None
    if a.shape[-1] != a.shape[-2]:
        return None
    if np.array_equal(shut_a, shut_b) or (max(a.max(), b.max()) > SHUT):
        return None
    shut, one, other = (shut_a, a, b) if shut_a.any() else (shut_b, b, a)
    if distance(np.where(shut, 0, one), np.where(shut, 0, other)) > grain(gap):
        return None
    if np.ptp(other[shut]) == 0:  # behind the same mask, which puts another number there
        return None
    future = ~np.tri(a.shape[-1], dtype=bool)
    name = "causal mask" if np.array_equal(shut, np.broadcast_to(future, shut.shape)) else "mask"
    return name, "only A has it" if shut_a.any() else "only B has it"


def padded(gap: Gap, _: Index) -> Explanation | None:
    """Recognise scores of padding that B does not shut: all that are zero along an axis."""
    program, changed, where = gap.b.program, {}, ""
    if len(gap.b.operations) > LARGEST or not any(op.name == "exp" for op in computing(gap.b)):
        return None
    for op in (op for op in computing(gap.b) if op.name == "matmul"):
        value = np.asarray(program.values([op.index])[op.index])
        for axis in range(value.ndim - 1, 0, -1):
            rows = (value == 0).all(tuple(i for i in range(value.ndim) if i != axis))
            if rows.any() and not rows.all():
                shut = rows.reshape(-1, *(1,) * (value.ndim - 1 - axis))
                changed[op.index] = np.where(shut, -np.inf, value)
                where = (
                    f"{np.count_nonzero(rows)} of {len(rows)} along axis {axis} of {list(value.shape)}"
                )
                break
    if changed and is_a(gap, rerun(gap.b, given=changed)):
        return "mask", f"it does not shut the scores of padding, which are zero: {where}"
    return None


CAUSES = (
    Cause(
        "mask",
        "Scores are masked on one side only, or at other elements.",
        judge,
        "nn.softmax(jnp.where(jnp.arange(5) < 4, x @ x.mT, -1e9)) @ x",
        "nn.softmax(x @ x.mT) @ x",
    ),
    Cause(
        "causal mask",
        "A causal mask is on one side only, or ends at another diagonal.",
        judge,
        "nn.softmax(jnp.where(jnp.tri(5, dtype=bool), x @ x.mT, -1e9)) @ x",
        "nn.softmax(jnp.where(jnp.tri(5, k=1, dtype=bool), x @ x.mT, -1e9)) @ x",
    ),
)
