"""Values of B that hold A's numbers in another order."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np

from parity.measure.nearness import LEAST
from parity.measure.nearness import MOST as FARTHEST
from parity.measure.shown import first_few
from parity.verifier.causes import splits
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import is_a, is_b, same
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 1 << 20
"""Most elements of a value whose orders are tried."""
LONGEST = 64
"""Longest axis whose order of rows is told."""
STEPS = 6
"""Operations before the end within which the axes of values are tried in another order."""


def judge(gap: Gap, index: Index) -> Explanation | None:
    """Name the order in which B holds A's numbers."""
    ends = gap.a.program.operations[gap.a.end], gap.b.program.operations[gap.b.end]
    b = gap.value_b
    if not (gap.traced or same(*ends, index)) or b.size > LARGEST:
        return None
    for axis in range(b.ndim):
        if is_a(gap, np.flip(b, axis)):
            return "reversed", f"axis {axis} of {list(b.shape)} runs backwards"
    shifted = _shifted(gap)
    if shifted is not None:
        return shifted
    for i in range(b.ndim):
        for j in range(i + 1, b.ndim):
            if is_a(gap, b.swapaxes(i, j)):
                return "transposed", f"axes {i} and {j} of {list(b.shape)} exchanged"
    for pair in combinations(range(b.ndim), 2):
        if is_a(gap, np.flip(b, pair)):
            return "reversed", f"axes {pair[0]} and {pair[1]} of {list(b.shape)} run backwards"
    for axis in range(b.ndim):
        explanation = _along(gap, b, axis)
        if explanation is not None:
            return explanation
    moved = _moved(gap, index)
    explanation = moved if moved and moved[0] != "transposed" else splits.judge(gap, index) or moved
    return explanation or _permuted(gap)


def _permuted(gap: Gap) -> Explanation | None:
    """Recognise the rows along one axis in another order."""
    a, b = gap.value_a, gap.value_b
    if a.shape != b.shape:
        return None
    for axis, n in enumerate(b.shape):
        if not 2 < n <= LONGEST:
            continue
        sums = (
            each.reshape(n, -1).sum(1) for each in (np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0))
        )
        rank_a, rank_b = (np.argsort(each) for each in sums)
        rows = np.empty(n, int)
        rows[rank_a] = rank_b
        if is_a(gap, np.take(b, rows, axis)):
            order = first_few(np.argsort(rows).tolist(), 8)
            return "permuted", f"axis {axis} of {list(b.shape)} has A's rows in the order {order}"
    return _permuted_in_each(gap) if b.ndim > 2 else None


def repeated(gap: Gap, _: Index) -> Explanation | None:
    """Recognise the rows of A's value along one axis, some of which B has twice, and others not."""
    a, b = gap.value_a, gap.value_b
    if a.shape != b.shape or a.dtype.kind != "f" or b.size > LARGEST:
        return None
    for axis, n in enumerate(b.shape):
        if not 2 < n <= LONGEST or b.size == n:
            continue
        rows = rows_of(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0))
        if rows is not None and len(set(rows)) < n:
            held, at = (
                f"axis {axis} of {list(b.shape)}",
                next(i for i, row in enumerate(rows) if i != row),
            )
            return "index", f"row {at} of {held} is A's row {rows[at]}; B lacks A's {_lacking(rows, n)}"
    return None


def rows_of(a: np.ndarray, b: np.ndarray) -> list[int] | None:
    """Return which of A's rows each of B's is; None where one is none of them, or several."""
    rows = []
    for row in b:
        equal = [i for i, each in enumerate(a) if distance(each, row) <= LEAST.norm]
        if len(equal) != 1:
            return None
        rows += equal
    return rows


def _lacking(rows: list[int], n: int) -> str:
    lacking = [i for i in range(n) if i not in rows]
    return f"row{'s' * (len(lacking) > 1)} {', '.join(map(str, lacking[:8]))}"


def _permuted_in_each(gap: Gap) -> Explanation | None:
    """Recognise the rows of each sample in an order of its own, as of shuffled tokens."""
    a, b = gap.value_a, gap.value_b
    ranks = [np.argsort(each.reshape(*each.shape[:2], -1).sum(-1), 1) for each in (a, b)]
    rows = np.empty_like(ranks[0])
    np.put_along_axis(rows, ranks[0], ranks[1], 1)
    back = np.take_along_axis(b, rows.reshape(*rows.shape, *(1,) * (b.ndim - 2)), 1)
    message = f"axis 1 of {list(b.shape)} has A's rows in an order of its own for each of axis 0"
    return ("permuted", message) if is_a(gap, back) else None


