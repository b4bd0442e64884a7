"""The line of B that most likely holds a difference, of those that a place shows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from parity.measure.nearness import CERTAIN
from parity.verifier.programs.operation import Construction, Operation, Ref, Source
from parity.verifier.programs.sources import outside_of_frameworks
from parity.verifier.report.handed_on import handed_on
from parity.verifier.report.sides import Line, Operand
from parity.verifier.search.exchange import computing
from parity.verifier.search.region import Gap, Kind, Region

_LITERAL = re.compile(r"(?<![\w.])\d+\.?\d*(?:[eE][-+]?\d+)?|(?<![\w.])\.\d+(?:[eE][-+]?\d+)?")
_ENDS = re.compile(r"stop_gradient\(|\.detach\(|\.data\b|no_grad")
_NUMBERS = frozenset(["epsilon", "number", "numbers", "arguments", "padding", "stride", "dilation"])
"""Causes that a module may have been given."""
_SCALES = frozenset(["mul", "div"])
_ORDERS = ("axes exchanged", "reversed", "shifted")
"""Beginnings of relations that tell how a value was moved."""


def likely_line(
    gap: Gap,
    kind: Kind,
    cause: str,
    lines: Sequence[Line],
    operands: Sequence[Operand],
    *,
    built: Construction | None,
) -> int | None:
    """Return the place of the likeliest among B's lines; None if there are none.

    Args:
        gap: the place.
        kind: its kind.
        cause: its cause; empty if it is not known.
        lines: B's lines.
        operands: what B's formula reads.
        built: where the module was built, if the last line is that one.
    """
    if not lines:
        return None
    if built is not None and (built.ready_made or not _is_written(gap, cause)):
        return len(lines) - 1
    operations = gap.b.program.operations
    sources = [operations[i].source for i in (*gap.b.operations, *gap.b.readers, gap.b.end)]
    inside = {_position(lines, each) for each in sources}
    if cause == "detached":
        ends = [k for k, line in enumerate(lines) if _ENDS.search(line.text)]
        return next((k for k in ends if _ends_a_parameter(gap, lines[k])), ends[0] if ends else 0)
    if kind == "open":  # the callers of all that is shown come first
        return min((each for each in inside if each is not None), default=0)
    if (cause and cause not in _NUMBERS) or 0 in inside:  # else the call is wrong
        for source in (*_of_the_cause(gap, cause), *([] if cause else _unlike(gap, kind, operands))):
            found = _position(lines, source)
            if found is not None:
                return _outside(lines, sources, found)
    return _outside(lines, sources, 0)


def _ends_a_parameter(gap: Gap, line: Line) -> bool:
    """Return whether a line lets no gradient through to a parameter itself."""
    program = gap.b.program
    return any(
        op.name in ("stop_gradient", "detach") and program.maker(op.inputs[0]).kind == "parameter"
        for op in program.operations if _position([line], op.source) == 0
    )  # fmt: skip


def _is_written(gap: Gap, cause: str) -> bool:
    """Return whether what is wrong stands on an operation's own line, not where its module was built: an
    operator does, and a number that the line holds."""
    if cause not in _NUMBERS:
        return True
    program = gap.b.program
    for op in (program.operations[i] for i in gap.b.operations):
        text = op.source.text if op.source else ""
        written = [float(each) for each in _LITERAL.findall(text)]
        scalars = _numbers(gap.b, op)
        if any(math.isclose(one, other, rel_tol=CERTAIN) for one in written for other in scalars):
            return True
    return False


def _outside(lines: Sequence[Line], sources: Sequence[Source | None], at: int) -> int:
    """Return the line of the user's code that called a framework's line."""
    own = next((each for each in sources if each and _position([lines[at]], each) == 0), None)
    called = None if own is None else outside_of_frameworks(own)
    found = _position(lines, called)
    return at if found is None else found


def _of_the_cause(gap: Gap, cause: str) -> list[Source | Line | None]:
    """Return the lines at which a known cause lies, the likeliest first."""
    program, end = gap.b.program, gap.b.end
    inside = [program.operations[i] for i in gap.b.operations]
    if cause.endswith("of a part"):
        return [program.operations[end].source]
    if cause == "factor":
        return [op.source for op in inside if op.name in _SCALES and _numbers(gap.b, op)]
    if cause in _NUMBERS:
        of_a = {each for i in gap.a.operations for each in _numbers(gap.a, gap.a.program.operations[i])}
        return [op.source for op in inside if {*_numbers(gap.b, op)} - of_a]
    if cause == "axis split the other way round":
        operations = program.operations
        splits = [op for op in inside if op.name == "reshape" and op.inputs]
        return [op.source for op in splits if len(op.shape) > len(operations[op.inputs[0]].shape)]
    if gap.b.readers and cause == "other value read":
        return [program.operations[gap.b.readers[-1]].source]
    if between := handed_on(gap, cause):
        return [between[0]]
    if gap.b.readers and not computing(gap.b) and computing(gap.a):
        return [program.operations[gap.b.readers[0]].source]  # what is left out, is so before it is read
    return []


def _unlike(gap: Gap, kind: Kind, operands: Sequence[Operand]) -> list[Source | Line | None]:
    """Return lines of a place without a known cause: those that make what B reads in another order, then
    those with the most operations that A does not have."""
    if kind != "operations":
        return []
    moved = [each.line for each in operands if each.relation.startswith(_ORDERS)]
    inside = [gap.b.program.operations[i] for i in gap.b.operations]
    of_a = Counter(gap.a.program.operations[i].name for i in gap.a.operations)
    alone: Counter[Source] = Counter()
    for op in inside:
        of_a[op.name] -= 1
        if of_a[op.name] < 0 and op.source is not None:
            alone[op.source] += 1 if op.is_layout else 3
    return [*moved, *(source for source, _ in alone.most_common())]


def _numbers(region: Region, op: Operation) -> list[float]:
    """Return the numbers among an operation's operands."""
    operations = region.program.operations
    held = [operations[e.index].number if isinstance(e, Ref) else e for e in op.operands]
    return [
        float(each) for each in held if each is not None and np.isrealobj(each) and np.ndim(each) == 0
    ]


def _position(lines: Sequence[Line], source: Source | Line | None) -> int | None:
    if source is None:
        return None
    at = (source.file, source.line)
    return next((k for k, line in enumerate(lines) if (line.file, line.line) == at), None)
