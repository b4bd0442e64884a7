"""The sides of a place: their formulas, their lines of source and what they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from parity.measure.nearness import LEAST
from parity.verifier.programs.assigned import assigned_at
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Construction, Operation, Source
from parity.verifier.programs.program import Program
from parity.verifier.programs.sources import outside_of_frameworks
from parity.verifier.report.formula import Letters, formula, lines
from parity.verifier.report.handed_on import handed_on
from parity.verifier.report.likely import likely_line
from parity.verifier.report.operands import OWN_A, line_of, operands_of
from parity.verifier.report.relation import DIFFERS
from parity.verifier.report.sides import PlaceSide
from parity.verifier.search.constants import constants_of
from parity.verifier.search.exchange import outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Kind, Region, computing_with


def parts_of(
    gap: Gap,
    letters: Letters,
    *,
    read: bool = False,
    masks: bool = False,
    built: Callable[[Construction], bool] = lambda _: False,
    table: bool = False,
    kind: Kind = "operations",
    cause: str = "",
) -> tuple[PlaceSide, PlaceSide]:
    """Describe both sides of a place.

    Args:
        gap: the place.
        letters: what stands for values in formulas.
        kind: its kind.
        cause: its cause, if that is known.
        read: show the line that reads B's value, too, which may be wrong as well.
        masks: show the lines that made the masks that B reads, too.
        built: whether to show the line that built B's module, too, which gave it its arguments.
        table: show the lines that made the tables that the values are, and the modules', too.
    """
    start = len(letters.read)
    a = _part_of(gap.a, letters, gap, table=table)
    middle = len(letters.read)
    b = _part_of(
        gap.b, letters, gap, read=read, masks=masks, table=table, built=built,
        between=handed_on(gap, cause), turned=cause == "reversed" and not _turns(gap.a),
    )  # fmt: skip
    of_a, of_b = operands_of(gap, letters.read[start:middle], letters.read[middle:], letters.index)
    alone = (each for each in of_a if each.relation in (OWN_A, DIFFERS))
    for each in (*alone, *of_b):
        letters.relations.setdefault(each.letter, {})[each.relation] = None
    construction = gap.b.program.built.get(b.module)
    shown = construction if construction is not None and built(construction) else None
    likely = likely_line(gap, kind, cause, b.lines, of_b, built=shown)
    return replace(a, operands=of_a), replace(b, operands=of_b, likely=likely)


def _part_of(
    region: Region,
    letters: Letters,
    gap: Gap,
    *,
    read: bool = False,
    masks: bool = False,
    between: Sequence[Source] = (),
    turned: bool = False,
    table: bool = False,
    built: Callable[[Construction], bool] = lambda _: False,
) -> PlaceSide:
    program, end = region.program, region.end
    operations = list(region.operations)
    ends = gap.a.program.operations[gap.a.end], gap.b.program.operations[gap.b.end]
    order = ends[0] in letters.index.meets(ends[1])
    traced = gap.traced and program is gap.b.program
    shown = _moves_before(program, end) if traced else _order_before(program, end) if order else []
    text = formula(program, end, {*operations, *shown}, letters, layout=order)
    sources = lines(program, [*shown, *operations])
    if region is gap.b:
        read_so = lines(program, _reading_otherwise(gap, letters.index)) if order else []
        sources = [*(read_so or _callers(gap, letters.index)), *sources]
    if all(program.operations[i].is_layout for i in operations) and (traced or not operations):
        sources += between or filter(None, [program.maker(end).source])
    sources += lines(program, region.readers[:2])
    if region is gap.b:
        sources = [*(s for s in _ended(gap) if s not in sources), *sources]
    sources += lines(program, computing_with(program, end, program.consumers()))[:1] if read else []
    sources += _masks(region) if masks else []
    sources = [*(_turns(region) if turned else ()), *sources]
    sources += _table(region, gap) if table else []
    sources = sources or lines(program, [end])
    if not sources and program.operations[end].kind == "constant":
        sources = lines(program, program.consumers()[end][:2])
    sources += filter(None, [outside_of_frameworks(each) for each in sources])
    module = next((program.operations[i].module for i in [*operations, *region.readers, end]
                   if program.operations[i].module), "")  # fmt: skip
    construction = program.built.get(module)
    shown = construction is not None and (table or built(construction))
    sources += [construction.source] if construction is not None and shown else []
    return PlaceSide(text, tuple(line_of(each) for each in dict.fromkeys(sources)), module)


def _reading_otherwise(gap: Gap, index: Index) -> list[int]:
    """Return what computes with a value of B whose elements lie as A's do, but in whose place another
    order is A's: a product along another axis."""
    x, y, program = gap.a.end, gap.b.end, gap.b.program
    of_a = np.asarray(gap.a.program.values([x])[x])
    if not {y}.issuperset(gap.b.operations) or distance(of_a, gap.value_b) > LEAST.norm:
        return []
    reading = computing_with(program, y, program.consumers())
    return [each for each in reading if not index.meets(program.operations[each])][:1]


def _turns(region: Region) -> list[Source]:
    """Return the line that turned round what a region reads, if that was only moved since."""
    program = region.program
    for index in outside(region):
        op, steps = program.operations[index], 0
        while op.is_layout and op.name != "flip" and len(op.inputs) == 1 and steps < _MOST_MOVES:
            op, steps = program.operations[op.inputs[0]], steps + 1
        if op.name == "flip" and op.source is not None:
            return [op.source]
    return []


