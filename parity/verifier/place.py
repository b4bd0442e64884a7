"""Places of a report: what two programs part by at one gap, and how that is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.verifier.causes import Explanation, cause_of, windows
from parity.verifier.causes.factors import ratio_of
from parity.verifier.causes.lengths import other_rows
from parity.verifier.causes.parameters import wrong_parameters
from parity.verifier.programs.program import Program
from parity.verifier.report.comparison import UNCOMPARED, Place
from parity.verifier.report.formula import Letters
from parity.verifier.report.parts import parts_of
from parity.verifier.report.terms import terms_of
from parity.verifier.search.indices import read_by
from parity.verifier.search.layouts import conventional
from parity.verifier.search.meeting import Index
from parity.verifier.search.origin import origin
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Kind, Region
from parity.verifier.search.rounding import is_rounded_number, limit_of


def place_of_cause(
    kind: Kind, gap: Gap, explanation: Explanation, letters: Letters, others: Sequence[int] = ()
) -> Place:
    """Make the place of a fault whose cause is known; `others` are further values of B that have it."""
    cause, message = explanation
    a, b = parts_of(gap, letters, kind=kind, cause=cause, table=cause == "table")
    modules = tuple(gap.b.program.operations[each].module for each in others)
    limit, times = limit_of(gap, letters.index), 1 + len(modules)
    return Place(kind, a, b, gap.error, limit, message, cause, modules, times, gap=gap)


def unlike(search: Search, pair: tuple[int, int], letters: Letters) -> Place:
    """Make the place of two outputs between whose shapes there is no conventional change of layout."""
    a, b, (x, y) = search.a, search.b, pair
    of_a, of_b = a.values([x])[x], b.values([y])[y]
    gap = Gap(Region(a, x, _moves(a, x)), Region(b, y, _moves(b, y)), of_a, of_b, closed=False)
    parts = parts_of(gap, letters)
    shapes = f"B's output {list(b.operations[y].shape)} for A's {list(a.operations[x].shape)}"
    axes = search.outputs.axes(pair, of_a, of_b)
    if axes:
        message = f"{shapes}, whose axes it has in the order {list(axes)}"
        return Place("order", *parts, UNCOMPARED, 0.0, message, "transposed", gap=gap)
    return Place("operations", *parts, UNCOMPARED, 0.0, shapes, gap=gap)


def _moves(program: Program, index: int) -> list[int]:
    """Return the operations that put a value into its order, or the one that made it, if none did."""
    moves = [index]
    while program.operations[index].is_layout and program.operations[index].inputs:
        index = program.operations[index].inputs[0]
        moves += [index] if program.operations[index].is_layout else []
    return [i for i in sorted(moves) if program.operations[i].run is not None]


def place_at(gap: Gap, letters: Letters, index: Index) -> Place:
    """Make the place of a gap, with the name of its cause if one exchange explains it."""
    if not gap.closed:
        cause, message = windows.judge(gap, index) or ("", "")
        kind = "operations" if cause else "open"
        message = message or other_rows(gap) or "from here on nothing of A's makes the rest of B meet"
        built = cause in _GIVEN_TO_MODULES
        a, b = parts_of(gap, letters, kind=kind, cause=cause, built=lambda _: built)
        return Place(kind, a, b, UNCOMPARED, 0.0, message, cause, gap=gap)
    limit, error = limit_of(gap, index), gap.error
    kind, message = _kind(gap, index)
    cause, sentence = "", ""
    if kind == "operations" and message:
        cause = "other value read"  # of a parameter that is loaded rightly
    elif kind in ("operations", "order") and not message:
        gap = origin(gap, index)
        kind = "order" if gap.traced else kind
        cause, sentence = cause_of(gap, index)
        rounded = cause == "factor" and is_rounded_number(gap, ratio_of(gap) or 0.0)
        if rounded or (not cause and error <= limit):  # only what has no cause may be rounding
            kind, cause, sentence = "rounding", "", "a number that one program holds in a smaller type"
    if kind == "order" and sentence and (tables := read_by(gap.b.program, gap.b.end)):
        sentence += f", of an index by which rows of {tables} are read"
    unnamed = kind == "operations" and not cause
    a, b = parts_of(
        gap, letters,
        read=cause in ("factor", "scale left out"),
        masks=cause in ("mask", "causal mask"),
        built=lambda it: cause in _GIVEN_TO_MODULES or (unnamed and it.ready_made),
        kind=kind,
        cause=cause,
    )  # fmt: skip
    modules = tuple(gap.b.program.operations[each].module for each in gap.siblings)
    times = 1 + len(modules)
    terms = terms_of(gap, letters) if kind == "operations" else ()
    return Place(kind, a, b, error, limit, message or sentence, cause, modules, times, terms, gap)


_GIVEN_TO_MODULES = frozenset(
    ["activation", "arguments", "attention along another axis", "axis", "dilation", "epsilon", "groups",
     "number", "numbers", "operation", "padding", "padding counted", "padding not counted", "stride",
     "window"]
)  # fmt: skip
"""Causes that may lie in how a module was built."""


def _is_given(gap: Gap) -> bool:
    """Return whether B was given A's input, channels first or last: then it is read otherwise, as by
    kernels that are transposed."""
    own, shape = np.asarray(gap.a.program.values([gap.a.end])[gap.a.end]), gap.value_b.shape
    return any(np.array_equal(e.of(own), gap.value_b) for e in conventional(own.shape, shape))


def _kind(gap: Gap, index: Index) -> tuple[Kind, str]:
    end_a, end_b = gap.a.program.operations[gap.a.end], gap.b.program.operations[gap.b.end]
    if gap.error <= limit_of(gap, index, types=False):
        return "rounding", "rounding of float64"
    if end_b.kind == "input" and end_a.kind == "input" and not _is_given(gap):
        if any(e is not end_a and e.label == end_b.label for e in index.meets(end_b)):  # as A has it
            return "operations", f"B reads {end_b.label} where A reads {end_a.label}"
        return "input", f"{end_b.label} is another input than A's {end_a.label}"
    wrong = wrong_parameters(gap, index)
    if wrong is not None:
        return wrong
    if end_a in index.meets(end_b):
        return "order", ""
    return "operations", ""
