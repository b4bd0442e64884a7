"""Numbers of B's formula that differ from A's: written ones, constants, factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.verifier.causes.cause import Cause, Said
from parity.verifier.programs.fingerprint import LEAST, MOST
from parity.verifier.programs.program import Operation, Ref
from parity.verifier.search.exchange import closer, is_a, outside, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Found, Region, distance

SMALL = 0.01
"""Numbers below are added to keep a divisor from zero."""
MOST_TRIALS = 100
MOST_SCALES = 6
EXACT = 1e-12
"""Error within which two numbers add up to one, and two values are equal."""


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


def judge(found: Found, _: Index) -> Said | None:
    """Find a number of B's formula that, exchanged for one of A's, gives A's value; or exchange all."""
    found = replace(found, a=_with_idle(found.a), b=_with_idle(found.b))
    own, wanted = list(slots(found.b)), list(slots(found.a))
    tried = 0
    for slot in own:
        for other in wanted:
            if tried >= MOST_TRIALS:
                break
            if slot.holds(other.value) or not _can_stand(other, slot, found):
                continue
            tried += 1
            if is_a(found, exchanged(found.b, [(slot, other.value)])):
                return _name(slot, other), f"{slot.text()} where A has {other.text()}"
    pairs = [(b, a) for b, a in zip(own, wanted, strict=False) if not b.holds(a.value)]
    say = len(own) == len(wanted) and len(pairs) > 1 and all(_can_stand(a, b, found) for b, a in pairs)
    if say and is_a(found, exchanged(found.b, [(b, a.value) for b, a in pairs])):
        return "numbers", "; ".join(f"{b.text()} where A has {a.text()}" for b, a in pairs)
    return _everywhere(found, own, wanted)


def _everywhere(found: Found, held: list[Slot], wanted: list[Slot]) -> Said | None:
    """Find a number to exchange wherever B has it, along with one minus it: a decay rate, of which both
    are written."""
    of_a, of_b = (
        list(dict.fromkeys(float(each.value) for each in some if np.ndim(each.value) == 0))
        for some in (wanted, held)
    )
    tried = 0
    for own in sorted(of_b, reverse=True):  # 0.999 says more than 0.001
        places = [slot for slot in held if np.ndim(slot.value) == 0 and slot.value == own]
        rest = [s for s in held if np.ndim(s.value) == 0 and abs(s.value + own - 1) < EXACT]
        for other in (each for each in of_a if each != own and 0 < each < 1):
            if len(places) + len(rest) < 2 or not 0 < own < 1 or tried >= MOST_TRIALS:
                break
            tried += 1
            pairs = [*((slot, other) for slot in places), *((slot, 1 - other) for slot in rest)]
            if is_a(found, exchanged(found.b, pairs)):
                return "number", f"{own:.10g} where A has {other:.10g}"
    return None


def _can_stand(other: Slot, slot: Slot, found: Found) -> bool:
    """Return whether an exchange says anything: a number for each element would explain any value."""
    return np.size(slot.value) == np.size(other.value) or np.size(other.value) < found.value.size


def _with_idle(region: Region) -> Region:
    """Add a limit that is never reached to a region that ends in it and computes nothing else."""
    op = region.program.operations[region.end]
    idle = not region.operations and op.name in ("clip", "maximum", "minimum")
    return replace(region, operations=[region.end]) if idle else region


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
    start, program = index, region.program
    while program.operations[index].is_layout and program.operations[index].inputs:
        index = program.operations[index].inputs[0]
    op = program.operations[index]
    written = op.is_layout and not op.inputs  # a number, made an array
    return (
        start if (op.kind == "constant" or written) and op.size <= 64 and op.dtype[:3] == "flo" else None
    )


def exchanged(region: Region, pairs: list[tuple[Slot, Any]]) -> Any:
    """Compute a region's value with other numbers at some places."""
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


def ratio_of(found: Found) -> float | None:
    """Return how many times A's value B's is; None where it is no multiple, or equal."""
    a, b = found.value.ravel(), found.instead.ravel()
    if a.dtype.kind not in "fc" or a.shape != b.shape or a.size < 3:
        return None
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return None
    ratio = float(np.vdot(a, b).real / np.vdot(a, a).real) if a.any() else 0.0
    once = abs(ratio - 1) <= EXACT
    return ratio if ratio and not once and distance(a, b / ratio) <= EXACT else None


def is_multiple(found: Found) -> bool:
    """Return whether B's value is a multiple of A's, but not equal."""
    return ratio_of(found) is not None


