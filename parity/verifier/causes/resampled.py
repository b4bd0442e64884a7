"""Pictures and tables of positions that B resamples by other matrices than A's operation amounts to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.tables import tables_of
from parity.verifier.programs.fingerprint import distance, same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.constants import constants_of
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region, before_of
from parity.verifier.search.round import Round

KERNELS = {"a cubic kernel of -0.5": -0.5, "a cubic kernel of -0.75": -0.75}


def other_resampling(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield matrices of B's that, exchanged for those of a resampling of A's, mend B; B is then patched
    with A's."""
    now = search.round()
    if now is None:
        return
    for op in [search.a.operations[i] for i in sorted(now.unmet_a)]:
        matrices = _matrices(search.a, op) if op.name.startswith("upsample") else []
        given: dict[int, np.ndarray] = {}
        for table in tables_of(search.b) if matrices else ():
            own = np.asarray(search.b.values([table.index])[table.index])
            of_a = _in_place_of(own, matrices)
            if of_a is not None and not search.index.meets(table):
                given[table.index] = of_a
        gap = _gap(search, now, op, given) if given else None
        if gap is not None and gap.repaired is not None:
            first = next(iter(given))
            own = np.asarray(search.b.values([first])[first])
            search.b, left = gap.repaired, search.round(gap.repaired)
            yield gap, ("table", _explain(given[first], own))
            if left is None:
                return
            now = left


def _gap(search: Search, now: Round, op: Operation, given: dict[int, np.ndarray]) -> Gap | None:
    """Return the place at which B, with other matrices, has what A resamples; None where it has not."""
    fed = search.b.fed(given, {})
    left = search.round(fed)
    if op.mark is None or (left is not None and len(left.unmet_b) >= len(now.unmet_b)):
        return None
    mark, behind = op.mark, sorted(fed.behind(given))
    same_ones = (fed.operations[i] for i in behind if fed.operations[i].size == op.size)
    made = next((o for o in same_ones if o.mark is not None and same(o.mark, mark, o.near)), None)
    if made is None:
        return None
    own, value = (np.asarray(each.values([made.index])[made.index]) for each in (search.b, fed))
    fixed = constants_of(search.b)
    inside = [i for i in before_of(search.b, made.index, now.unmet_b) if i not in fixed]
    a = Region(search.a, op.index, [op.index])
    return Gap(a, Region(search.b, made.index, inside), value, own, repaired=fed)


def _matrices(program: Program, op: Operation) -> list[np.ndarray]:
    """Return the matrices that a resampling of two axes amounts to; none where there are no such."""
    if op.run is None or not op.inputs:
        return []
    shape = program.operations[op.inputs[0]].shape
    if len(shape) != 4:
        return []
    found = []
    for axis in (2, 3):
        probe = np.zeros((shape[axis], 1, *shape[2:]))
        for i in range(shape[axis]):
            np.moveaxis(probe[i], axis - 1, 0)[i] = 1
        try:
            made = np.asarray(op.run([probe, *op.operands[1:]]))
        except Exception:  # an operation of another kind
            return []
        found.append(np.take(made[:, 0], 0, axis=4 - axis).T)  # rows: new places
    return found


def _in_place_of(own: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray | None:
    """Return A's matrix in the layout of B's, the nearest of those of its shape."""
    near = [
        (distance(each, own), each)
        for matrix in matrices
        for each in arrangements(matrix, own.shape)
        if matrix.size == own.size
    ]
    return min(near, key=lambda each: each[0])[1] if near else None


def _explain(of_a: np.ndarray, own: np.ndarray) -> str:
    kinds = [_kind(each) for each in (own, of_a)]
    if all(kinds) and kinds[0] != kinds[1]:
        return f"it resamples by {kinds[0]}, A by {kinds[1]}"
    place = tuple(map(int, np.argwhere(~np.isclose(own, of_a))[0]))
    message = f"its matrix of resampling has {own[place]:.6g} at {list(place)}, A's {of_a[place]:.6g}"
    return f"{message}; A's is {kinds[1]}" if kinds[1] else message


def _kind(matrix: np.ndarray) -> str:
    """Name the kernel of a matrix."""
    for each in (matrix.squeeze(), matrix.squeeze().T):
        for name, a in KERNELS.items():
            for aligned in (False, True):
                if each.ndim == 2 and np.abs(_cubic(*each.shape, a, aligned) - each).max() <= CERTAIN:
                    return f"{name}{', corners aligned' * aligned}"
    return ""


def _cubic(m: int, n: int, a: float, aligned: bool) -> np.ndarray:
    """The matrix by which n numbers become m (Keys 1981), numbers outside being those at the ends."""
    matrix = np.zeros((m, n))
    for i in range(m):
        place = i * (n - 1) / max(m - 1, 1) if aligned else (i + 0.5) * n / m - 0.5
        for j in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            x = abs(place - j)
            near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
            matrix[i, min(max(j, 0), n - 1)] += near if x <= 1 else far if x < 2 else 0
    return matrix
