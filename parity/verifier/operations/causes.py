"""Names for what went wrong, judged on the two small formulas.

Each name stands for one exchange, and is given only if that exchange turns B's value into A's, behind
which everything is known to meet. What fits no exchange has no name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from parity.verifier.operations.meeting import Index
from parity.verifier.operations.places import Found, Region, distance
from parity.verifier.operations.program import Operation, Ref

Cause = tuple[str, str]
"""Name and one sentence."""

SMALL = 0.01
"""Numbers below are added to keep a divisor from zero."""


def cause_of(found: Found, index: Index) -> Cause:
    """The first exchange that explains a place, or two empty strings."""
    if found.instead.dtype.kind not in "fc" or found.value.shape != found.instead.shape:
        return "", ""
    for judge in (_numbers, _activations, _masks, _one_more, _order, _indices, _factor, _axes):
        said = judge(found, index)
        if said is not None:
            return said
    return "", ""


def _equal(found: Found, value: Any) -> bool:
    """Whether a value is A's, far closer than B's own is."""
    value = np.asarray(value)
    return value.shape == found.value.shape and distance(found.value, value) <= min(
        1e-9, 1e-4 * found.error
    )


def _numbers(found: Found, _: Index) -> Cause | None:
    """One number of B's formula exchanged for one of A's."""
    program, inside = found.b.program, found.b.operations
    wanted = dict.fromkeys(number for _, _, number in _written(found.a))
    outside = sorted({i for o in inside for i in program.operations[o].inputs} - set(inside))
    tried = 0
    for op, position, number in _written(found.b):
        for other in wanted:
            if other == number or tried >= 100:
                continue
            tried += 1
            operands = (*op.operands[:position], other, *op.operands[position + 1 :])
            changed = replace(op, operands=operands)
            known = program.values(outside)
            for each in inside:
                this = changed if each == op.index else program.operations[each]
                known[each] = program.apply(this, known, {})
            if _equal(found, known[found.b.end]):
                small = op.name in ("add", "maximum") and max(abs(number), abs(other)) < SMALL
                return "epsilon" if small else "number", f"{number:.10g} where A has {other:.10g}"
    return None


def _written(region: Region) -> Iterator[tuple[Operation, int, float]]:
    for index in region.operations:
        op = region.program.operations[index]
        for position, each in enumerate(op.operands):
            if not isinstance(each, (Ref, bool)) and np.ndim(each) == 0 and np.isreal(each):
                yield op, position, float(each)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return (
        np.vectorize(erf, otypes=[float])(x / np.sqrt(2))
        if x.size <= 1 << 16
        else np.full(x.shape, np.nan)
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _erf,
    "gelu, tanh": _gelu_tanh,
    "quick gelu": lambda x: _sigmoid(1.702 * x),
    "silu": _sigmoid,
    "tanh": np.tanh,
}
"""The one function in each activation that makes it; the rest is arithmetic that all of them share."""

_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: x * 0.5 * (1 + _erf(x)),
    "gelu, tanh": lambda x: x * 0.5 * (1 + _gelu_tanh(x)),
    "quick gelu": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "relu": lambda x: np.maximum(x, 0),
    "relu squared": lambda x: np.maximum(x, 0) ** 2,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "identity": lambda x: x,
}


def _activations(found: Found, _: Index) -> Cause | None:
    """Another activation of the same value."""
    for x in _read(found.b, found):
        for kinds in (_PARTS, _ACTIVATIONS, {n: lambda x, f=f: 1 + f(x) for n, f in _PARTS.items()}):
            with np.errstate(all="ignore"):
                values = {name: function(x) for name, function in kinds.items()}
            of_a = [name for name, value in values.items() if _equal(found, value)]
            of_b = [name for name, value in values.items() if distance(found.instead, value) <= 1e-12]
            if len(of_a) == 1 and len(of_b) == 1 and {*of_a, *of_b} != {"identity"}:
                return "activation", f"{of_b[0]} where A has {of_a[0]}"
    return None


def _read(region: Region, found: Found) -> Iterator[np.ndarray]:
    """What a region reads, of the shape of its end; the end itself where nothing is computed."""
    program = region.program
    inside = set(region.operations)
    outside = {i for o in inside for i in program.operations[o].inputs} - inside or {region.end}
    for value in program.values(sorted(outside)).values():
        if (
            isinstance(value, np.ndarray)
            and value.shape == found.value.shape
            and value.dtype.kind == "f"
        ):
            yield value


def _masks(found: Found, _: Index) -> Cause | None:
    """Scores behind a mask on one side only."""
    a, b = found.value, found.instead
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.dtype.kind != "f":
        return None
    shut_a, shut_b = a < -1e3, b < -1e3
    if np.array_equal(shut_a, shut_b) or (shut_a.any() and shut_b.any()):
        return None
    shut, one, other = (shut_a, a, b) if shut_a.any() else (shut_b, b, a)
    if distance(np.where(shut, 0, one), np.where(shut, 0, other)) > 1e-12:
        return None
    future = ~np.tri(a.shape[-1], dtype=bool)
    name = "causal mask" if np.array_equal(shut, np.broadcast_to(future, shut.shape)) else "mask"
    return name, "only A has it" if shut_a.any() else "only B has it"


def _one_more(found: Found, index: Index) -> Cause | None:
    """One operation that only one side has."""
    for region, side, other in ((found.a, "A", found.b), (found.b, "B", found.a)):
        op = _only(region)
        if op is None or _computing(other) or op.name not in ("add", "mul", "sub", "div"):
            continue
        operands = [each for each in op.operands if isinstance(each, Ref)]
        if len(operands) != 2:
            continue
        read = [region.program.operations[each.index] for each in operands]
        end = other.program.operations[other.end]
        rest = [each for each in read if not _same(each, end, index)]
        if len(rest) != 1:
            continue
        base = rest[0]
        while base.is_layout and base.inputs:
            base = region.program.operations[base.inputs[0]]
        if base.kind == "parameter":
            return (
                f"{'bias' if op.name == 'add' else 'gain'} left out"
                if side == "A"
                else "one parameter too many",
                (f"only {side} has {op.name} {base.label}"),
            )
        if op.name == "add":
            return (
                f"{'residual left out' if side == 'A' else 'one residual too many'}",
                f"only {side} adds the value of {base.source or base.label}",
            )
    return None


def _same(one: Operation, other: Operation, index: Index) -> bool:
    a, b = index.meets(one), index.meets(other)
    return bool({each.index for each in a} & {each.index for each in b})


def _computing(region: Region) -> list[Operation]:
    ops = (region.program.operations[i] for i in region.operations)
    return [op for op in ops if not op.is_layout]


def _only(region: Region) -> Operation | None:
    ops = _computing(region)
    return ops[0] if len(ops) == 1 else None


def _order(found: Found, index: Index) -> Cause | None:
    """The same numbers in another order."""
    ends = found.a.program.operations[found.a.end], found.b.program.operations[found.b.end]
    if ends[0] not in index.meets(ends[1]):
        return None
    b = found.instead
    for i in range(b.ndim):
        for j in range(i + 1, b.ndim):
            if _equal(found, b.swapaxes(i, j)):
                return "transposed", f"axes {i} and {j} of {list(b.shape)} exchanged"
    for axis in range(b.ndim):
        if _equal(found, np.flip(b, axis)):
            return "reversed", f"axis {axis} of {list(b.shape)} runs backwards"
        for shift in range(1, b.shape[axis]) if b.shape[axis] <= 64 else ():
            if _equal(found, np.roll(b, shift, axis)):
                return "shifted", f"axis {axis} of {list(b.shape)} is shifted by {shift}"
        for split in (n for n in range(2, b.shape[axis]) if b.shape[axis] % n == 0):
            parts = b.reshape(*b.shape[:axis], split, -1, *b.shape[axis + 1 :])
            if _equal(found, parts.swapaxes(axis, axis + 1).reshape(b.shape)):
                return (
                    "axis split the other way round",
                    f"{b.shape[axis]} = {split} x {b.shape[axis] // split}",
                )
    return None


def _indices(found: Found, _: Index) -> Cause | None:
    """Another row of the same table."""
    for x in found.b.program.values(_sources(found.b)).values():
        if not isinstance(x, np.ndarray) or x.size > 1 << 22:
            continue
        for axis in range(x.ndim):
            rows = np.moveaxis(x, axis, 0)
            if [n for n in rows.shape[1:] if n > 1] != [n for n in found.value.shape if n > 1]:
                continue
            rows = rows.reshape(-1, *found.value.shape)
            of_a = [i for i, row in enumerate(rows) if _equal(found, row)]
            of_b = [i for i, row in enumerate(rows) if distance(found.instead, row) <= 1e-12]
            if len(of_a) == 1 and len(of_b) == 1:
                return (
                    "index",
                    f"row {of_b[0]} of axis {axis} of {list(x.shape)} where A has row {of_a[0]}",
                )
    return None


def _sources(region: Region) -> list[int]:
    """Values a few moves before the end of a region."""
    found, index = [], region.end
    for _ in range(4):
        inputs = region.program.operations[index].inputs
        if len(inputs) != 1:
            break
        index = inputs[0]
        found.append(index)
    return found


def _factor(found: Found, _: Index) -> Cause | None:
    """One factor for all elements."""
    a, b = found.value.ravel(), found.instead.ravel()
    if a.dtype.kind != "f" or not a.size or not np.isfinite(a).all() or not np.isfinite(b).all():
        return None
    factor = float(np.dot(a, b) / np.dot(a, a)) if a.any() else 0.0
    if a.size < 3 or factor == 0 or distance(found.value, found.instead / factor) > 1e-12:
        return None
    if factor == -1:
        return "sign", "B's value is A's with the other sign"
    ops_a, ops_b = _numbers_by(found.a), _numbers_by(found.b)
    name = "factor"
    if ops_a != ops_b:
        name = "scale left out" if ops_a else "one scale too many"
    return name, f"B's value is {factor:.10g} times A's"


def _numbers_by(region: Region) -> bool:
    return any(op.name in ("mul", "div") for op, _, _ in _written(region))


def _axes(found: Found, _: Index) -> Cause | None:
    """A reduction along another axis."""
    op = _only(found.b)
    if op is None or op.name not in ("sum", "mean", "max", "min") or len(op.inputs) != 1:
        return None
    x = found.b.program.values(op.inputs)[op.inputs[0]]
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[op.name]
    for axis in range(x.ndim):
        value = reduce(x, axis=axis, keepdims=True)
        if value.size == found.value.size and _equal(found, value.reshape(found.value.shape)):
            return "axis", f"{op.name} along {op.label}, where A's runs along axis {axis}"
    return None
