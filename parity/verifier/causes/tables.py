"""Tables that a program makes for itself, such as indices of relative positions, with other numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice, permutations, product

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.factors import ratio_of
from parity.verifier.causes.masks import SHUT
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.constants import constants_of
from parity.verifier.search.exchange import find_differing
from parity.verifier.search.layouts import arrangements, long_axes
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region, before_of, computing_with

LEAST = 8
"""Fewest numbers of a table."""
MOST_TABLES = 4
"""Most tables of one shape that are exchanged together."""
MOST_TRIALS = 12


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise two constants of one size, and show where they first differ."""
    a, b = _made(gap.a), _made(gap.b)
    if a is None or b is None:
        return None
    return _explain(gap.value_a, gap.value_b)


def _explain(value_a: np.ndarray, value_b: np.ndarray, names: str = "") -> Explanation | None:
    if value_a.shape != value_b.shape or value_a.size < 2:
        return None
    apart = np.argwhere(find_differing(value_a, value_b))
    if not len(apart):
        return None
    if value_a.ndim == 2 and np.array_equal(value_a.T, value_b):
        return "table", f"its numbers {names}are A's, transposed"
    first = tuple(map(int, apart[0]))
    start = f"{len(apart)} of {value_a.size} numbers {names}are others: at {list(first)}"
    return "table", f"{start} {value_b[first]:.10g} where A has {value_a[first]:.10g}"


def _made(region: Region) -> Operation | None:
    """Return the constant, moved at most, that a region's value is; None if it is computed."""
    op = region.program.maker(region.end)
    return op if op.kind == "constant" else None


