"""Branches of residual connections: a value, what is computed of it alone, and their sum."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

import numpy as np

from parity.measure.shown import first_three
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.exchange import rerun
from parity.verifier.search.region import Region

LARGEST = 400
"""Largest branch, in operations."""


class Branch(NamedTuple):
    """What is added to a value, and is computed of it and of parameters alone."""

    read: int
    end: int
    sum: int
    operations: list[int]


def chains(program: Program) -> list[list[Branch]]:
    """Return the branches of a program, those of which each reads the sum of the one before together."""
    of_input = {op.index for op in program.operations if op.kind == "input"}
    of_input |= program.behind(of_input)
    ends: dict[int, list[Branch]] = {}
    """Each chain so far, by its last sum."""
    for op in program.operations:
        branch = _branch(program, op, of_input) if op.name == "add" else None
        if branch is not None:
            before = ends.pop(program.maker(branch.read).index, [])
            ends[branch.sum] = [*before, branch]
    return [chain for chain in ends.values() if len(chain) > 1]


def added(program: Program, branch: Branch, value: np.ndarray) -> np.ndarray | None:
    """Return a value and a branch of it, added; None where that cannot run."""
    region = Region(program, branch.end, branch.operations)
    made = rerun(region, given={branch.read: value.reshape(program.operations[branch.read].shape)})
    return None if made is None else value + np.asarray(made).reshape(value.shape)


def name_of(program: Program, operations: Iterable[int]) -> str:
    """Name a layer by its parameters: what their names begin with, if no others' do."""
    read = {program.maker(i).index for each in operations for i in program.operations[each].inputs}
    named = [op for op in program.operations if op.kind == "parameter"]
    labels = [op.label for op in named if op.index in read]
    start = _beginning(labels)
    alone = len(labels) > 1 and all(op.index in read for op in named if op.label.startswith(start))
    return start.rstrip("._") if start and alone else first_three(labels)


def _beginning(labels: list[str]) -> str:
    """Return what all labels begin with, up to a point or an underscore."""
    first, last = min(labels, default=""), max(labels, default="")
    length = next((i for i, (x, y) in enumerate(zip(first, last, strict=False)) if x != y), len(first))
    return first[: max(first.rfind(each, 0, length) for each in "._") + 1]


def _branch(program: Program, op: Operation, of_input: Set[int]) -> Branch | None:
    """Return the branch that an addition adds; None where it adds something else."""
    sizes = {program.operations[i].size for i in op.inputs}
    if len(set(op.inputs)) != 2 or sizes != {op.size} or op.size < 2:
        return None
    for read, end in (op.inputs, op.inputs[::-1]):
        operations = _between(program, read, end, of_input)
        if operations:
            return Branch(read, end, op.index, operations)
    return None


def _between(program: Program, read: int, end: int, of_input: Set[int]) -> list[int]:
    """Return the operations from a value to another that is computed of it and of parameters alone; none
    where it is computed of more."""
    inside: set[int] = set()
    stack = [end]
    while stack:
        index = stack.pop()
        if index in inside or index == read or index not in of_input:
            continue
        if len(inside) == LARGEST or index < read:
            return []
        inside.add(index)
        stack += program.operations[index].inputs
    return sorted(inside)