def _callers(gap: Gap, index: Index) -> list[Source]:
    """Return the callers of a region's lines in B, where the same operations, called from elsewhere,
    compute A's values: then the call is wrong, not the operations. Of an open place, all callers."""
    program = gap.b.program if gap.siblings or gap.repaired is None else gap.repaired
    operations = gap.b.program.operations
    region = [operations[i] for i in gap.b.operations]
    if not region:  # what a line reads of its own
        made = operations[gap.b.end].source
        region = [operations[i] for i in gap.b.readers if operations[i].source == made]
    wrong: dict[Source, set[str]] = {}
    for op in region:
        if op.source is not None and not op.is_layout:
            wrong.setdefault(op.source, set()).add(op.name)
    callers = (
        _parting(program, source, names, index) if gap.closed else source.caller
        for source, names in wrong.items()
    )
    return list(dict.fromkeys(each for each in callers if each is not None))


def _parting(program: Program, source: Source, names: set[str], index: Index) -> Source | None:
    """Return the innermost caller of a line in whose place another caller gets A's values; None where
    none does."""
    equal = [
        op for op in program.operations
        if op.name in names and op.source is not None and op.source == source and index.meets(op)
    ]  # fmt: skip
    own = _callers_of(source)
    for depth, caller in enumerate(own):
        elsewhere = (
            op for op in equal
            if op.source and (chain := _callers_of(op.source))[:depth] == own[:depth]
            and chain[depth : depth + 1] not in ([], [caller])
        )  # fmt: skip
        if {op.name for op in elsewhere} == names:
            return caller
    return None


def _callers_of(source: Source) -> list[Source]:
    callers = []
    while source.caller is not None:
        source = source.caller
        callers.append(source)
    return callers


def _masks(region: Region) -> list[Source]:
    """Return the lines that made the truth values, or the large negative numbers, that a region and its
    readers mask scores with."""
    program = region.program
    inside = [*region.operations, *region.readers]
    stack = [i for each in inside for i in program.operations[each].inputs]
    masks: list[int] = []
    while stack and len(masks) < _MOST_OF_A_MASK:
        index = stack.pop(0)
        op = program.operations[index]
        if index not in masks and op.run is not None and _is_mask(program, op):
            masks.append(index)
            stack += op.inputs
    return lines(program, sorted(masks))[-_MOST_LINES:]


def _table(region: Region, gap: Gap) -> list[Source]:
    """Return the lines that may have made a table outside of the program: those that gave the names
    which its reader reads their values."""
    program = region.program
    readers = region.readers[:1]
    if region.operations:  # what they read of what is made outside
        repaired = gap.repaired if region is gap.b else None
        patched = repaired.repaired if repaired is not None else frozenset()
        readers = [
            i for i in region.operations
            if any(program.maker(each).index in patched for each in program.operations[i].inputs)
        ]  # fmt: skip
    made: dict[Source, None] = {}
    for line in lines(program, readers):
        here = {op.source.line for op in program.operations if op.source and op.source.file == line.file}
        made.update(dict.fromkeys(assigned_at(line, here)))
    return list(made)


def _is_mask(program: Program, op: Operation) -> bool:
    """Return whether a value holds truth values, or numbers that stand for them: 0 and 1, 0 and -inf."""
    if op.dtype == "bool" or op.mark is None:  # what writes into its operand has no numbers
        return True
    value = program.values([op.index])[op.index]
    if not isinstance(value, np.ndarray) or value.size < 2:
        return False
    return bool(np.isin(value, (0, 1)).all() or ((value < -1e3) | (value == 0)).all())


_MOST_MOVES = 8
"""Most moves of a value that are gone back."""
_MOST_OF_A_MASK = 24
"""Most operations that are followed back from where a mask is read."""
_MOST_LINES = 4
_FLAT = frozenset(["round", "floor", "ceil", "sign", "stop_gradient", "detach"])
"""Operations through which no gradient passes."""


def _ended(gap: Gap) -> list[Source]:
    """Return the lines at which a gradient may end, where B has zeros that depend on nothing and A a
    computed value."""
    program, end = gap.b.program, gap.b.end
    op = program.operations[end]
    if op.number != 0:
        return []
    fixed = constants_of(program)
    alone = end in fixed or op.name == "zeros_like"
    if not alone or gap.a.end in constants_of(gap.a.program):
        return []
    flat = [op for op in program.operations if op.name in _FLAT and op.index not in fixed]
    # autograd detaches what it keeps, on the line that computed it
    asked = [
        op for op in flat if op.name != "detach" or op.source != program.operations[op.inputs[0]].source
    ]
    return lines(program, [op.index for op in asked or flat])


def _order_before(program: Program, end: int) -> list[int]:
    """Return the operations that gave a value its order: those that move elements, or, without any,
    the one that made it."""
    order: list[int] = []
    index, moved = end, False
    while program.operations[index].run is not None and len(order) < 12:
        op = program.operations[index]
        moves = op.is_layout or op.name in ("slice", "concat", "gather", "stack")
        if not moves and (moved or len(op.inputs) != 1):
            return order if moved else [*order, index]
        moved |= op.name in ("transpose", "flip", "concat", "gather", "slice")
        order.append(index)
        if not op.inputs:  # it moves a constant
            return order
        index = op.inputs[0]
    return order


def _moves_before(program: Program, end: int) -> list[int]:
    """Return the transposes right before a layout operation that ends in a wrong order: one of them is
    wrong, or one is missing."""
    moves: list[int] = []
    index = end
    while program.operations[index].inputs:
        op = program.operations[index]
        if index != end and not op.is_layout:
            break
        moves += [index] if index != end and op.name in ("transpose", "flip") else []
        index = op.inputs[0]
    return moves