def factor(found: Found, _: Index) -> Said | None:
    """Recognise one factor for all elements."""
    ratio = ratio_of(found)
    if ratio is None:
        return _size_of_an_axis(found)
    if ratio == -1:
        return "sign", "B's value is A's with the other sign"
    sizes = _reduced(found)
    for n in (n for n in sizes if n - 1 not in sizes):  # else two means may have changed places
        for power, said in ((1, ""), (0.5, "the root of ")):
            for which, over, under in (("n - 1 for n", n, n - 1), ("n for n - 1", n - 1, n)):
                if closer(np.asarray((over / under) ** power), np.asarray(ratio), 1.0):
                    return which, f"B's value is {said}{over} / {under} times A's"
    of_a, of_b = _scales(found.a), _scales(found.b)
    unknown = bool(of_a) == bool(of_b) or _is_given(found.a) or _is_given(found.b)
    unknown = unknown or not _is_product(of_a or of_b, ratio)
    name = "factor" if unknown else "scale left out" if of_a else "one scale too many"
    times = f"{ratio:.10g}" if abs(ratio - 1) > 1e-8 else f"1 {ratio - 1:+.2g}"
    return name, f"B's value is {times} times A's"


def _size_of_an_axis(found: Found) -> Said | None:
    """Recognise a value of one number, as of a loss, that is off by the size of an axis."""
    if found.value.size != 1 or found.value.dtype.kind != "f" or not found.value.all():
        return None
    ratio = float(found.instead.ravel()[0] / found.value.ravel()[0])
    for region in (found.b, found.a):
        for i in outside(region):
            shape = region.program.operations[i].shape
            for axis, n in enumerate(shape):
                for times, text in ((n, f"{n} times"), (1 / n, f"1 / {n} of")):
                    if n > 1 and abs(ratio / times - 1) <= EXACT:
                        return (
                            "factor",
                            f"B's value is {text} A's: {n} is the size of axis {axis} of {list(shape)}",
                        )
    return None


def _scales(region: Region) -> list[float]:
    """Return the numbers by which a region multiplies or divides something."""
    program = region.program
    found = [slot.value for slot in slots(region) if slot.operation.name in ("mul", "div")]
    ops = (program.operations[i] for i in region.operations)
    read = (program.operations[i] for op in ops if op.name in ("mul", "div") for i in op.inputs)
    found += [each.mark[LEAST] for each in read if each.mark is not None and is_number(each)]
    return [float(each) for each in found if np.size(each) == 1]


def is_number(op: Operation) -> bool:
    """Return whether a value is one number, in each of its places."""
    return op.mark is not None and bool(op.mark[LEAST] == op.mark[MOST])


def _is_product(numbers: list[float], ratio: float) -> bool:
    """Return whether a ratio, or its inverse, is the product of some numbers and inverses of others."""
    several = [abs(each) for each in numbers if each and np.isfinite(each)][:MOST_SCALES]
    logs = [0.0]
    for each in np.log(several):
        logs += [total + sign * each for total in logs for sign in (1, -1)]
    return any(abs(abs(total) - abs(np.log(abs(ratio)))) <= 1e-9 for total in logs)


def _is_given(region: Region) -> bool:
    """Return whether a region's value is a leaf, moved at most: how it was computed is not known."""
    op = region.program.operations[region.end]
    while op.is_layout and op.inputs:
        op = region.program.operations[op.inputs[0]]
    return op.run is None


def _reduced(found: Found) -> list[int]:
    """Return how many elements the reductions of a place run over."""
    sizes = set()
    for region in (found.a, found.b):
        for index in region.operations:
            op = region.program.operations[index]
            of = region.program.operations[op.inputs[0]] if op.inputs else op
            if op.name in ("sum", "mean", "var", "std") and op.size and of.dtype[:3] == "flo":
                sizes.add(of.size // op.size)  # else it counts
    return sorted(size for size in sizes if size > 1)


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
    Cause(
        "sign",
        "B's value, or one term of it, has the other sign.",
        factor,
        "jnp.exp(x @ w - x @ v)",
        "jnp.exp(x @ v - x @ w)",
    ),
    Cause(
        "n - 1 for n",
        "B divides by n - 1 where A divides by n, as in a variance.",
        factor,
        "(x**2).mean(-1) - x.mean(-1) ** 2",
        "x.var(-1, ddof=1)",
    ),
    Cause(
        "n for n - 1",
        "B divides by n where A divides by n - 1.",
        factor,
        "x.var(-1, ddof=1)",
        "(x**2).mean(-1) - x.mean(-1) ** 2",
    ),
    Cause(
        "factor",
        "B's value, or one term of it, is a multiple of A's.",
        factor,
        "x.sum(1) @ w",
        "(x @ w).repeat(2, 1).sum(1)",
    ),
)
