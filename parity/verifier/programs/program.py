"""A program as it ran: its operations in order, with source lines, ready to be run again."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from parity.measure.nearness import LEAST, Nearness
from parity.verifier.programs.fingerprint import fingerprint

Kind = Literal["input", "parameter", "constant", "operation"]

TRAINING = "was given in training mode; it is compared in evaluation mode"
"""Note on a model whose author forgot ``eval()``, or meant to compare what is random."""

REFUSES = "refuses float64 ({}); it ran in its own types, and is compared in float64"
"""Note on a program whose author demands a smaller number type."""

BUILT = "<built>"
"""Function of a line that built what runs, such as an optimiser; its caller is the line that runs it."""

MOST_LINES = 8
"""Most lines of a call that are shown."""

KEEP_BYTES = 256 * 2**20
"""Most bytes of values that a program keeps; the other values are recomputed when asked for."""


@dataclass(frozen=True)
class Source:
    """A line of the user's code."""

    file: str
    line: int
    function: str = ""
    caller: Source | None = field(default=None, compare=False, repr=False)
    """The line of the user's code that called the function."""

    @property
    def text(self) -> str:
        """The line itself, stripped; of a call that built something, all its arguments. Empty where the
        file cannot be read."""
        text = linecache.getline(self.file, self.line).strip()
        for line in range(self.line + 1, self.line + MOST_LINES) if self.function == BUILT else ():
            if sum(text.count(each) for each in "([{") <= sum(text.count(each) for each in ")]}"):
                break
            text += f" {linecache.getline(self.file, line).strip()}"
        return text

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class Ref:
    """An operand that another operation produced."""

    index: int


@dataclass(slots=True)
class Operation:
    """One value of a program and how it was made."""

    index: int
    name: str
    """In the vocabulary of `names.py`, the same for both frameworks: add, matmul, sum, ..."""
    operands: tuple[Any, ...]
    """`Ref`s, and numbers written in the program."""
    run: Callable[[Sequence[Any]], Any] | None
    """Function from the operands' values to this value; None for a leaf."""
    kind: Kind = "operation"
    label: str = ""
    """The path of a leaf; the attributes of an operation, as they are printed ("axis=-1")."""
    source: Source | None = None
    module: str = ""
    scope: str = ""
    """The library function that it is a part of ("gelu"), where there is one."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    mark: np.ndarray | None = None
    """Its fingerprint; None where it has no numbers (keys, tuples)."""
    near: Nearness = LEAST
    """What rounding may do to it; `nearness.py` measures that."""
    is_layout: bool = False
    """Whether it only moves or repeats the elements of its one operand."""
    epsilon: float = 0.0
    """Rounding of the number type that the program asked for; 0 for float64."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[int]:
        """The operations that it reads."""
        return [each.index for each in self.operands if isinstance(each, Ref)]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(repr=False)
