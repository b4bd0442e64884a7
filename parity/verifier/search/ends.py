"""Candidate ends of a fault: pairs of values, one of each program, that can hold the same numbers."""

from __future__ import annotations

from parity.verifier.programs.fingerprint import ABOVE, INFINITE
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.constants import constants_of
from parity.verifier.search.meeting import is_noise

LARGEST_REGION = 60
"""Most operations before the end of a fault, layout not counted. A value that depends on neither an
input nor a parameter, such as a power taken in a loop, may always be an end."""


def ends_of(program: Program, unmet: set[int], roots: set[int], depth: int = 0) -> list[tuple[int, int]]:
    """List the values that may end a fault, each with the number of operations before it: few first.

    Args:
        program: the program of the values.
        unmet: operations from which a path leads to a root through no meeting value.
        roots: outputs that differ.
        depth: how many operations upstream of these to include: angles may meet where their
            cosines and sines do not, because the other program computes the angles twice.
    """
    before: dict[int, int] = {}
    bits: dict[int, int] = {}
    boundary: set[int] = set()
    constants = constants_of(program)
    for number, index in enumerate(sorted(unmet)):
        op = program.operations[index]
        mask = 0 if op.is_layout or not op.operands else 1 << number
        for i in op.inputs:
            if i in unmet:
                mask |= bits[i]
            else:
                boundary.add(i)
        bits[index] = mask
        size = mask.bit_count()
        if (size <= LARGEST_REGION or index in constants) and op.mark is not None:
            before[index] = size
    if not unmet:
        boundary |= roots
    # what is round-off, as the mean of what a norm has centred, is near anything
    edge = {i for i in boundary if not is_noise(program.operations[i])}
    for _ in range(depth):
        edge = {i for each in edge for i in program.operations[each].inputs} - boundary
        boundary = boundary | edge
    ends = [(i, 0) for i in boundary if program.operations[i].mark is not None]
    fixed = {i for i in constants if _is_one_number(program.operations[i])}
    return sorted(
        (e for e in [*ends, *before.items()] if e[0] not in fixed or e[0] in roots),
        key=lambda each: (each[1], each[0]),
    )


def _is_one_number(op: Operation) -> bool:
    """Return whether all elements of a value are the same number, or the same infinity."""
    infinite = op.mark is not None and op.mark[INFINITE] in (1, 1 + ABOVE)
    return op.number is not None or infinite


def spread(program: Program, unmet: set[int]) -> list[tuple[int, int]]:
    """List, as ends, the values that reach their consumers through several layout operations, such as a
    row of cosines repeated once for each half that it turns."""
    layouts: dict[int, set[int]] = {}
    for each in unmet:
        for i in program.operations[each].inputs:
            while i not in unmet and program.operations[i].is_layout and program.operations[i].inputs:
                (made,) = program.operations[i].inputs
                layouts.setdefault(made, set()).add(i)
                i = made
    return [(i, 0) for i, several in sorted(layouts.items()) if len(several) > 1]


_FLOATING = ("flo", "com")


def pairs_of(
    a: Program, b: Program, ends_a: list[tuple[int, int]], ends_b: list[tuple[int, int]]
) -> list[tuple[int, int, int, int]]:
    """Pair ends that can hold the same value: small regions first, then similar operations."""
    ranked = []
    by_size: dict[int, list[tuple[int, int]]] = {}
    for y, size_b in ends_b:
        by_size.setdefault(b.operations[y].size, []).append((y, size_b))
    for x, size_a in ends_a:
        of_a = a.operations[x]
        n = of_a.size
        fitting = [
            each for m, ys in by_size.items() if n == m or (1 < n < m and m % n == 0) for each in ys
        ]
        for y, size_b in fitting:
            of_b = b.operations[y]
            if (of_a.dtype[:3] in _FLOATING) != (of_b.dtype[:3] in _FLOATING):
                continue
            unlike = (of_a.kind != of_b.kind) + (of_a.size != of_b.size) + (of_a.shape != of_b.shape)
            size_b += 2 * (of_a.size != of_b.size)  # repeating A's value is a last resort
            order = (size_a + size_b, abs(size_a - size_b), unlike, of_a.name != of_b.name, y, x)
            ranked.append((order, (size_a, size_b, x, y)))
    ranked.sort(key=lambda each: each[0])
    return [each for _, each in ranked]


def window_of(program: Program, ends: list[tuple[int, int]]) -> set[int]:
    """Return the values that trials read: the ends and their operands."""
    wanted = {index for index, _ in ends}
    for index, _ in ends:
        wanted.update(program.operations[index].inputs)
    return wanted
