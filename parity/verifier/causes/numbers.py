"""Numbers of B's formula that differ from A's: written ones, and constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.measure.nearness import LEAST
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.search.exchange import is_a, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

SMALL = 0.01
"""Numbers below are added to keep a divisor from zero."""
MOST_TRIALS = 100


@dataclass(frozen=True)
class Slot:
    """A place of a formula at which a number stands."""

    operation: Operation
    position: int
    value: Any
    leaf: int | None
    """The constant that holds it; None where it is written in the operation."""

    def holds(self, other: Any) -> bool:
        """Return whether the slot holds the same number, or the same numbers."""
        return np.shape(self.value) == np.shape(other) and bool(np.all(self.value == other))

    def text(self) -> str:
        """Write the number as a message shows it."""
        flat = np.ravel(self.value)
        flat = flat[:1] if (flat == flat[0]).all() else flat
        text = ", ".join(f"{float(each):.10g}" for each in flat[:3])
        return text if flat.size == 1 else f"[{text}{', …' if flat.size > 3 else ''}]"


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find a number of B's formula that, exchanged for one of A's, gives A's value; or exchange all."""
    gap = replace(gap, a=_with_limit(gap.a), b=_with_limit(gap.b))
    own, wanted = list(slots(gap.b)), list(slots(gap.a))
    tried = 0
    for slot in own:
        for other in wanted:
            if tried >= MOST_TRIALS:
                break
            if slot.holds(other.value) or not _can_stand(other, slot, gap):
                continue
            tried += 1
            if is_a(gap, run_with_constants(gap.b, [(slot, other.value)])):
                return _name(slot, other), f"{slot.text()} where A has {other.text()}"
    inverse = _inverse(gap, own, wanted)
    if inverse is not None:
        return inverse
    pairs = [(b, a) for b, a in zip(own, wanted, strict=False) if not b.holds(a.value)]
    say = len(own) == len(wanted) and len(pairs) > 1 and all(_can_stand(a, b, gap) for b, a in pairs)
    if say and is_a(gap, run_with_constants(gap.b, [(b, a.value) for b, a in pairs])):
        return "numbers", "; ".join(f"{b.text()} where A has {a.text()}" for b, a in pairs)
    return _everywhere(gap, own, wanted)


def _inverse(gap: Gap, held: list[Slot], wanted: list[Slot]) -> Explanation | None:
    """Find a number by which B divides and A multiplies, or the other way round, and which is not the
    inverse of A's."""
    tried = 0
    for own in (each for each in held if _scales(each)):
        for other in (each for each in wanted if _scales(each) and _divides(each) != _divides(own)):
            tried += 1
            if tried > MOST_TRIALS or own.holds(1 / other.value):
                continue
            if is_a(gap, run_with_constants(gap.b, [(own, 1 / other.value)])):
                text = f"{1 / float(np.ravel(other.value)[0]):.10g}"
                return "number", f"{own.text()} where A has {text} = 1 / {other.text()}"
    return None


def _scales(slot: Slot) -> bool:
    """Return whether a slot's one number multiplies or divides something."""
    multiplies = slot.operation.name == "mul" or _divides(slot)
    return multiplies and np.size(slot.value) == 1 and bool(np.all(slot.value))


def _divides(slot: Slot) -> bool:
    return slot.operation.name == "div" and slot.position == 1


def _everywhere(gap: Gap, held: list[Slot], wanted: list[Slot]) -> Explanation | None:
    """Find a number to exchange wherever B has it, along with one minus it: a decay rate, of which both
    are written."""
    of_a, of_b = (
        list(dict.fromkeys(float(each.value) for each in some if np.ndim(each.value) == 0))
        for some in (wanted, held)
    )
    tried = 0
    for own in sorted(of_b, reverse=True):  # 0.999 says more than 0.001
        places = [slot for slot in held if np.ndim(slot.value) == 0 and slot.value == own]
        rest = [s for s in held if np.ndim(s.value) == 0 and abs(s.value + own - 1) <= LEAST.norm]
        for other in (each for each in of_a if each != own and 0 < each < 1):
            if len(places) + len(rest) < 2 or not 0 < own < 1 or tried >= MOST_TRIALS:
                break
            tried += 1
            pairs = [*((slot, other) for slot in places), *((slot, 1 - other) for slot in rest)]
            if is_a(gap, run_with_constants(gap.b, pairs)):
                return "number", f"{own:.10g} where A has {other:.10g}"
    return None


def _can_stand(other: Slot, slot: Slot, gap: Gap) -> bool:
    """Return whether an exchange says anything: a number for each element would explain any value."""
    return np.size(slot.value) == np.size(other.value) or np.size(other.value) < gap.value_a.size


def _with_limit(region: Region) -> Region:
    """Add a limit that is never reached to a region that ends in it and computes nothing else."""
    op = region.program.operations[region.end]
    unlimited = not region.operations and op.name in ("clip", "maximum", "minimum")
    return replace(region, operations=[region.end]) if unlimited else region


def _name(slot: Slot, other: Slot) -> str:
    if (
        slot.operation.name not in ("add", "maximum")
        or np.size(slot.value) > 1
        or np.size(other.value) > 1
    ):
        return "number"
    small = max(abs(float(np.ravel(each.value)[0])) for each in (slot, other)) < SMALL
    return "epsilon" if small else "number"


def slots(region: Region) -> Iterator[Slot]:
    """Yield the places of a formula at which numbers stand."""
    for index in region.operations:
        op = region.program.operations[index]
        for position, each in enumerate(op.operands if not op.is_layout else ()):
            if isinstance(each, Ref):
                leaf = _constant(region, each.index)
                if leaf is not None:
                    yield Slot(op, position, region.program.values([each.index])[each.index], leaf)
            elif not isinstance(each, bool) and np.ndim(each) == 0 and np.isreal(each):
                yield Slot(op, position, float(np.real(each)), None)


def _constant(region: Region, index: int) -> int | None:
    """Return an operand that is a small constant, moved at most; None for any other."""
    op = region.program.maker(index)
    written = op.is_layout and not op.inputs  # a number, made an array
    small = op.size <= 64 and op.dtype[:3] == "flo"
    return index if (op.kind == "constant" or written) and small else None


def run_with_constants(region: Region, pairs: list[tuple[Slot, Any]]) -> Any:
    """Run a region again with some of its constants replaced; return its value."""
    changed: dict[int, Operation] = {}
    for slot, value in pairs:
        op = changed.get(slot.operation.index, slot.operation)
        before, after = op.operands[: slot.position], op.operands[slot.position + 1 :]
        if np.ndim(value) == 0:
            new = float(value)
        elif np.ndim(slot.value) == np.ndim(value):
            new = np.asarray(value)
        else:
            new = _as_shape(np.asarray(value), slot.value)
        changed[op.index] = replace(op, operands=(*before, new, *after))
    return rerun(region, changed)


def _as_shape(value: np.ndarray, like: Any) -> np.ndarray:
    return value.reshape(np.shape(like)) if value.size == np.size(like) else value


CAUSES = (
    Cause(
        "epsilon",
        "B adds another small number, which keeps a root or a divisor from zero.",
        judge,
        "x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)",
        "x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)",
    ),
    Cause(
        "number",
        "B has another number where A has one, in the formula or in a constant.",
        judge,
        "jnp.tanh(x / 2.5) @ w",
        "jnp.tanh(x / 2) @ w",
    ),
    Cause(
        "numbers",
        "B has other numbers, of which no single one explains the difference.",
        judge,
        "(x - 0.485) / 0.229 @ w",
        "(x - 0.5) / 0.25 @ w",
    ),
)