class Program:
    """The operations of one run; those without `run` are leaves."""

    name: str
    operations: list[Operation] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)
    """Path and operation of each output."""
    kept: dict[int, Any] = field(default_factory=dict)
    """Values of leaves and of as many operations as the budget allows."""
    notes: list[str] = field(default_factory=list)
    """Facts that its author may not expect: what was done to it, what is random in it."""
    narrowed: dict[Source, str] = field(default_factory=dict)
    """Lines that ask for a smaller number type than their operands have, such as float32; the
    program is recorded in float64 all the same."""
    draws: dict[str, None] = field(default_factory=dict)
    """Lines that draw random numbers, in the order in which they run."""
    built: dict[str, Source] = field(default_factory=dict)
    """Lines at which modules were built, by their paths; only those that are known."""
    kept_bytes: int = 0
    ran: list[np.ndarray] = field(default_factory=list)
    """Outputs as the framework computed them, for a program recorded in a smaller type."""
    repaired: frozenset[int] = frozenset()
    """Operations with patched values: the other program's in place of their own."""
    owners: set[int] = field(default_factory=set)
    """Identities of the memory in which kept values lie."""

    def __len__(self) -> int:
        return len(self.operations)

    def __repr__(self) -> str:
        outputs = ", ".join(name or "output" for name, _ in self.outputs)
        return f"<Program {self.name}: {len(self)} operations; {outputs}>"

    def path(self, index: int) -> str:
        """Return the path of an output; empty where it has none."""
        return next((path for path, each in self.outputs if each == index), "")

    def keep(self, index: int, value: Any, *, always: bool = False) -> None:
        """Keep a value, within the budget or in any case."""
        owner, owned = _memory(value)
        if owner in self.owners:
            owned = 0
        if always or self.kept_bytes + owned <= KEEP_BYTES:
            self.kept[index] = value
            self.owners.add(owner)
            self.kept_bytes += 0 if always else owned

    def consumers(self) -> list[list[int]]:
        """Return, for each operation, the operations that read it."""
        found: list[list[int]] = [[] for _ in self.operations]
        for op in self.operations:
            for each in dict.fromkeys(op.inputs):
                found[each].append(op.index)
        return found

    def values(
        self,
        wanted: Iterable[int],
        given: Mapping[int, Any] | None = None,
        edges: Mapping[tuple[int, int], Any] | None = None,
    ) -> dict[int, Any]:
        """Compute the values of operations from those that are kept.

        Args:
            wanted: operations.
            given: patched values, by operation.
            edges: patched values for one consumer of an operation alone, as {(read, reader): value}.
        """
        given, edges = given or {}, edges or {}
        changed = self.behind(given, edges) if given or edges else set()
        known: dict[int, Any] = dict(given)
        wanted = list(wanted)
        need, stack = set(), list(wanted)
        while stack:
            index = stack.pop()
            if index in need or index in known:
                continue
            if index not in changed and index in self.kept:
                known[index] = self.kept[index]
                continue
            need.add(index)
            stack += [i for i in self.operations[index].inputs if (i, index) not in edges]
        uses: dict[int, int] = {}
        for index in need:
            for i in self.operations[index].inputs:
                uses[i] = uses.get(i, 0) + 1
        final = set(wanted)
        for index in sorted(need):
            op = self.operations[index]
            known[index] = self.apply(op, known, edges)
            for i in op.inputs:
                uses[i] -= 1
                if not uses[i] and i not in final and i not in given:
                    known.pop(i, None)
        return {each: known[each] for each in wanted}

    def apply(
        self, op: Operation, known: Mapping[int, Any], edges: Mapping[tuple[int, int], Any]
    ) -> Any:
        """Run one operation on the values of its operands."""
        assert op.run is not None, op
        operands = [
            edges[each.index, op.index]
            if isinstance(each, Ref) and (each.index, op.index) in edges
            else known[each.index]
            if isinstance(each, Ref)
            else each
            for each in op.operands
        ]
        return op.run(operands)

    def fed(
        self,
        given: Mapping[int, Any],
        edges: Mapping[tuple[int, int], Any],
        changed: Mapping[int, Operation] | None = None,
    ) -> Program:
        """Return the program with patched values, everything downstream of them run again; `changed`
        replaces operations as well, by index."""
        other = Program(
            self.name, list(self.operations), list(self.outputs), dict(self.kept), self.notes,
            self.narrowed, self.draws, self.built,
        )  # fmt: skip
        for index, value in given.items():
            old = self.operations[index]
            other.operations[index] = replace(old, operands=(), run=None, mark=fingerprint(value))
            other.kept[index] = value
        for index, op in (changed or {}).items():
            other.operations[index] = op
        by_value: dict[tuple[int, int], int] = {}
        for (read, reader), value in edges.items():
            old = self.operations[read]
            key = (read, id(value))
            if key not in by_value:
                leaf = replace(old, index=len(other), operands=(), run=None, mark=fingerprint(value))
                by_value[key] = leaf.index
                other.operations.append(leaf)
                other.kept[leaf.index] = value
            op = other.operations[reader]
            operands = tuple(
                Ref(by_value[key]) if isinstance(e, Ref) and e.index == read else e for e in op.operands
            )
            other.operations[reader] = replace(op, operands=operands)
        other.repaired = self.repaired | given.keys() | set(by_value.values())
        first = {reader for _, reader in edges} | set(changed or ())
        again = sorted(other.behind(given) | first | other.behind(first))
        for index in again:
            other.kept.pop(index, None)
        other.refresh([each for each in again if each not in given])
        return other

    def refresh(self, indices: Sequence[int]) -> None:
        """Run operations again and update their fingerprints."""
        last: dict[int, int] = {}
        for index in indices:
            for i in self.operations[index].inputs:
                last[i] = index
        outside = {i for index in indices for i in self.operations[index].inputs} - set(indices)
        known = self.values(sorted(outside))
        final = {index for _, index in self.outputs}
        for index in indices:
            op = self.operations[index]
            value = self.apply(op, known, {})
            known[index] = value
            if op.mark is not None:
                self.operations[index] = replace(op, mark=fingerprint(value))
            self.keep(index, value, always=index in final)
            for i in op.inputs:
                if last[i] == index:
                    known.pop(i, None)

    def behind(self, given: Iterable[int], edges: Iterable[tuple[int, int]] = ()) -> set[int]:
        """Return the operations downstream of those given, without these."""
        given = set(given)
        found = {reader for _, reader in edges} - given
        start = min([*given, *found], default=len(self))
        for op in self.operations[start:]:
            if op.index not in given and any(i in given or i in found for i in op.inputs):
                found.add(op.index)
        return found


def _memory(value: Any) -> tuple[int, int]:
    """Return the identity of the memory in which a value lies, and its size in bytes."""
    base: Any = getattr(value, "base", None)
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    of_torch = getattr(base, "untyped_storage", None)
    if of_torch is not None:
        storage = of_torch()
        return storage.data_ptr(), storage.nbytes()
    owner = value if base is None else base
    return id(owner), getattr(owner, "nbytes", 0)
