"""A program as it ran: its operations in order, with source lines, ready to be run again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.operation import Construction, Operation, Ref, Source

TRAINING = "was given in training mode; it is compared in evaluation mode"
"""Note on a model whose author forgot ``eval()``, or meant to compare what is random."""

REFUSES = "refuses float64 ({}); it ran in its own types, and is compared in float64"
"""Note on a program whose author demands a smaller number type."""

KEEP_BYTES = 96 * 2**20
"""Most bytes of values that a program keeps; the other values are recomputed when asked for."""


class RunPlan(NamedTuple):
    """How the values of some operations are computed."""

    cached: tuple[int, ...]
    """The operations whose cached values are read."""
    steps: tuple[tuple[int, list[int]], ...]
    """The operations to run, in order, and the values that are not read after each of them."""


@dataclass(repr=False)
class Program:
    """The operations of one run; those without `run` are leaves."""

    name: str
    operations: list[Operation] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)
    """Path and operation of each output."""
    cache: dict[int, Any] = field(default_factory=dict)
    """Values of leaves, and cached ones of as many operations as the budget allows."""
    notes: list[str] = field(default_factory=list)
    """Facts that its author may not expect: what was done to it, what is random in it."""
    narrowed: dict[Source, str] = field(default_factory=dict)
    """Lines that ask for a smaller number type than their operands have, such as float32; the
    program is recorded in float64 all the same."""
    draws: dict[str, None] = field(default_factory=dict)
    """Lines that draw random numbers, in the order in which they run."""
    built: dict[str, Construction] = field(default_factory=dict)
    """Where modules were built, by their paths; only where that is known."""
    cache_bytes: int = 0
    ran: list[np.ndarray] = field(default_factory=list)
    """Outputs as the framework computed them, for a program recorded in a smaller type."""
    repaired: frozenset[int] = frozenset()
    """Operations with patched values: the other program's in place of their own."""
    owners: set[int] = field(default_factory=set)
    """Identities of the memory in which cached values lie."""
    without_numbers: list[str] = field(default_factory=list)
    """What it returns besides, of which nothing can be compared: path and class of each."""
    is_aligned: bool = False
    """Whether its outputs were brought into the layouts of the program that it is compared with."""
    cut_off: set[int] = field(default_factory=set)
    """Operations that hold what torch returns as no tensor, through which no gradient flows."""
    promises_more: bool = False
    """Whether it stands for a preset or a checkpoint: it returns all that the other side may be asked
    for, and the other side need not return all of it."""
    trained: list[str] = field(default_factory=list)
    """What is on in the model as it is given, and off as it is compared: "dropout (0.5, port.py:12)"."""

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
        if always or self.cache_bytes + owned <= KEEP_BYTES:
            self.cache[index] = value
            self.owners.add(owner)
            self.cache_bytes += 0 if always else owned

    def maker(self, index: int) -> Operation:
        """Return the operation that made a value, without those that moved its elements after it."""
        op = self.operations[index]
        while op.is_layout and op.inputs:
            op = self.operations[op.inputs[0]]
        return op

    def consumers(self) -> list[list[int]]:
        """Return, for each operation, the operations that read it."""
        consumers: list[list[int]] = [[] for _ in self.operations]
        for op in self.operations:
            for each in dict.fromkeys(op.inputs):
                consumers[each].append(op.index)
        return consumers

    def values(
        self,
        wanted: Iterable[int],
        given: Mapping[int, Any] | None = None,
    ) -> dict[int, Any]:
        """Compute the values of operations from those that are cached.

        Args:
            wanted: operations.
            given: patched values, by operation.
        """
        given, wanted = given or {}, list(wanted)
        return self.run(self.plan(wanted, given, ()), wanted, given, {})

    def plan(
        self, wanted: Iterable[int], given: Collection[int], edges: Collection[tuple[int, int]]
    ) -> RunPlan:
        """Return how operations are computed from cached values and those that will be patched."""
        changed = self.behind(given, edges) if given or edges else set()
        final, read = set(wanted), set()
        need: set[int] = set()
        stack = [*final]
        while stack:
            index = stack.pop()
            if index in need or index in given or index in read:
                continue
            if index not in changed and index in self.cache:
                read.add(index)
                continue
            need.add(index)
            stack += [i for i in self.operations[index].inputs if (i, index) not in edges]
        steps: list[tuple[int, list[int]]] = []
        spared = final | set(given)
        for index in sorted(need, reverse=True):  # from behind, the first reader of a value is its last
            last = [i for i in dict.fromkeys(self.operations[index].inputs) if i not in spared]
            spared.update(last)
            steps.append((index, last))
        return RunPlan(tuple(read), tuple(reversed(steps)))

    def run(
        self,
        plan: RunPlan,
        wanted: Iterable[int],
        given: Mapping[int, Any],
        edges: Mapping[tuple[int, int], Any],
    ) -> dict[int, Any]:
        """Compute the values of operations as a plan says; see `values`.

        Args:
            plan: how to compute them.
            wanted: operations.
            given: patched values, by operation.
            edges: patched values for one consumer of an operation alone, as {(read, reader): value}.
        """
        known: dict[int, Any] = {**given, **{i: self.cache[i] for i in plan.cached}}
        for index, last in plan.steps:
            known[index] = self.apply(self.operations[index], known, edges)
            for i in last:
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
            self.name, list(self.operations), list(self.outputs), dict(self.cache), self.notes,
            self.narrowed, self.draws, self.built, without_numbers=self.without_numbers,
            cut_off=self.cut_off, promises_more=self.promises_more, trained=self.trained,
        )  # fmt: skip
        for index, value in given.items():
            old = self.operations[index]
            other.operations[index] = replace(old, operands=(), run=None, mark=fingerprint(value))
            other.cache[index] = value
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
                other.cache[leaf.index] = value
            op = other.operations[reader]
            operands = tuple(
                Ref(by_value[key]) if isinstance(e, Ref) and e.index == read else e for e in op.operands
            )
            other.operations[reader] = replace(op, operands=operands)
        other.repaired = self.repaired | given.keys() | set(by_value.values())
        first = {reader for _, reader in edges} | set(changed or ())
        again = sorted(other.behind(given) | first | other.behind(first))
        for index in again:
            other.cache.pop(index, None)
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

    def upstream(self, roots: Iterable[int], stop: Collection[int] = ()) -> set[int]:
        """Return the roots, and the operations from which a path leads to one past none of `stop`."""
        operations: set[int] = set()
        stack = list(roots)
        while stack:
            index = stack.pop()
            if index in operations or index in stop or self.operations[index].run is None:
                continue
            operations.add(index)
            stack += self.operations[index].inputs
        return operations

    def behind(self, given: Iterable[int], edges: Iterable[tuple[int, int]] = ()) -> set[int]:
        """Return the operations downstream of those given, without these."""
        given = set(given)
        behind = {reader for _, reader in edges} - given
        start = min([*given, *behind], default=len(self))
        for op in self.operations[start:]:
            if op.index not in given and any(i in given or i in behind for i in op.inputs):
                behind.add(op.index)
        return behind


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
