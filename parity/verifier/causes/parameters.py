"""Wrong parameters: which leaf holds other numbers than A's, and what it holds instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice, permutations, product
from typing import NamedTuple

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.causes.row_order import row_order
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index, meet
from parity.verifier.search.region import Gap, Kind, Region, stack_of

NEARBY = 4
"""Operations before the end of a place within which the wrong parameter is looked for."""
MOST_TRIALS = 200
MOST_AXES = 6
MOST_PARTS = 4
"""Most parts of a packed parameter."""


class _Exchange(NamedTuple):
    """A leaf of A's, or a part of it, in place of one of B's."""

    leaf_a: Operation
    leaf_b: Operation
    value: np.ndarray
    """A's numbers in the layout of B's leaf."""
    part: str = ""
    """Which part of A's leaf, as ``[48:96]``; empty of the whole."""


_Choice = list[_Exchange | None]


def wrong_parameters(gap: Gap, index: Index) -> tuple[Kind, str] | None:
    """Return kind and message if A's parameters, read by B, remove the difference; else None.

    The parameters of A's region replace those that B reads nearby, all that fit at once.
    """
    program = gap.b.program
    ends = [region.program.maker(region.end) for region in (gap.a, gap.b)]
    if all(end.kind == "parameter" for end in ends) and ends[0].size != ends[1].size:
        sizes = f"{list(ends[1].shape)} is not A's {ends[0].label} {list(ends[0].shape)}"
        return "parameter", f"{ends[1].label} {sizes}"
    other = _other_of_a_stack(gap, index)
    if other is not None:
        return other
    leaves_a = leaves_of(gap.a, 1)
    # a weight may be an argument of its own; what A was given, too, is none
    near = [
        leaf
        for leaf in leaves_of(gap.b, NEARBY, ("parameter", "input"))
        if leaf.kind == "parameter" or not index.meets(leaf)
    ]
    leaves_b = [leaf for leaf in near if not _holds(leaf, leaves_a, index, gap)]
    tried = (  # those that hold A's numbers in another order, then all that fit
        [*_choices(leaves_a, leaves_b, gap, index), *_parts(leaves_a, leaves_b, gap, held=True)],
        [*_choices(leaves_a, leaves_b, gap), *_parts(leaves_a, leaves_b, gap)],
    )
    for chosen in chain.from_iterable(islice(product(*some), MOST_TRIALS) for some in tried):
        exchanges = [each for each in chosen if each is not None]
        if not exchanges:
            continue
        given = {each.leaf_b.index: each.value for each in exchanges}
        if distance(gap.value_a, program.values([gap.b.end], given)[gap.b.end]) <= FARTHEST.norm:
            explanations = [
                _wrong(each, gap, index)
                for each in exchanges
                if not np.array_equal(each.value, program.cache[each.leaf_b.index])
            ]
            kind = "parameter" if any(each == "parameter" for each, _ in explanations) else "operations"
            return kind, "; ".join(message for _, message in explanations)
    return None


def _choices(
    leaves_a: list[Operation], leaves_b: list[Operation], gap: Gap, index: Index | None = None
) -> list[_Choice]:
    """Return which of B's leaves may stand for each of A's; with `index`, only those that hold its
    numbers."""
    choices: list[_Choice] = []
    for leaf_a in leaves_a:
        value = gap.a.program.cache[leaf_a.index]
        fitting = [leaf for leaf in leaves_b if leaf.size == leaf_a.size]
        if index is not None:
            fitting = [leaf for leaf in fitting if leaf_a in index.meets(leaf)]
        exchanges = [
            _Exchange(leaf_a, leaf, own) for leaf in fitting for own in arrangements(value, leaf.shape)
        ]
        if exchanges:
            choices.append([*exchanges, None])
    return choices


def _parts(
    leaves_a: list[Operation], leaves_b: list[Operation], gap: Gap, *, held: bool = False
) -> list[_Choice]:
    """Return which part of a packed leaf of A's, such as that of queries, keys and values, may stand for
    each of B's: the part whose numbers it holds, in whatever order, or, unless `held`, any."""
    choices: list[_Choice] = []
    for leaf_b in leaves_b:
        value = np.asarray(gap.b.program.cache[leaf_b.index])
        packed = [
            (leaf_a, part, said)
            for leaf_a in leaves_a
            if len(leaf_a.shape) == len(leaf_b.shape) or len(leaf_a.shape) == 1
            for part, said in _blocks(np.asarray(gap.a.program.cache[leaf_a.index]), value.size)
        ]
        own = [each for each in packed if np.array_equal(_sorted(each[1]), _sorted(value))]
        if any(np.array_equal(part.ravel(), value.ravel()) for _, part, _ in own if part.ndim < 2):
            continue  # it is loaded rightly
        exchanges = [
            _Exchange(leaf_a, leaf_b, each, said)
            for leaf_a, part, said in own or packed * (not held)
            for each in arrangements(part, leaf_b.shape)
        ]
        if exchanges:
            choices.append([*exchanges, None])
    return choices


def _blocks(value: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, str]]:
    """Yield the equal parts of an array, with what they are called: ``[48:96]``."""
    count, rest = divmod(value.size, max(size, 1))
    if rest or not 2 <= count <= MOST_PARTS:
        return
    for axis, length in enumerate(value.shape):
        if length % count == 0:
            for k, part in enumerate(np.split(value, count, axis)):
                start, stop = k * length // count, (k + 1) * length // count
                yield part, f"[{':, ' * axis}{start}:{stop}]"


def _sorted(value: np.ndarray) -> np.ndarray:
    return np.sort(value, axis=None)


