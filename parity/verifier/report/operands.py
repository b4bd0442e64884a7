"""What the formulas of a place read, and how each value of B's lies to A's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from parity.verifier.programs.fingerprint import same
from parity.verifier.programs.operation import Operation, Source
from parity.verifier.programs.program import Program
from parity.verifier.report.relation import DIFFERS, OTHER_ORDER, SAME, is_usual, relation
from parity.verifier.report.sides import Line, Operand
from parity.verifier.search.layouts import long_axes
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap

OWN_A, OWN_B = "A's own", "B's own"
"""Relations of a value of which the other program has no counterpart."""
ELSEWHERE_A, ELSEWHERE_B = "A's, which A does not read here", "B's, which B does not read here"
_MOVES = frozenset(["transpose", "flip"])
_PRODUCTS = frozenset(["matmul", "conv"])

Reads = Sequence[tuple[str, Operation]]
"""What a formula reads: what stands for a value there, and the operation that made it."""
Operands = tuple[Operand, ...]


def line_of(source: Source) -> Line:
    """Return a line of source as a value of reports."""
    return Line(source.file, source.line, source.function, source.text)


def operands_of(gap: Gap, of_a: Reads, of_b: Reads, index: Index) -> tuple[Operands, Operands]:
    """Return what the formulas of A and of B read, with how the values lie to each other."""
    reads_a, reads_b = ({op.index: (letter, op) for letter, op in reads} for reads in (of_a, of_b))
    words_a: dict[int, str] = {}
    words_b: dict[int, str] = {}
    operations_a = gap.a.program.operations
    read = {i for k in gap.a.operations for i in operations_a[k].inputs}  # also where a formula is cut
    for y, (letter, op) in reads_b.items():
        meets = {each.index for each in index.meets(op)}
        own = [each for name, each in reads_a.values() if name == letter or _meets(gap, each, op, meets)]
        if own:
            found = [_between(gap, each, op) for each in own]
            words_b[y] = min(found, key=_rank)
            words_a |= {each.index: SAME for each in own}
        elif meets:
            between = _between(gap, operations_a[min(meets & read or meets)], op)
            words_b[y] = ELSEWHERE_A if is_usual(between) and not meets & read else between
    left_a, left_b = ([op for i, (_, op) in reads.items() if i not in words]
                      for reads, words in ((reads_a, words_a), (reads_b, words_b)))  # fmt: skip
    counterparts = len(left_a) == len(left_b) == 1 and left_a[0].size == left_b[0].size
    words_b |= {op.index: DIFFERS if counterparts else OWN_B for op in left_b}
    of_b_too = Index(gap.b.program) if left_a and not counterparts else None
    for op in left_a:
        held = of_b_too is not None and op.mark is not None and of_b_too.meets(op)
        words_a[op.index] = DIFFERS if counterparts else ELSEWHERE_B if held else OWN_A
    return _described(reads_a.values(), words_a), _described(reads_b.values(), words_b)


def _described(reads: Iterable[tuple[str, Operation]], words: dict[int, str]) -> Operands:
    return tuple(
        Operand(
            letter, line_of(op.source) if op.source and op.run else None, op.shape, op.module,
            words[op.index],
        )
        for letter, op in reads
    )  # fmt: skip


def _meets(gap: Gap, x: Operation, y: Operation, meets: set[int]) -> bool:
    """Return whether a value that A reads has the numbers of one that B reads."""
    made = gap.a.program.maker(x.index)
    if {x.index, made.index} & meets:
        return True
    if x.mark is None or y.mark is None:
        return False
    return x.size == y.size and same(x.mark, y.mark, x.near.or_more(y.near))  # weak ones, such as counts


def _between(gap: Gap, x: Operation, y: Operation) -> str:
    """Say how a value that B reads lies to one that A reads.

    A's value counts as it is before A moves its axes, too, and a weight of B's as it is before B does:
    the axes of products are a convention. Of these, values of the same axes tell most.
    """
    a, b = gap.a.program, gap.b.program
    weight = b.maker(y.index).kind == "parameter" and any(
        y.index in op.inputs and op.name in _PRODUCTS for op in b.operations[y.index :]
    )
    chains = list(_chain(a, x.index, moves=True)), list(_chain(b, y.index, moves=weight))
    tried: list[tuple[bool, str]] = []
    for i in chains[0]:
        for j in chains[1]:
            of_a, of_b = (np.asarray(p.values([k])[k]) for p, k in ((a, i), (b, j)))
            if of_a.size and of_b.size:
                words = relation(of_a, of_b)
                tried.append((_axes(of_a) != _axes(of_b) or words == OTHER_ORDER, words))
                if words == SAME:
                    return SAME
    return min(tried, key=lambda each: (each[0], *_rank(each[1])))[1] if tried else OTHER_ORDER


def _axes(value: np.ndarray) -> tuple[int, ...]:
    return long_axes(value.shape)


def _rank(words: str) -> tuple[bool, bool]:
    return not is_usual(words), words in (OTHER_ORDER, DIFFERS)


def _chain(program: Program, index: int, *, moves: bool) -> Iterator[int]:
    """Yield a value and those that it is a view of; with `moves` past exchanges of axes, too."""
    yield index
    op = program.operations[index]
    while op.is_layout and op.inputs and op.name != "flip" and (moves or op.name not in _MOVES):
        op = program.operations[op.inputs[0]]
        yield op.index
