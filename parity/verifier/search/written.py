"""Numbers that are written in both programs, and that one program holds in a smaller type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program

TYPES = {2.0**-8: "bfloat16", 2.0**-11: "float16", 2.0**-24: "float32"}
"""Names of the smaller types, by their rounding."""
FLOAT32 = 2.0**-24
POWERS = (-2.0, -1.0, -0.5, 0.5, 2.0)
DERIVATIVES = (2 / math.sqrt(math.pi), -2 / math.sqrt(math.pi), math.sqrt(math.pi) / 2)
"""Numbers in JAX's derivatives of erf, erfc and the inverse of erf, written in the program's type:
bfloat16 has 1.125 for 2 / sqrt(pi)."""
FEWEST_DIGITS = 8
"""Fewest digits of a number that is the other program's with fewer: as many as float32 tells apart."""
NEXT = 2.0
"""Most roundings by which a number that was computed in a smaller type may be off: the root of a
width."""


def rounded(value: np.ndarray, epsilon: float) -> np.ndarray:
    """Round numbers to a smaller type; the result is float64."""
    import ml_dtypes

    name = TYPES[epsilon]
    return value.astype(getattr(ml_dtypes, name) if name == "bfloat16" else name).astype(np.float64)


def restore(program: Program, other: Program) -> tuple[Program, list[str]]:
    """Return a program with its rounded numbers restored from the other, and the lines where they stand.

    A number is restored only where the other program has one that rounds to it, or one whose inverse,
    square or root does: one program may divide logits by a scale, the other multiply queries and keys.

    `DERIVATIVES` are restored as well, although the other program lacks them: the derivative of GELU
    has one number in PyTorch and two in JAX. In types smaller than float32, this needs a
    multiplication with a bell curve.

    A number of Python is restored where it was written with fewer digits than the other program's.
    """
    exact = sorted({each for op in other.operations for each in _numbers(other, op)})
    powers = sorted({each**p for each in exact if 2.0**-32 < each < 2.0**32 for p in POWERS})
    readers = program.consumers()
    changed: dict[int, Operation] = {}
    given: dict[int, np.ndarray] = {}
    for op in program.operations:
        if op.epsilon not in TYPES:
            operands = tuple(_in_full(each, exact) for each in op.operands)
            if any(new is not old for new, old in zip(operands, op.operands, strict=True)):
                changed[op.index] = replace(op, operands=operands)
            continue
        if op.kind == "constant" and op.size == 1 and op.dtype[:3] == "flo":
            own = np.asarray(program.cache[op.index])
            known = [*exact, *DERIVATIVES] if op.epsilon == FLOAT32 else exact
            number = _exact(float(own.ravel()[0]), op.epsilon, known, powers)
            if number is not None:
                given[op.index] = np.full(own.shape, number)
            continue
        known = (
            [*exact, *DERIVATIVES]
            if op.epsilon == FLOAT32 or _of_a_bell(program, readers, op)
            else exact
        )
        operands = tuple(_restored(each, op.epsilon, known, powers) for each in op.operands)
        if any(new is not old for new, old in zip(operands, op.operands, strict=True)):
            changed[op.index] = replace(op, operands=operands)
    if not changed and not given:
        return program, []
    lines = [str(op.source or op.name) for op in changed.values()]
    return program.fed(given, {}, changed), [*lines, *("a constant" for _ in given)]


_CARRIED = frozenset(["convert", "broadcast", "stack", "slice"])
"""Operations between a value and what computes with it: loops stack what their backward passes read."""


def _of_a_bell(program: Program, readers: Sequence[Sequence[int]], op: Operation) -> bool:
    """Return whether a multiplication with a number, or one with its result, is also one with
    exp(-x ** 2), the derivative of erf but for a number."""
    if op.name != "mul" or len(op.inputs) != 1:
        return False
    factors, stack, seen = list(op.inputs), [op.index], set()
    while stack and len(seen) < _MOST_CARRIED:
        for i in set(readers[stack.pop()]) - seen:
            seen.add(i)
            each = program.operations[i]
            if each.is_layout or each.name in _CARRIED:
                stack.append(i)
            elif each.name == "mul":
                factors += each.inputs
    return any(_is_bell(program, i) for i in factors)


_MOST_CARRIED = 64
"""Most operations that are followed from a multiplication."""


def _is_bell(program: Program, index: int) -> bool:
    """Return whether a value is exp(-x ** 2) of some other."""

    def made(index: int) -> Operation:
        each = program.maker(index)
        return made(each.inputs[0]) if each.name in _CARRIED and each.inputs else each

    for name in ("exp", "neg"):
        op = made(index)
        if op.name != name or not op.inputs:
            return False
        index = op.inputs[0]
    squared = made(index)
    return bool(
        squared.name == "square"
        or (squared.name == "pow" and squared.operands[1:] == (2,))
        or (squared.name == "mul" and len(set(squared.inputs)) == 1)
    )


def _in_full(each: object, exact: list[float]) -> object:
    """Return the number that one is with fewer digits: the root of 2 / pi for 0.7978845608."""
    if not isinstance(each, float) or not np.isfinite(each) or each in exact:
        return each
    digits = len(np.format_float_scientific(each, trim="-").split("e")[0].strip("-").replace(".", ""))
    if digits < FEWEST_DIGITS:
        return each
    return next((own for own in exact if float(f"{own:.{digits - 1}e}") == each), each)


def _restored(each: object, epsilon: float, exact: list[float], powers: list[float]) -> object:
    if not isinstance(each, (float, np.floating)):
        return each
    number = _exact(float(each), epsilon, exact, powers)
    return each if number is None else number


def _exact(own: float, epsilon: float, exact: list[float], powers: list[float]) -> float | None:
    """Return the exact number that rounds to `own`; None where there is none, or `own` is exact."""
    if not np.isfinite(own) or own in exact:
        return None
    near = [each for each in exact if abs(each - own) <= NEXT * epsilon * abs(own)]
    if not near and not _is_simple(own):  # a half is not meant as the root of a quarter
        near = [each for each in powers if abs(each - own) <= NEXT * epsilon * abs(own)]
    if epsilon != FLOAT32:  # smaller types have too few numbers to be one off
        near = [e for e in near if rounded(np.asarray(e), epsilon) == rounded(np.asarray(own), epsilon)]
    return min(near, key=lambda each: abs(each - own), default=None)


def _is_simple(number: float) -> bool:
    """Return whether a number has at most four significant bits, as numbers that people write."""
    mantissa, _ = math.frexp(number)
    return not mantissa * 2**4 % 1


def _numbers(program: Program, op: Operation) -> Iterator[float]:
    """Yield the numbers that an operation is written with, or that a constant holds."""
    if op.kind == "constant" and op.size == 1 and op.dtype[:3] == "flo":
        yield float(np.ravel(program.cache[op.index])[0])
    for each in op.operands:
        if isinstance(each, (float, np.floating)) and not isinstance(each, Ref):
            yield float(each)