def _other_of_a_stack(gap: Gap, index: Index) -> tuple[Kind, str] | None:
    """Return the message of a row of a stacked parameter that is another parameter of A's than the one
    that A reads."""
    end, wanted = stack_of(gap.b.program, gap.b.end), gap.a.program.maker(gap.a.end)
    if wanted.kind != "parameter" or end.kind != "parameter" or end.size <= wanted.size:
        return None
    held = index.meets(gap.b.program.operations[gap.b.end])
    others = [op for op in held if op.kind == "parameter" and op.size == wanted.size]
    if not others or wanted in others:
        return None
    return "parameter", f"{end.label} holds A's {_names(others)} where A reads {wanted.label}"


def leaves_of(region: Region, depth: int, kinds: Collection[str] = ("parameter",)) -> list[Operation]:
    """Return the parameters that a region reads, and those read up to `depth` operations before it."""
    program = region.program
    inside = set(region.operations)
    leaves: dict[int, Operation] = {}
    stack = [(region.end, depth)]
    seen: set[tuple[int, int]] = set()
    while stack:
        index, left = stack.pop()
        if (index, left) in seen:
            continue
        seen.add((index, left))
        op = program.operations[index]
        if op.run is None:
            if op.kind in kinds:
                leaves[index] = op
            continue
        if index in inside or op.is_layout or left:
            rest = left if index in inside or op.is_layout else left - 1
            stack += [(i, rest) for i in op.inputs]
    return list(leaves.values())


def _holds(leaf_b: Operation, leaves_a: list[Operation], index: Index, gap: Gap) -> bool:
    """Return whether a parameter is one that A's region reads, in A's order."""
    if not {each.index for each in index.meets(leaf_b)} & {each.index for each in leaves_a}:
        return False
    value = gap.b.program.cache[leaf_b.index]
    flat = [gap.a.program.cache[each.index].ravel() for each in leaves_a if each.size == leaf_b.size]
    in_order = any(np.array_equal(each, value.ravel()) for each in flat)
    return value.ndim < 2 or in_order != _is_kernel(leaf_b, gap)


def _is_kernel(leaf: Operation, gap: Gap) -> bool:
    """Return whether, by its name, a matrix has its input axis first where A's has it last, or the
    other way round."""
    first = [
        each.label.endswith("kernel") for each in (leaf, *leaves_of(gap.a, 1)) if len(each.shape) > 1
    ]
    return bool(first) and first[0] != all(first[1:])


def _wrong(exchange: _Exchange, gap: Gap, index: Index) -> tuple[Kind, str]:
    leaf_a, leaf_b, value, part = exchange
    program = gap.b.program
    held = program.cache[leaf_b.index]
    holders = [each for each in index.meets(leaf_b) if each.kind == "parameter"]
    if leaf_a in holders or (part and np.array_equal(_sorted(value), _sorted(held))):
        return "parameter", f"{leaf_b.label} holds A's {leaf_a.label}{part} {_order(value, held)}"
    met_b = meet([op for op in program.operations if op.kind == "parameter"], index)
    same_as_a = [program.operations[i] for i, partners in met_b.items() if leaf_a.index in partners]
    readers = program.consumers()
    for other in same_as_a:
        if holders and (not readers[other.index] or len(readers[leaf_b.index]) > 1):
            return (
                "operations",
                f"B reads {leaf_b.label} where A reads {leaf_a.label} (B's {other.label})",
            )
    own = _name_within(program, leaf_b)
    if any(own == _name_within(gap.a.program, each) for each in holders):  # it is loaded rightly
        return "operations", f"B reads {leaf_b.label} where A reads {leaf_a.label}"
    if holders:
        return "parameter", f"{leaf_b.label} holds A's {_names(holders)} instead of {leaf_a.label}{part}"
    return "parameter", f"{leaf_b.label} is not A's {leaf_a.label}{part}: {_looks(held, value)}"


def _name_within(program: Program, leaf: Operation) -> str:
    """Return a parameter's label without what the whole model is called: what all labels begin with."""
    labels = [op.label for op in program.operations if op.kind == "parameter"]
    first, dot, rest = leaf.label.partition(".")
    return rest if dot and all(each.startswith(first + dot) for each in labels) else leaf.label


def _names(leaves: list[Operation]) -> str:
    return " = ".join(dict.fromkeys(each.label for each in leaves[:2]))


def _order(wanted: np.ndarray, held: np.ndarray) -> str:
    """Describe the order in which a parameter holds the right numbers."""
    matrix, other = wanted.reshape(wanted.shape[0], -1), held.reshape(held.shape[0], -1)
    for rows in {wanted.shape[0], wanted.size // wanted.shape[-1]}:
        matrix, other = wanted.reshape(rows, -1), held.reshape(rows, -1)
        if matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix.T, other):
            return "transposed"
    if said := row_order(wanted, held):
        return said
    for axes in permutations(range(min(wanted.ndim, MOST_AXES))):
        moved = wanted.transpose(*axes, *range(len(axes), wanted.ndim))
        if np.array_equal(moved.reshape(held.shape), held):
            return f"with the axes of {list(wanted.shape)} in the order {list(axes)}"
    return "in another order"


def _looks(held: np.ndarray, wanted: np.ndarray) -> str:
    if np.all(held == held.flat[0]):
        return f"all of it is {held.flat[0] + 0.0:.6g}, as before loading"
    apart = wanted != held
    if apart.mean() < 0.5:
        return f"{np.count_nonzero(apart)} of {held.size} numbers differ"
    ratio = held[apart] / wanted[apart]
    if np.all(np.isfinite(ratio)) and np.ptp(ratio) <= CERTAIN * abs(ratio.flat[0]):
        return f"it is {ratio.flat[0]:.6g} times that"
    return "none of A's parameters has its numbers"