def tables_with_other_numbers(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield tables of B's that, all exchanged at once for A's, mend B: cosines and sines, which no
    exchange of one of them mends; B is then patched with A's."""
    now = search.round()
    if now is None:
        return
    index = Index(search.b)
    of_a = [op for op in tables_of(search.a) if op.dtype[:3] != "flo" or not index.meets(op)]
    of_b = [op for op in tables_of(search.b) if op.dtype[:3] != "flo" or not search.index.meets(op)]
    of_a, of_b = _unequal(search, of_a, of_b)
    made = frozenset(id(op) for op in of_a if _is_made_outside(search.a, op))
    made |= frozenset(id(op) for op in of_b if _is_made_outside(search.b, op))
    for pairs in islice(_pairings(of_a, of_b, made), MOST_TRIALS):
        given = _given(search, pairs)
        if given is None:
            continue
        fed = search.b.fed(given, {})
        left = search.round(fed)
        if left is not None and len(left.unmet_b) >= len(now.unmet_b):
            continue
        if not all(_goes_on(search, fed, b) for _, b in pairs):
            continue
        a, b = pairs[0]
        gap = Gap(
            _region(search.a, a), _region(search.b, b), given[b.index],
            np.asarray(search.b.values([b.index])[b.index]), repaired=fed,
        )  # fmt: skip
        names = " and ".join(dict.fromkeys(each.label for _, each in pairs if each.label != "constant"))
        count = f", and {len(pairs) - 1} more such table" + "s" * (len(pairs) > 2)
        said = _explain(gap.value_a, gap.value_b, f"of {names} " if names else "")
        if said is None or ratio_of(gap) is not None:
            continue
        search.b = fed
        yield gap, (said[0], said[1] + (count if len(pairs) > 1 and not names else ""))
        return


def _unequal(
    search: Search, of_a: list[Operation], of_b: list[Operation]
) -> tuple[list[Operation], list[Operation]]:
    """Leave out the tables of whole numbers that both have, number by number."""
    values = [
        {op.index: _numbers(program, op) for op in some if op.dtype[:3] != "flo"}
        for program, some in ((search.a, of_a), (search.b, of_b))
    ]
    both = {numbers for numbers in values[0].values() if numbers in values[1].values()}
    first, second = (
        [op for op in some if mine.get(op.index) not in both]
        for some, mine in zip((of_a, of_b), values, strict=True)
    )
    return first, second


def _numbers(program: Program, op: Operation) -> bytes:
    return np.asarray(program.values([op.index])[op.index]).astype(np.int64).tobytes()


def tables_of(program: Program) -> list[Operation]:
    """Return the tables that what depends on the input reads: constants, buffers and what is computed of
    constants alone."""
    fixed = constants_of(program)
    fixed |= {op.index for op in program.operations if op.kind == "parameter"}
    read: dict[int, Operation] = {}
    for op in program.operations:
        for i in op.inputs if op.index not in fixed and not op.is_layout else ():
            table = program.maker(i)
            if table.index in fixed and _is_table(program, table):
                read[table.index] = table
    return list(read.values())


def _is_table(program: Program, op: Operation) -> bool:
    if op.size < LEAST or op.mark is None:
        return False
    value = program.values([op.index])[op.index]
    if op.dtype[:3] in ("int", "uin"):
        return long_axes(op.shape) != (op.size,) and np.unique(value).size > LEAST
    if op.dtype[:3] != "flo" or is_weak(op):
        return False
    return bool(np.isfinite(value).all() and np.abs(value).max() < SHUT)


def _is_made_outside(program: Program, table: Operation) -> bool:
    """Return whether a table is a constant, or computed from one, as the cosines of angles are."""
    before = (program.operations[i] for i in before_of(program, table.index, constants_of(program)))
    return any(op.kind == "constant" and op.size >= LEAST for op in before)


def _pairings(
    of_a: list[Operation], of_b: list[Operation], made: Collection[int]
) -> Iterator[list[tuple[Operation, Operation]]]:
    """Yield ways to pair all tables of B's with as many of A's, of the same shapes; one side of each
    pair was made outside of the program, those in `made` by identity."""
    shapes = {long_axes(op.shape) for op in of_b}
    groups = []
    for shape in shapes:
        mine, theirs = ([op for op in side if long_axes(op.shape) == shape] for side in (of_a, of_b))
        if not 0 < len(theirs) <= len(mine) <= MOST_TABLES:
            continue
        groups.append(
            [list(zip(order, theirs, strict=True)) for order in permutations(mine, len(theirs))]
        )
    for choice in product(*groups):
        pairs = [pair for group in choice for pair in group]
        whole = all((a.dtype[:3] == "flo") == (b.dtype[:3] == "flo") for a, b in pairs)
        if pairs and whole and all(id(a) in made or id(b) in made for a, b in pairs):
            yield pairs


def _given(search: Search, pairs: list[tuple[Operation, Operation]]) -> Mapping[int, np.ndarray] | None:
    given = {}
    for a, b in pairs:
        value = np.asarray(search.a.values([a.index])[a.index])
        own = search.b.values([b.index])[b.index]
        arrangement = next(iter(arrangements(value, b.shape)), None)
        if arrangement is None or np.allclose(arrangement, own, rtol=CERTAIN, atol=CERTAIN):
            return None
        given[b.index] = arrangement.astype(own.dtype)
    return given


def _goes_on(search: Search, fed: Program, table: Operation) -> bool:
    """Return whether what is first computed of a table is A's, once it has A's numbers."""
    readers = computing_with(fed, table.index, fed.consumers())
    if table.dtype[:3] != "flo":  # it chooses rows
        readers = [each for i in readers for each in computing_with(fed, i, fed.consumers())]
    return any(search.index.meets(fed.operations[i]) for i in readers)


def _region(program: Program, table: Operation) -> Region:
    inside = before_of(program, table.index, constants_of(program))
    operations = [i for i in inside if program.operations[i].run is not None]
    readers = computing_with(program, table.index, program.consumers())
    return Region(program, table.index, operations, readers[:1])


CAUSES = (
    Cause(
        "table",
        "A table of constants has other numbers.",
        judge,
        "x @ w + table",
        "x @ w + other_table",
    ),
)
