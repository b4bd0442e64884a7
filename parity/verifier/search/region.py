"""Gaps between two programs: a region of each, and a value downstream of which all meets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program

Kind = Literal["operations", "order", "parameter", "digits", "rounding", "input", "open"]
"""Kind of a place at which two programs part."""


@dataclass
class Region:
    """The operations of one side that belong to a fault, and what they read from outside."""

    program: Program
    end: int
    """The value downstream of which all meets."""
    operations: list[int]
    readers: list[int] = field(default_factory=list)
    """The operations that read a wrong value, where nothing was computed wrongly."""

    def behind(self, most: int) -> Region:
        """Return the operations that follow the end, the first of them in the program's order.

        Args:
            most: how many of them at most.
        """
        behind: list[int] = []
        reached = {self.end}
        for op in self.program.operations[self.end + 1 :]:
            if len(behind) == most:
                break
            if reached.intersection(op.inputs):
                behind.append(op.index)
                reached.add(op.index)
        return Region(self.program, behind[-1] if behind else self.end, behind)


@dataclass
class Gap:
    """One place at which the programs part: what lies, in each, between the values that meet before it
    and the first that meet again."""

    a: Region
    b: Region
    value_a: np.ndarray
    """A's value in B's layout."""
    value_b: np.ndarray
    """B's value."""
    closed: bool = True
    """Whether anything meets again."""
    repaired: Program | None = None
    """B patched with A's value here."""
    siblings: tuple[int, ...] = ()
    """Further, equal values of B that the same line makes, patched as well."""
    traced: bool = False
    """Whether it was moved to where an order arose."""

    @property
    def error(self) -> float:
        """||a - b|| / ||a||."""
        return distance(self.value_a, self.value_b)


def first(program: Program, among: set[int]) -> list[int]:
    """Return the operations of `among` that read nothing in it; only those with operands, if any."""
    first_ones = [
        i for i in sorted(among) if not any(each in among for each in program.operations[i].inputs)
    ]
    written = [i for i in first_ones if program.operations[i].operands]
    return written or first_ones


def before_of(program: Program, end: int, among: set[int]) -> list[int]:
    """Return the operations of `among` that lead to a value, itself included, in order."""
    before: set[int] = set()
    stack = [end]
    while stack:
        index = stack.pop()
        if index in before or index not in among:
            continue
        before.add(index)
        stack += program.operations[index].inputs
    return sorted(before)


ROWS = frozenset(["slice", "dynamic_slice", "squeeze", "select", "gather", "index_select", "unbind"])
"""Operations that take a row of a stack."""


def stack_of(program: Program, index: int) -> Operation:
    """Return the operation that made a value, or the stack of which it is a row, moved or not."""
    op = program.operations[index]
    while op.inputs and (op.name in ROWS or (op.is_layout and len(op.inputs) <= 2)):
        op = program.operations[op.inputs[0]]
    return op


def computing_with(
    program: Program, index: int, readers: Sequence[Sequence[int]], through: Collection[str] = ()
) -> list[int]:
    """Return the operations that compute with a value, moved or not, or with what names in `through`
    make of it."""
    computing, stack = [], [index]
    while stack:
        for reader in readers[stack.pop()]:
            op = program.operations[reader]
            (stack if op.is_layout or op.name in through else computing).append(reader)
    return computing


def recurrent(program: Program, readers: Sequence[Sequence[int]]) -> set[int]:
    """Return the parameters that one line reads several times alike, as in a loop over time."""
    parameters = set()
    for op in program.operations:
        if op.kind != "parameter":
            continue
        seen: set[tuple[object, ...]] = set()
        stack: list[tuple[int, tuple[str, ...]]] = [(op.index, ())]
        while stack:
            index, moves = stack.pop()
            for reader in readers[index]:
                each = program.operations[reader]
                if each.is_layout:
                    stack.append((reader, (*moves, each.name)))
                    continue
                shapes = tuple(program.operations[i].shape for i in each.inputs)
                axes = str(each.extra.get("params", {}).get("dimension_numbers", ""))
                key = each.name, each.source, each.label, shapes, axes, moves
                if key in seen:
                    parameters.add(op.index)
                seen.add(key)
    return parameters
