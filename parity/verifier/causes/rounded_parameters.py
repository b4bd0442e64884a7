"""Parameters that one side's loader rounded to a smaller type, and holds in the wider one again: a
checkpoint that was saved in bfloat16 and loaded into float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parity.measure.shown import alike, first_three
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.loops import first_use
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region
from parity.verifier.search.written import TYPES, rounded

KINDS = ("parameter", "input")
"""Kinds of leaves: an array that is an argument of its own is called an input, weight or not."""
FEWEST = 4
"""Fewest different numbers that a leaf must hold: fewer are those of another by chance."""

SAMPLE = 256
"""Numbers of a leaf that are looked at first."""


class Rounded(NamedTuple):
    """Leaves of one side that are those of the other, rounded to a smaller type."""

    type: str
    coarse: dict[int, Operation]
    """The leaves that hold the rounded numbers."""
    fine: dict[int, np.ndarray]
    """The other side's leaves that they were rounded from, rounded."""
    all: bool
    """Whether every parameter was rounded that the type cannot hold."""


def rounded_from(coarse: Program, fine: Program) -> list[Rounded]:
    """Return what one side holds rounded of the other's leaves, for each type.

    Each number must be the rounded one, and the whole of a leaf be such: of a packed or stacked one,
    all its parts.
    """
    wide, narrow = _leaves(fine, Index(coarse)), _leaves(coarse, Index(fine))
    found = []
    for epsilon in sorted(TYPES):
        held = [op for op in narrow if _is_held(coarse.cache[op.index], epsilon)]
        if not held or not wide:
            continue
        index = Index(coarse, {op.index for op in held})
        some = Rounded(TYPES[epsilon], {}, {}, all=False)
        for op in wide:
            value = _to(fine.cache[op.index], epsilon)
            if np.array_equal(value, fine.cache[op.index]):
                continue  # it is held as it is, packed otherwise
            parts = [e for e in index.find(fingerprint(value)) if e.size == op.size]
            parts = parts[:1] or _parts(coarse, held, value)
            if parts:
                some.fine[op.index] = value
                some.coarse.update((each.index, each) for each in parts)
        if some.coarse:
            parameters = {op.index for op in narrow if op.kind == "parameter"}
            found.append(some._replace(all=bool(parameters) and parameters <= some.coarse.keys()))
            narrow = [op for op in narrow if op.index not in some.coarse]
            wide = [op for op in wide if op.index not in some.fine]
    return found


def rounded_parameters(a: Program, b: Program) -> tuple[Program, Program, list[tuple[Gap, Explanation]]]:
    """Return both programs with leaves rounded as the other side's are, and a place for each type.

    Both then run with the same numbers, so that what else differs is found beside it.
    """
    of_a, of_b = rounded_from(b, a), rounded_from(a, b)
    fed_a, fed_b = _fed(a, of_a), _fed(b, of_b)
    places = [
        (_gap(fed_a, fed_b, exact, side, each), _said(side, each))
        for side, exact, some in (("B", a, of_a), ("A", b, of_b))
        for each in some
    ]
    return fed_a, fed_b, places


def _fed(program: Program, some: Sequence[Rounded]) -> Program:
    given = {i: value for each in some for i, value in each.fine.items()}
    return replace(program.fed(given, {}), repaired=frozenset()) if given else program


def _leaves(program: Program, other: Index) -> list[Operation]:
    """Return the leaves that the other side does not hold, of numbers that tell."""
    leaves = []
    for op in program.operations:
        value = program.cache.get(op.index) if op.kind in KINDS else None
        if op.mark is None or not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        if len(np.unique(value.ravel()[:SAMPLE])) >= FEWEST and not other.find(op.mark):
            leaves.append(op)
    return leaves


def _to(value: np.ndarray, epsilon: float) -> np.ndarray:
    with np.errstate(over="ignore"):  # what float16 has not is infinite in it
        return rounded(value, epsilon)


def _is_held(value: np.ndarray, epsilon: float) -> bool:
    """Return whether a type holds every number of an array."""
    sample = value.ravel()[:SAMPLE]  # most arrays that a type does not hold show it at once
    return all(np.array_equal(_to(each, epsilon), each) for each in (sample, value))


def _parts(coarse: Program, held: Sequence[Operation], value: np.ndarray) -> list[Operation]:
    """Return the leaf that holds an array among others, or those that the array is packed of."""
    whole = next((op for op in held if op.size > value.size and _in(value, coarse, op)), None)
    if whole is not None:
        return [whole]
    parts = [op for op in held if op.size < value.size and _in(value, coarse, op)]
    return parts if sum(op.size for op in parts) == value.size else []


def _in(value: np.ndarray, coarse: Program, op: Operation) -> bool:
    """Return whether the smaller of two arrays consists of numbers of the larger, each as often."""
    small, large = sorted((value, coarse.cache[op.index]), key=np.size)
    if large.size % small.size:
        return False
    numbers, often = np.unique(small, return_counts=True)
    among, there = np.unique(large, return_counts=True)
    at = np.searchsorted(among, numbers).clip(max=len(among) - 1)
    return bool((among[at] == numbers).all() and (there[at] >= often).all())


def _gap(a: Program, b: Program, exact: Program, side: str, some: Rounded) -> Gap:
    """Return the place at which the first of the leaves is read."""
    (fine, value), coarse = next(iter(some.fine.items())), next(iter(some.coarse))
    x, y = (fine, coarse) if side == "B" else (coarse, fine)
    own = exact.cache[fine]
    of_a, of_b = (own, value) if side == "B" else (value, own)
    return Gap(
        Region(a, x, [], [first_use(a, x, a.consumers())]),
        Region(b, y, [], [first_use(b, y, b.consumers())]),
        of_a,
        of_b,
    )


def _said(side: str, some: Rounded) -> Explanation:
    """Name the leaves that are rounded: all of them, or a few by name."""
    other = "A" if side == "B" else "B"
    if some.all and len(some.coarse) > 1:
        return "", f"all of {side}'s parameters are {other}'s rounded to {some.type}"
    names = list(alike([op.label for op in some.coarse.values()]))
    verb = "is" if len(some.coarse) == 1 else "are"
    return "", f"{side}'s {first_three(names)} {verb} {other}'s rounded to {some.type}"
