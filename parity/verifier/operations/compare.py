"""Two programs side by side: recorded, met, and where they part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.verifier.operations.causes import cause_of
from parity.verifier.operations.collectives import CAUSES as COLLECTIVES
from parity.verifier.operations.collectives import collective_faults
from parity.verifier.operations.comparison import Comparison, Counts, Kind, Line, Part, Place, Verdict
from parity.verifier.operations.formula import Letters, formula, lines
from parity.verifier.operations.layouts import arrangements
from parity.verifier.operations.meeting import Index, is_weak, meet
from parity.verifier.operations.origin import origin
from parity.verifier.operations.parameters import wrong_parameters
from parity.verifier.operations.places import Search
from parity.verifier.operations.program import Program, Source
from parity.verifier.operations.region import Found, Region, distance
from parity.verifier.operations.rounding import align, limit_of
from parity.verifier.operations.sides import record
from parity.verifier.operations.threads import one_thread


def compare(a: Any, b: Any, *, gradients: bool = False) -> Comparison:
    """Whether two programs compute the same function, and where they part.

    Both run once in float64, each on its own inputs. See `sides.record` for what a side may be,
    and for `gradients`.

    Raises:
        InputError: a side cannot be run, or the programs have no outputs of the same size.
    """
    started = time.perf_counter()
    of_a = record(a, "A", gradients=gradients)
    return compare_programs(of_a, record(b, "B", gradients=gradients), started)


def compare_programs(a: Program, b: Program, started: float | None = None) -> Comparison:
    """`compare` for programs that are recorded already."""
    started = time.perf_counter() if started is None else started
    a, b, aligned = align(a, b)
    pairs, left_out = pair_outputs(a, b)
    search = Search(a, b, pairs)
    met = meet(b.operations, search.index)
    counts = _counts(a, b, pairs, left_out, met)
    letters = Letters(search.index)
    error = max((_error(a.values([x])[x], b.values([y])[y]) for x, y in pairs), default=np.inf)
    faults: list[Place] = []
    notes: list[Place] = []
    with one_thread(a, b):
        for found, cause, message in collective_faults(search):
            of_a, of_b = _part(found.a, letters, found), _part(found.b, letters, found)
            faults.append(
                Place(
                    "operations", of_a, of_b, found.error, limit_of(found), message, cause, found=found
                )
            )
        for found in search.places():
            place = _place(found, letters, search.index)
            if place.kind == "rounding":
                notes.append(place)
            else:
                faults.append(place)
    left = search.unequal() if not faults else True
    verdict: Verdict = (
        "DIFFERENT" if faults or left else "INCOMPLETE" if left_out or not pairs else "EQUAL"
    )
    legend = {letter: _legend(sides) for letter, sides in letters.legend.items()}
    return Comparison(verdict, error, counts, tuple(_together(faults)), tuple(_together(notes)),
    aligned, legend,
                      time.perf_counter() - started)  # fmt: skip


def pair_outputs(a: Program, b: Program) -> tuple[list[tuple[int, int]], list[str]]:
    """The outputs that are compared, and the names of those that have no counterpart."""
    of_a, of_b = list(a.outputs), list(b.outputs)
    pairs: list[tuple[int, int]] = []

    def take(x: tuple[str, int], y: tuple[str, int]) -> None:
        pairs.append((x[1], y[1]))
        of_a.remove(x)
        of_b.remove(y)

    def fits(x: tuple[str, int], y: tuple[str, int]) -> bool:
        return a.operations[x[1]].size == b.operations[y[1]].size

    for x in list(of_a):  # by name
        same = [y for y in of_b if y[0] == x[0] and x[0] and fits(x, y)]
        if same:
            take(x, same[0])
    index = Index(a)
    for y in list(of_b):  # by value
        partners = {each.index for each in index.meets(b.operations[y[1]])}
        same = [x for x in of_a if x[1] in partners and fits(x, y)]
        if same:
            take(same[0], y)
    for x in list(of_a):  # by size, in order
        same = [y for y in of_b if fits(x, y)]
        if same:
            take(x, same[0])
    if len(a.outputs) == len(b.outputs) == len(of_a) == 1:  # the only ones, whatever their sizes
        take(of_a[0], of_b[0])
    left = [f"A's {n or 'output'}" for n, _ in of_a] + [f"B's {n or 'output'}" for n, _ in of_b]
    return pairs, left


def _error(of_a: Any, of_b: Any) -> float:
    of_a, of_b = np.asarray(of_a), np.asarray(of_b)
    if of_a.shape == of_b.shape:
        return distance(of_a, of_b)
    return min((distance(each, of_b) for each in arrangements(of_a, of_b.shape)), default=np.inf)


def _counts(
    a: Program,
    b: Program,
    pairs: Sequence[tuple[int, int]],
    left_out: list[str],
    met: dict[int, list[int]],
) -> Counts:
    comparable = [op for op in b.operations if op.run is not None and not is_weak(op) and op.size]
    used: set[int] = set()
    stack = [y for _, y in pairs]
    while stack:
        index = stack.pop()
        if index not in used:
            used.add(index)
            stack += b.operations[index].inputs
    leaves = [op for op in b.operations if op.kind == "parameter"]
    return Counts(
        outputs=len(pairs),
        elements=sum(b.operations[y].size for _, y in pairs),
        outputs_left_out=tuple(left_out),
        operations_a=sum(op.run is not None for op in a.operations),
        operations_b=sum(op.run is not None for op in b.operations),
        met=sum(op.index in met for op in comparable),
        comparable=len(comparable),
        inputs=sum(op.kind == "input" for op in b.operations),
        parameters=len(leaves),
        unused=tuple(op.label for op in leaves if op.index not in used),
    )


def _place(found: Found, letters: Letters, index: Index) -> Place:
    if not found.closed:
        a, b = _part(found.a, letters, found), _part(found.b, letters, found)
        return Place(
            "open", a, b, -1.0, 0.0, "from here on nothing of A's makes the rest of B meet", found=found
        )
    limit, error = limit_of(found), found.error
    kind, message = _kind(found, index, limit)
    cause, said = "", ""
    if kind in ("operations", "order") and not message:
        found = origin(found, index)
        kind = "order" if found.traced else kind
        cause, said = cause_of(found, index)
    a, b = _part(found.a, letters, found), _part(found.b, letters, found)
    return Place(kind, a, b, error, limit, message or said, cause, found=found)


def _kind(found: Found, index: Index, limit: float) -> tuple[Kind, str]:
    end_a, end_b = found.a.program.operations[found.a.end], found.b.program.operations[found.b.end]
    if found.error <= limit:
        return "rounding", "a number that one program holds in a smaller type"
    if end_b.kind == "input" and end_a.kind == "input":
        return "input", f"{end_b.label} is another input than A's {end_a.label}"
    wrong = wrong_parameters(found, index)
    if wrong is not None:
        return wrong
    if end_a in index.meets(end_b):
        return "order", ""
    return "operations", ""


def _part(region: Region, letters: Letters, found: Found) -> Part:
    program, end = region.program, region.end
    operations = list(region.operations)
    ends = found.a.program.operations[found.a.end], found.b.program.operations[found.b.end]
    order = ends[0] in letters.index.meets(ends[1])
    traced = found.traced and program is found.b.program
    shown = _moves_before(program, end) if traced else _order_before(program, end) if order else []
    text = formula(program, end, {*operations, *shown}, letters, layout=order)
    sources = lines(program, [i for i in [*shown, *operations] if _matters(program, i)])
    if region is found.b:
        sources = [*_callers(found, letters.index), *sources]
    if not operations:
        made = [each for each in [_maker(program, end)] if each is not None]
        sources += [s for s in made if s not in sources]
    sources += [s for s in lines(program, region.readers[:2]) if s not in sources]
    if not sources:
        sources = lines(program, [end])
    module = next((program.operations[i].module for i in [*operations, *region.readers, end]
                   if program.operations[i].module), "")  # fmt: skip
    return Part(text, tuple(_line(each) for each in sources), module)


def _matters(program: Program, index: int) -> bool:
    return program.operations[index].source is not None


def _callers(found: Found, index: Index) -> list[Source]:
    """The lines of B that called what a region's lines are part of, where the same operations, called
    from elsewhere, compute A's values: then not they are wrong, but the call."""
    program = found.repaired or found.b.program
    region = [found.b.program.operations[i] for i in found.b.operations]
    wrong: dict[Source, set[str]] = {}
    for op in region:
        if op.source is not None and not op.is_layout:
            wrong.setdefault(op.source, set()).add(op.name)
    callers = (source.caller for source, names in wrong.items()
               if not found.closed or _innocent(program, source, names, index))  # fmt: skip
    return list(dict.fromkeys(each for each in callers if each is not None))


