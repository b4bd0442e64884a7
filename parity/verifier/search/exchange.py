"""Running a region again with one thing exchanged, to see whether that gives the other side's value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.measure.nearness import LEAST, MOST
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

UNEXPLAINED = 1e-4
"""Share of a difference that an exchange may leave, where that is less than rounding may ever do: of the
hundred exchanges that a judge tries, one fits so well by chance once in a hundred places."""
NEARER = 4.0
"""How many times nearer to one side than to the other a value is whose sides hardly differ."""


def grain(gap: Gap) -> float:
    """Return what rounding does to the values of a place, as nudges measured it."""
    return max(region.program.operations[region.end].near.norm for region in (gap.a, gap.b))


def find_differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return at which elements two values differ by more than rounding: of their own sizes, or of the
    largest, where one is zero in theory."""
    return ~np.isclose(
        a, b, rtol=MOST.norm, atol=LEAST.norm * np.abs(a[np.isfinite(a)]).max(initial=0.0)
    )


def is_a(gap: Gap, value: Any) -> bool:
    """Return whether a value is A's, far closer than B's own is; None is no value."""
    return value is not None and closer(gap.value_a, value, gap.error)


def is_b(gap: Gap, value: Any) -> bool:
    """Return whether a value is B's own, far closer than A's is."""
    return closer(gap.value_b, value, gap.error)


def closer(wanted: np.ndarray, value: Any, error: float) -> bool:
    """Return whether a value is the wanted one, up to rounding and far less than an error."""
    value = np.asarray(value)
    limit = min(MOST.norm, max(UNEXPLAINED * error, LEAST.norm), error / NEARER)
    return value.shape == np.shape(wanted) and distance(wanted, value) <= limit


def closer_moved(wanted: np.ndarray, value: Any, error: float) -> bool:
    """Return whether a value is the wanted one in some layout; None is no value."""
    if value is None:
        return False
    layouts = arrangements(np.asarray(value), np.shape(wanted))
    return any(closer(wanted, each, error) for each in layouts)


def layouts_of(value: Any, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield a value in each layout that has a shape; where its size does not fit, yield it unchanged."""
    value = np.asarray(value)
    return arrangements(value, shape) if value.size == math.prod(shape) else iter([value])


def rerun(
    region: Region,
    changed: Mapping[int, Operation] | None = None,
    given: Mapping[int, Any] | None = None,
) -> Any:
    """Compute the value at a region's end with operations or values exchanged; None if that cannot run,
    or makes several results.

    Args:
        region: the region to run; values that it reads from outside stay.
        changed: operations to run in the place of those with their index.
        given: patched values, by operation, in the region or outside.
    """
    changed, given = changed or {}, given or {}
    program, inside = region.program, set(region.operations)
    needed = {i for o in region.operations for i in changed.get(o, program.operations[o]).inputs}
    known = {**program.values(sorted(needed - inside - set(given))), **given}
    try:
        with np.errstate(all="ignore"):
            for each in region.operations:
                if each not in given:
                    known[each] = program.apply(changed.get(each, program.operations[each]), known, {})
    except Exception:  # other shapes may not fit what follows
        return None
    value = known.get(region.end)
    return None if isinstance(value, (tuple, list)) else value


def outside(region: Region) -> list[int]:
    """Return the values that a region reads; its end where it computes nothing."""
    inside = set(region.operations)
    read = {i for o in region.operations for i in region.program.operations[o].inputs} - inside
    return sorted(read) or [region.end]


def computing(region: Region) -> list[Operation]:
    """Return the operations of a region that do more than move elements."""
    ops = (region.program.operations[i] for i in region.operations)
    return [op for op in ops if not op.is_layout]


def same(one: Operation, other: Operation, index: Index) -> bool:
    """Return whether two values, of either program, hold the same numbers."""
    a, b = index.meets(one), index.meets(other)
    return bool({each.index for each in a} & {each.index for each in b})


def where(operation: Operation) -> str:
    """Name a value for a message: by its path or by its line."""
    if operation.kind == "constant":
        return f"a constant {list(operation.shape)}"
    label = operation.label if operation.run is None else ""
    return str(label or operation.source or operation.name)


def upstream(region: Region, index: int, limit: int = 4000) -> Iterator[int]:
    """Yield the operations that a value depends on, itself excluded."""
    program, seen, stack = region.program, set(), list(region.program.operations[index].inputs)
    while stack and len(seen) < limit:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield each
            stack += program.operations[each].inputs


def from_input(region: Region, index: int) -> bool:
    """Return whether a value is an input or depends on one: tables of positions or sines do not."""
    operations = region.program.operations
    return any(operations[i].kind == "input" for i in (index, *upstream(region, index)))
