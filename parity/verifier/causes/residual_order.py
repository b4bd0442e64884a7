"""Branches that B adds in another order than A, and layers that one side alone has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.residual import Branch, added, chains, name_of
from parity.verifier.programs.fingerprint import distance, fingerprint
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import computing, from_input, outside, where
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region, before_of
from parity.verifier.search.round import Round

FEWEST = 2
"""Fewest products with parameters in a layer."""
MOST = 4
"""Most branches of a layer."""


def branches_in_another_order(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield each pair of branches that B adds in the other order, each layer that it leaves out between
    two others, and each that it computes once more; B is then patched with A's value there."""
    now = search.round()
    for chain in chains(search.a) if now is not None else ():
        index = Index(search.b)
        for i, x in enumerate([*(branch.read for branch in chain), chain[-1].sum]):
            assert now is not None
            rest, operations = chain[i:], search.a.operations
            if not _alike(index, operations[x]) or (rest and _alike(index, operations[rest[0].sum])):
                continue
            start = _value(search.a, x)
            for found in (
                _exchanged(search, index, rest[:2], start),
                _left_out(search, index, rest, start),
                _once_more(search, index, chain[:i], start, x),
            ):
                # behind the last layer, nothing of A's shows that B goes on from there
                last = found and found[0] == chain[-1].sum and found[3][0] == "layer left out"
                repaired = found and _repaired(search, now, *found[:3], whole=bool(last))
                if found and repaired:
                    gap, now = repaired
                    search.b = gap.repaired or search.b
                    index = Index(search.b)
                    yield gap, found[3]
                    break
            if now is None:
                return


_Found = tuple[int, Operation, np.ndarray, Explanation]
"""A's value, B's, what A's operations make of it in B's order, and what it is."""


def _exchanged(search: Search, index: Index, pair: list[Branch], start: np.ndarray) -> _Found | None:
    """Return the sum of two branches in the other order, if B has it."""
    if len(pair) < 2:
        return None
    first, second = pair
    middle = added(search.a, second, start)
    last = None if middle is None or not _at(index, middle) else added(search.a, first, middle)
    ends = _at(index, last)
    if last is None or not ends:
        return None
    names = [where(search.a.maker(each.end)) for each in pair]
    message = f"A adds that of {names[0]} first, B that of {names[1]}"
    return second.sum, ends[0], last, ("branches exchanged", message)


def _left_out(search: Search, index: Index, rest: list[Branch], start: np.ndarray) -> _Found | None:
    """Return the value at which B goes on with a later layer."""
    for i in range(2, len(rest) + 1):
        if i == len(rest) or (i <= MOST and _at(index, added(search.a, rest[i], start))):
            inside = [each for branch in rest[:i] for each in branch.operations]
            said = "layer left out", f"only A has {name_of(search.a, inside)}"
            return rest[i - 1].sum, _at(index, start)[0], start, said
    return None


def _once_more(
    search: Search, index: Index, before: list[Branch], start: np.ndarray, x: int
) -> _Found | None:
    """Return the value behind a layer of A's that B computes once more."""
    for i in range(2, min(len(before), MOST) + 1):
        value: np.ndarray | None = start
        for branch in before[-i:]:
            value = None if value is None else added(search.a, branch, value)
            value = value if _at(index, value) else None
        if value is not None:
            inside = [each for branch in before[-i:] for each in branch.operations]
            said = "one layer too many", f"B computes {name_of(search.a, inside)} once more"
            return x, _at(index, value)[0], value, said
    return None


def _repaired(
    search: Search, now: Round, x: int, y: Operation, exchanged: np.ndarray, *, whole: bool
) -> tuple[Gap, Round | None] | None:
    """Return the place at which B has what A's operations make in another order, and what is left to
    find once it has A's value there; None where that mends nothing, or not the `whole`."""
    own, wanted = np.asarray(search.b.values([y.index])[y.index]), _value(search.a, x)
    layouts = zip(arrangements(exchanged, own.shape), arrangements(wanted, own.shape), strict=False)
    value = next((value for each, value in layouts if distance(each, own) <= FARTHEST.norm), None)
    if value is None:
        return None
    fed = search.b.fed({y.index: value}, {})
    left = search.round(fed)
    if left is not None and (whole or len(left.unmet_b) >= len(now.unmet_b)):
        return None
    gap = Gap(
        Region(search.a, x, before_of(search.a, x, now.unmet_a)),
        Region(search.b, y.index, before_of(search.b, y.index, now.unmet_b)),
        value, own, repaired=fed,
    )  # fmt: skip
    if not gap.b.operations:
        gap.b.readers = [i for i in search.b.consumers()[y.index] if i in now.unmet_b]
    return gap, left


def _value(program: Program, i: int) -> np.ndarray:
    return np.asarray(program.values([i])[i])


def _at(index: Index, value: np.ndarray | None) -> list[Operation]:
    """Return the operations that have a value, in the order in which they run."""
    return [] if value is None else _marked(index, fingerprint(value), value.size)


def _alike(index: Index, op: Operation) -> list[Operation]:
    """Return the operations that have the value of the other program's."""
    return [] if op.mark is None else _marked(index, op.mark, op.size)


def _marked(index: Index, mark: np.ndarray, size: int) -> list[Operation]:
    return sorted((op for op in index.find(mark) if op.size == size), key=lambda op: op.index)


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise a layer that one side alone has: the other has what it reads in place of its value."""
    for region, other, wanted in ((gap.a, gap.b, gap.value_b), (gap.b, gap.a, gap.value_a)):
        if computing(other) or _products(region) < FEWEST:
            continue
        read = [i for i in outside(region) if from_input(region, i)]
        for i in read[:1] if len({region.program.maker(each).index for each in read}) == 1 else ():
            op = region.program.operations[i]
            if op.size != wanted.size or op.mark is None:
                continue
            layouts = arrangements(np.asarray(region.program.values([i])[i]), wanted.shape)
            if any(distance(wanted, each) <= FARTHEST.norm for each in layouts):
                name = name_of(region.program, region.operations)
                if region is gap.a:
                    return "layer left out", f"only A has {name}"
                return "one layer too many", f"only B has {name}"
    return None


def _products(region: Region) -> int:
    """Count the products of a region with parameters."""
    operations = region.program.operations
    return sum(
        operations[i].name == "matmul"
        and any(region.program.maker(each).kind == "parameter" for each in operations[i].inputs)
        for i in region.operations
    )


CAUSES = (
    Cause(
        "branches exchanged",
        "B adds two branches, one behind the other, in the other order.",
        branches_in_another_order,
        "((h := x + jnp.tanh(x @ w)) + nn.silu(h @ v)) @ w",
        "((h := x + nn.silu(x @ v)) + jnp.tanh(h @ w)) @ w",
    ),
    Cause(
        "layer left out",
        "B does not call a layer.",
        judge,
        "jnp.tanh(h := x @ w) @ (h + jnp.tanh(nn.silu(h @ w + b) @ v)).mT",
        "jnp.tanh(h := x @ w) @ h.mT",
    ),
    Cause(
        "one layer too many",
        "B calls a layer that A does not, or one of A's once more.",
        judge,
        "jnp.tanh(h := x @ w) @ h.mT",
        "jnp.tanh(h := x @ w) @ (h + jnp.tanh(nn.silu(h @ w + b) @ v)).mT",
    ),
)