def _shifted(gap: Gap) -> Explanation | None:
    """Recognise elements rolled along axes, by the shift at which A and B correlate most."""
    a, b = gap.value_a, gap.value_b
    if a.shape != b.shape or a.dtype.kind != "f":
        return None
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return None
    correlation = np.fft.ifftn(np.fft.fftn(a) * np.conj(np.fft.fftn(b))).real
    # where an array repeats itself, so do its shifts: the one along the fewest axes
    least = correlation.max() - FARTHEST.norm * np.abs(correlation).max()
    best = np.argwhere(correlation >= least)[:LONGEST]
    shift = min(best.tolist(), key=np.count_nonzero) if len(best) else []
    axes = [axis for axis, n in enumerate(shift) if n]
    if not axes or not is_a(gap, np.roll(b, [shift[i] for i in axes], axes)):
        return None
    if len(axes) > 1:
        message = " and ".join(f"axis {i} by {shift[i]}" for i in axes)
        return "shifted", f"of {list(b.shape)} {message}"
    n, by = b.shape[axes[0]], shift[axes[0]]
    if 2 * by == n and n > 2:
        return "halves exchanged", f"axis {axes[0]} of {list(b.shape)} has its halves exchanged"
    return "shifted", f"axis {axes[0]} of {list(b.shape)} is shifted by {by}"


def _along(gap: Gap, b: np.ndarray, axis: int) -> Explanation | None:
    n = b.shape[axis]
    for split in (k for k in range(2, n) if n % k == 0):
        parts = b.reshape(*b.shape[:axis], split, -1, *b.shape[axis + 1 :])
        if is_a(gap, parts.swapaxes(axis, axis + 1).reshape(b.shape)):
            return "axis split the other way round", f"{n} = {split} x {n // split}"
    return None


def _moved(gap: Gap, index: Index) -> Explanation | None:
    """Recognise two reshapes of one value, with its axes in two orders."""
    end = gap.b.program.operations[gap.b.end]
    partners = (index.program.values([each.index])[each.index] for each in index.meets(end))
    tried = set()
    for source in (*_sources(gap.b), *_sources(gap.a), *partners):
        source = np.asarray(source).squeeze()
        if source.size != gap.value_b.size or source.ndim > 6 or source.shape in tried:
            continue
        tried.add(source.shape)
        orders = list(permutations(range(source.ndim)))
        of_a = next((o for o in orders if is_a(gap, _as(source, o, gap.value_a.shape))), None)
        of_b = next((o for o in orders if is_b(gap, _as(source, o, gap.value_b.shape))), None)
        if of_a is not None and of_b is not None:
            plain = of_b == tuple(range(source.ndim))
            name = "reshaped without moving axes" if plain else "transposed"
            return name, f"axes {list(of_b)} of {list(source.shape)} where A has {list(of_a)}"
    return None


def _as(source: np.ndarray, order: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    return source.transpose(order).reshape(shape)


def _sources(region: Region) -> list[np.ndarray]:
    """Return the values that moves alone turn into a region's end, the nearest first."""
    sources, index = [], region.end
    for _ in range(STEPS):
        op = region.program.operations[index]
        moves = op.is_layout or op.name in ("concat", "stack", "slice", "split", "unfold")
        if not moves or len(op.inputs) != 1:
            break
        index = op.inputs[0]
        value = region.program.values([index])[index]
        if isinstance(value, np.ndarray):
            sources.append(value)
    return sources


CAUSES = (
    Cause(
        "reversed",
        "B takes an axis, or the steps of a loop, backwards.",
        judge,
        "jnp.tanh(x @ w)",
        "jnp.tanh(x[..., ::-1] @ w)",
    ),
    Cause(
        "shifted",
        "B's elements are shifted along an axis.",
        judge,
        "jnp.tanh(jnp.roll(x @ w, 1, 1)) @ v + x",
        "jnp.tanh(jnp.roll(x @ w, -1, 1)) @ v + x",
    ),
    Cause(
        "halves exchanged",
        "Both halves of an axis have changed places.",
        judge,
        "nn.silu(x @ w) @ v",
        "jnp.concatenate([nn.silu(x @ w[:, 3:]), nn.silu(x @ w[:, :3])], -1) @ v",
    ),
    Cause(
        "transposed",
        "Axes are exchanged, those of a parameter too.",
        judge,
        "x @ w",
        "x @ w.T",
    ),
    Cause(
        "axis split the other way round",
        "B splits an axis into inner times outer, A into outer times inner.",
        judge,
        "jnp.tanh(x @ w) @ v",
        "jnp.tanh((x @ w).reshape(2, 5, 3, 2).mT.reshape(2, 5, 6)) @ v",
    ),
    Cause(
        "reshaped without moving axes",
        "B reshapes a value without the transposition that A does first.",
        judge,
        "(x @ w).reshape(2, 5, 2, 3).swapaxes(1, 2).reshape(2, 5, 6) @ v",
        "(x @ w).reshape(2, 2, 5, 3).reshape(2, 5, 6) @ v",
    ),
    Cause(
        "permuted",
        "B has A's rows of an axis in another order.",
        judge,
        "x[:, jnp.array([2, 0, 1, 4, 3])] @ w + table",
        "x @ w + table",
    ),
)
