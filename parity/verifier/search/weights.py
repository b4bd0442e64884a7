"""Pairing the gradients of two programs by the parameters that they are taken of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from parity.measure.nearness import Nearness
from parity.verifier.programs.backward import GRADIENT
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import computing_with
from parity.verifier.search.rounding import share

_Named = dict[int, tuple[str, int]]
"""Path and operation of each gradient, by the operation of its parameter."""


def pair_gradients(a: Program, b: Program) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the pairs of gradients to compare, and the names of the gradients without a counterpart.

    Both programs come from `backward.record_gradients`. Gradients are paired where their parameters
    hold the same numbers; of several such parameters, as fresh norms have, those that are read at the
    same points. A parameter that is packed or stacked on one side is paired with all that hold its
    numbers on the other. Where parameters lie in another order, their gradients are compared in the
    order of the parameters' numbers.
    """
    pairs: list[tuple[int, int]] = []
    of_a, of_b = _gradients(a), _gradients(b)
    together = [([x], [y]) for x, y in _equal_parameters(a, b, of_a, of_b)]
    rest_a, rest_b = (
        {leaf: each for leaf, each in mine.items() if not any(leaf in pair[side] for pair in together)}
        for side, mine in enumerate((of_a, of_b))
    )
    for mine, theirs in _packed(a, b, rest_a, rest_b):
        together.append((mine, theirs))
        rest_a, rest_b = _without(rest_a, mine), _without(rest_b, theirs)
    for mine, theirs in together:
        if len(mine) == len(theirs) == 1 and np.array_equal(a.cache[mine[0]], b.cache[theirs[0]]):
            pairs.append((of_a[mine[0]][1], of_b[theirs[0]][1]))
        else:
            pairs.append((_in_order(a, mine, of_a), _in_order(b, theirs, of_b)))
    left_out = [
        f"{program.name}'s {path.removeprefix(f'{GRADIENT}.')}"
        for program, rest in ((a, rest_a), (b, rest_b))
        for leaf, (path, _) in rest.items()
        if program.operations[leaf].kind == "parameter"  # an input may be another, such as a mask
    ]
    return pairs, left_out


def _without(named: _Named, leaves: Sequence[int]) -> _Named:
    return {leaf: each for leaf, each in named.items() if leaf not in leaves}


def _gradients(program: Program) -> _Named:
    """Return the output that is the gradient of each leaf, for leaves that have one."""
    leaves = {op.label: op.index for op in program.operations if op.run is None}
    gradients: _Named = {}
    for path, index in program.outputs:
        name = path.removeprefix(f"{GRADIENT}.")
        labels = [name, f"trees.{name}", name.removeprefix("inputs.")] if name != path else []
        leaf = next((leaves[label] for label in labels if label in leaves), None)
        if leaf is not None:
            gradients[leaf] = path, index
    return gradients


def _equal_parameters(a: Program, b: Program, of_a: _Named, of_b: _Named) -> list[tuple[int, int]]:
    """Pair parameters that hold the same numbers, those that are read alike first."""
    index = Index(a)
    leaves = Index(a, of_a.keys())
    readers_a, readers_b = a.consumers(), b.consumers()
    ranked = []
    for order, y in enumerate(of_b):
        op = b.operations[y]
        assert op.mark is not None
        partners = [each.index for each in leaves.find(op.mark) if each.size == op.size]
        alone = len(partners) < 2
        uses = [] if alone else [b.operations[i] for i in computing_with(b, y, readers_b)]
        there = {each.index for use in uses for each in index.meets(use)}
        for x in partners:
            here = set() if alone else set(computing_with(a, x, readers_a))
            ranked.append((-len(here & there), order, x, y))
    taken: set[int] = set()
    pairs = []
    for *_, x, y in sorted(ranked):
        if x not in taken and ~y not in taken:  # operations of B by their complements
            taken |= {x, ~y}
            pairs.append((x, y))
    return pairs


def _packed(a: Program, b: Program, of_a: _Named, of_b: _Named) -> list[tuple[list[int], list[int]]]:
    """Find sets of parameters that together hold the same numbers: q, k and v on one side, packed or
    stacked over the layers on the other."""
    groups: list[tuple[list[int], list[int]]] = []
    for y in of_b:
        shared = [x for x in of_a if _telling(a.cache[x]) and share(a.cache[x], b.cache[y])]
        if not shared:
            continue
        touched = [group for group in groups if set(group[0]) & set(shared)]
        groups = [group for group in groups if group not in touched]
        mine = dict.fromkeys([*shared, *(x for group in touched for x in group[0])])
        groups.append((sorted(mine), sorted([y, *(each for group in touched for each in group[1])])))
    return [
        (mine, theirs)
        for mine, theirs in groups
        if np.array_equal(
            np.sort(_joined([a.cache[x] for x in mine])), np.sort(_joined([b.cache[y] for y in theirs]))
        )
    ]


def _telling(value: np.ndarray) -> bool:
    """Return whether a parameter can be told by its numbers; one of zeros cannot."""
    return bool(value.size) and value.min() != value.max()


def _joined(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in values])


def _in_order(program: Program, leaves: Sequence[int], named: _Named) -> int:
    """Append an output to a program: the gradients of several parameters as one list, sorted by the
    parameters' numbers, and where these are equal by their own."""
    parts = [named[leaf][1] for leaf in leaves]
    numbers = _joined([program.cache[leaf] for leaf in leaves])

    def run(values: Sequence[Any]) -> np.ndarray:
        joined = _joined(values)
        return joined[np.lexsort((joined, numbers))]

    known = program.values(parts)
    value = run([known[each] for each in parts])
    op = Operation(
        len(program), "gather", tuple(map(Ref, parts)), run,
        shape=value.shape, dtype=str(value.dtype), mark=fingerprint(value),
        near=reduce(Nearness.or_more, (program.operations[each].near for each in parts)),
    )  # fmt: skip
    program.operations.append(op)
    program.outputs.append((", ".join(named[leaf][0] for leaf in leaves), op.index))
    program.keep(op.index, value, always=True)
    return op.index
