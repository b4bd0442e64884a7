"""Names of operations that one side alone has."""

from __future__ import annotations

import numpy as np

from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.numbers import SMALL
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import from_input, upstream, where
from parity.verifier.search.region import Region

_NO_NORM = frozenset(["matmul", "conv", "exp", "tanh", "erf", "erfc"])


def name_operations(region: Region, side: str, steps: list[int], start: int) -> Explanation:
    """Name operations that one side alone has, and say where they are."""
    program = region.program
    ops = [program.operations[i] for i in steps if not program.operations[i].is_layout]
    names = {op.name for op in ops}
    lines = ", ".join(dict.fromkeys(str(op.source) for op in ops if op.source is not None))
    if len(ops) == 1 and ops[0].name in ("add", "sub", "rsub", "mul", "div"):
        return _one(region, side, ops[0], start)
    numbers = [_number(program, op) for op in ops]
    if ops and None not in numbers:
        for kinds, what in ((_SUMS, "term"), (_PRODUCTS, "scale")):
            if names <= kinds:
                each = " and ".join(f"{op.name} {n:.10g}" for op, n in zip(ops, numbers, strict=True))
                name = f"one {what} too many" if side == "B" else f"{what} left out"
                return name, f"only {side} has {each}{_at(ops[-1])}"
    roots = any(_is_root(op) for op in ops)
    norm = roots and names & {"mean", "sum", "var"}
    if norm and not _dropped(region, steps, start) & _NO_NORM:
        return ("norm left out" if side == "A" else "one norm too many"), f"only {side} has {lines}"
    return ("left out" if side == "A" else "one step too many"), f"only {side} has {lines}"


_SUMS, _PRODUCTS = frozenset(["add", "sub", "rsub"]), frozenset(["mul", "div"])


def _is_root(op: Operation) -> bool:
    return op.name in ("rsqrt", "sqrt") or (op.name == "pow" and op.operands[1:] in ((0.5,), (-0.5,)))


def _number(program: Program, op: Operation) -> float | None:
    """Return the number that an operation adds or multiplies by, written or as a constant that holds it
    in each place; None where it has none."""
    numbers = [float(np.ravel(n)[0]) for n in op.operands if not isinstance(n, Ref) and np.size(n) == 1]
    for each in map(program.maker, op.inputs):
        made = not each.inputs and each.kind in ("constant", "operation")
        if made and each.number is not None:
            numbers.append(each.number)
    return numbers[0] if len(numbers) == 1 and len(op.operands) == 2 else None


def _dropped(region: Region, steps: list[int], start: int) -> set[str]:
    """Return the names of operations whose results no longer count where some are skipped."""
    program = region.program
    dropped = set(steps)
    if steps[-1] == region.end:
        dropped |= set(region.operations) - {start, *upstream(region, start)}
    return {program.operations[i].name for i in dropped}


def _one(region: Region, side: str, op: Operation, start: int) -> Explanation:
    """Name a sum or a product that one side alone has."""
    program, too_many = region.program, side == "B"
    sums = op.name in ("add", "sub", "rsub")
    number = [each for each in op.operands if not isinstance(each, Ref)]
    others = [program.operations[i] for i in op.inputs if not _leads(region, i, start)]
    if not others and not number:  # x + x is twice x
        message = f"only {side} has {op.name} of a value and itself{_at(op)}"
        return ("one factor too many" if too_many else "factor left out"), message
    if number or (others and others[0].size == 1):
        what = "term" if sums else "scale"
        if sums and number and abs(float(np.ravel(number[0])[0])) < SMALL and _guards(region, op):
            return "epsilon", f"only {side} adds {float(np.ravel(number[0])[0]):.10g}{_at(op)}"
        text = f"{op.name} {float(np.ravel(number[0])[0]):.10g}" if number else op.name
        message = f"only {side} has {text}{_at(op)}"
        return (f"one {what} too many" if too_many else f"{what} left out"), message
    base = program.maker(others[0].index)
    if base.kind == "parameter":
        name = "one parameter too many" if too_many else f"{'bias' if sums else 'gain'} left out"
        return name, f"only {side} has {op.name} {base.label}"
    what = "factor"
    if sums:
        own = base.index in {start, *upstream(region, start)} and from_input(region, base.index)
        what = "residual" if own else "term"
    return (f"one {what} too many" if too_many else f"{what} left out"), (
        f"only {side} {'adds' if sums else 'multiplies by'} the value of {where(base)}"
    )


def _guards(region: Region, op: Operation) -> bool:
    """Return whether a sum keeps a root or a divisor from zero."""
    program = region.program
    for reader in program.operations[op.index + 1 : op.index + 12]:
        if op.index in reader.inputs:
            return reader.name in ("sqrt", "rsqrt", "div", "reciprocal", "log", "pow", "maximum")
    return False


def _leads(region: Region, index: int, start: int) -> bool:
    """Return whether an operand is the value before the steps, moved at most."""
    program = region.program
    while True:
        if index == start:
            return True
        op = program.operations[index]
        if not op.is_layout or not op.inputs:
            return False
        index = op.inputs[0]


def _at(op: Operation) -> str:
    return f" at {op.source}" if op.source is not None else ""
