"""Search for operations that must stay in float32 for a run in a smaller type to stay within a bound.

The search is delta debugging (`parity.measure.smallest`), first over lines of source, then over the
operations of the lines that remain. Its result is 1-minimal: with any one operation left out the bound
is broken, which is tried at the end. Errors can cancel, so a smaller set that is not a subset may exist.
It takes about k log(n / k) reruns for k operations of n that act alone, and up to n squared in the worst
case.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from parity.measure.seen import unseen
from parity.measure.shown import first_three
from parity.measure.smallest import smallest
from parity.verifier.choices import LOW, Low
from parity.verifier.precision.rounded import RoundedProgram
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.sides import record
from vit_config import ConfigError

SCHEMA = "parity.precision/1"


@dataclass(frozen=True)
class HeldOperation:
    """An operation that must stay in float32."""

    operation: str
    file: str
    line: int
    text: str
    module: str
    shape: tuple[int, ...]
    without: float
    """Error if all the others stay in float32 and this one does not."""


def _times(same: Sequence[HeldOperation]) -> str:
    """Describe all runs of one operation of one line."""
    first = same[0]
    modules = list(dict.fromkeys(each.module for each in same if each.module))
    inside = f" in {first_three(modules)}" if modules else ""
    if len(same) == 1:
        return f"{first.operation} {list(first.shape)}{inside}; {first.without:.2g} without it"
    least, most = min(each.without for each in same), max(each.without for each in same)
    without = f"{least:.2g} to {most:.2g} without one of them"
    return f"{first.operation} {list(first.shape)}, {len(same)} times{inside}; {without}"


@dataclass(frozen=True)
class Bisection:
    """Result of `bisect_precision`."""

    dtype: Low
    bound: float
    low: float
    """Error with every operation in the smaller type."""
    high: float
    """Error with every operation in float32."""
    ran: float
    """Error of the framework's own run in the smaller type; for TF32, of its run in float32."""
    error: float
    """Error with the operations in `held` in float32."""
    held: tuple[HeldOperation, ...]
    operations: int
    """Number of operations that lose digits to the smaller type."""
    runs: int
    """Number of runs of the program."""
    seconds: float
    remarks: tuple[str, ...] = ()
    """What was done to the program that its author may not expect."""
    unseen: str = ""
    """Why no error could show in the outputs; empty if one could."""

    @property
    def possible(self) -> bool:
        """Whether float32 throughout stays within the bound."""
        return self.high <= self.bound

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; a field is never renamed or removed within a version of `schema`."""
        return {"schema": SCHEMA, "possible": self.possible, **asdict(self)}

    def to_text(self) -> str:
        """Return the result as text."""
        own = "float32" if self.dtype == "tf32" else self.dtype
        head = [
            f"all in {self.dtype}: {self.low:.2g} from float64 (bound {self.bound:g}); the framework's"
            f" own {own} run: {self.ran:.2g}"
        ]
        if not self.possible:
            return "\n".join([*head, f"IMPOSSIBLE: all in float32 it is {self.high:.2g}"])
        if self.unseen:
            return "\n".join([*head, f"UNCERTIFIED: what is compared says nothing: {self.unseen}"])
        if not self.held:
            return "\n".join([*head, f"none of {self.operations} operations must stay in float32"])
        count = len(self.held)
        head.append(
            f"{count} of {self.operations} operations must stay in float32; then it is {self.error:.2g}"
        )
        lines: list[str] = []
        by_line: dict[tuple[str, int], dict[str, list[HeldOperation]]] = {}
        for each in self.held:
            by_line.setdefault((each.file, each.line), {}).setdefault(each.operation, []).append(each)
        for (file, line), operations in by_line.items():
            text = next(iter(operations.values()))[0].text
            lines += ["", f"  {file.rpartition('/')[2]}:{line}  {text}"]
            lines += [f"    {_times(each)}" for each in operations.values()]
        tail = f"1-minimal, by delta debugging in {self.runs} reruns ({self.seconds:.1f} s)"
        return "\n".join([*head, *lines, "", tail])


def bisect_precision(side: Any, dtype: Low = "bfloat16", *, bound: float) -> Bisection:
    """Find operations that must stay in float32 for a run in a smaller type to stay within a bound.

    Parameters and inputs are rounded to the type first (for TF32, to float32). Errors are those from
    the same program in float64 on these rounded values. An operation that stays in float32 has its
    result held in float32; values that the program itself computes in float32 stay there anyway.

    Args:
        side: a program, see `parity.verifier.programs.sides.record`.
        dtype: ``bfloat16``, ``float16``, or ``tf32``, where products keep ten bits of their factors.
        bound: the largest relative error of an output, in the norm.

    Raises:
        ConfigError: the type is unknown, or the bound is not positive.
        InputError: the program cannot be run.
    """
    if dtype not in LOW:
        raise ConfigError(f"dtype = {dtype!r}: must be one of {', '.join(LOW)}")
    if not bound > 0:
        raise ConfigError(f"bound = {bound}: must be positive")
    started = time.perf_counter()
    program = record(side, "the program", dtype="float32" if dtype == "tf32" else dtype)
    rounded = RoundedProgram(program, dtype)
    known: dict[frozenset[int], float] = {}

    def error(high: Sequence[int]) -> float:
        key = frozenset(high)
        if key not in known:
            known[key] = rounded.error(key)
        return known[key]

    every = rounded.candidates
    low, high = error([]), error(every)
    held: list[int] = []
    if high <= bound < low:
        of_line = {i: program.operations[i].source for i in every}
        held = smallest(of_line, lambda some: error(some) <= bound)
    rest = [_held(program.operations[i], error([j for j in held if j != i])) for i in held]
    return Bisection(dtype, bound, low, high, rounded.ran_error(), error(held), tuple(rest), len(every),
                     rounded.runs, time.perf_counter() - started,
                     tuple(program.notes), "" if low else unseen(rounded.exact))  # fmt: skip


def _held(op: Operation, without: float) -> HeldOperation:
    source = op.source
    file, line, text = (source.file, source.line, source.text) if source else ("", 0, "")
    return HeldOperation(op.scope or op.name, file, line, text, op.module, op.shape, without)