def _innocent(program: Program, source: Source, names: set[str], index: Index) -> bool:
    right = {
        op.name
        for op in program.operations
        if op.name in names and op.source is not None and op.source == source
        and op.source.caller != source.caller and index.meets(op)
    }  # fmt: skip
    return right == names


def _maker(program: Program, index: int) -> Source | None:
    """The line that computed a value, seen through what only moves it."""
    while program.operations[index].is_layout and program.operations[index].inputs:
        index = program.operations[index].inputs[0]
    return program.operations[index].source


def _order_before(program: Program, end: int) -> list[int]:
    """The operations that gave a value its order: those that move elements, or what made it if there
    are none."""
    found: list[int] = []
    index, moved = end, False
    while program.operations[index].run is not None and len(found) < 12:
        op = program.operations[index]
        moves = op.is_layout or op.name in ("slice", "concat", "gather", "stack")
        if not moves and (moved or len(op.inputs) != 1):
            return found if moved else [*found, index]
        moved |= op.name in ("transpose", "flip", "concat", "gather", "slice")
        found.append(index)
        index = op.inputs[0]
    return found


def _moves_before(program: Program, end: int) -> list[int]:
    """The transposes in front of a move that brings elements into their order: one of them is wrong, or
    one is missing."""
    found: list[int] = []
    index = end
    while program.operations[index].inputs:
        op = program.operations[index]
        if index != end and not op.is_layout:
            break
        found += [index] if index != end and op.name in ("transpose", "flip") else []
        index = op.inputs[0]
    return found


def _line(source: Source) -> Line:
    return Line(source.file, source.line, source.function, source.text)


def _legend(sides: dict[str, Any]) -> str:
    found = []
    for name, op in sorted(sides.items()):
        where = f" {op.source}" if op.source else ""
        found.append(f"{name}{where} {op.label if op.run is None else op.name} {list(op.shape)}")
    return "; ".join(found)


def _together(places: list[Place]) -> list[Place]:
    """The same lines that part in the same way several times (once a block) become one place."""
    found: dict[Any, Place] = {}
    for place in places:
        key = (place.kind, place.a.lines, place.b.lines, place.cause)
        if place.cause in COLLECTIVES:  # of every parameter's gradient
            key = (place.cause, place.message, place.b.lines[-1:])
        if place.kind in ("parameter", "input", "open") or key not in found:
            found[key if key not in found else (key, len(found))] = place
        else:
            first = found[key]
            found[key] = replace(
                first, times=first.times + 1, modules=(*first.modules, place.b.module),
                error=max(first.error, place.error), limit=max(first.limit, place.limit),
            )  # fmt: skip
    return list(found.values())
