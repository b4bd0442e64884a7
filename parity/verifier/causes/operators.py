"""One operation of B exchanged for one of A: another operator, other arguments, another axis."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.search.exchange import computing, is_a, layouts_of, rerun
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 24
"""Largest region, in operations, whose operations are exchanged one by one."""
_REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
_PRODUCTS = frozenset(["matmul", "conv"])
_SLICES = frozenset(["slice", "dynamic_slice", "narrow", "index_select"])


def judge(gap: Gap, index: Index) -> Explanation | None:
    """Find an operation of B's that, exchanged for one of A's on the same operands, gives A's value."""
    if len(gap.a.operations) > LARGEST or len(gap.b.operations) > LARGEST:
        return None
    for b in computing(gap.b):
        for a in computing(gap.a) or _maker(gap.a):
            if {a.name, b.name} <= _PRODUCTS:
                continue  # which are written in either way: what differs is something else
            one = a.mark is not None and b.mark is not None  # of several results, each is a value
            if one and _reads_the_same(gap, a, b, index) and _fits(gap, a, b):
                return _name(a, b)
    return None


def _maker(region: Region) -> list[Operation]:
    """Return the operation that made a region's value, for a region that computes nothing itself."""
    op = region.program.maker(region.end)
    return [op] if op.inputs else []


def _reads_the_same(gap: Gap, a: Operation, b: Operation, index: Index) -> bool:
    """Return whether two operations read the same values; other operators may read them in reverse."""
    if not a.inputs or len(a.inputs) != len(b.inputs):
        return False
    partners = [{each.index for each in index.meets(gap.b.program.operations[i])} for i in b.inputs]
    straight = all(i in each for i, each in zip(a.inputs, partners, strict=True))
    turned = all(i in each for i, each in zip(a.inputs[::-1], partners, strict=True))
    if a.name != b.name:
        return straight or turned
    return straight and all(_in_order(gap, i, j) for i, j in zip(a.inputs, b.inputs, strict=True))


def _in_order(gap: Gap, a: int, b: int) -> bool:
    """Return whether a value of B's is A's in some layout, axes merged or split."""
    of_a, of_b = gap.a.program.values([a])[a], gap.b.program.values([b])[b]
    of_a, of_b = np.asarray(of_a), np.asarray(of_b)
    return any(distance(each, of_b) <= FARTHEST.norm for each in arrangements(of_a, of_b.shape))


def _fits(gap: Gap, a: Operation, b: Operation) -> bool:
    value = gap.a.program.values([a.index])[a.index]
    return any(is_a(gap, rerun(gap.b, given={b.index: each})) for each in layouts_of(value, b.shape))


def _name(a: Operation, b: Operation) -> Explanation:
    if a.name != b.name:
        return "operation", f"{b.name} where A has {a.name}"
    if a.name in _SLICES:
        return "slice", f"{b.name}({b.label}) where A has {a.name}({a.label})"
    own, wanted = _explain(b), _explain(a)
    if own == wanted:
        own, wanted = (
            f"{own}, {rest}".strip(", ") for own, rest in ((own, _unlike(b, a)), (wanted, _unlike(a, b)))
        )
    return "arguments", f"{b.name}({own}) where A has {a.name}({wanted})"


def _explain(op: Operation) -> str:
    numbers = [f"{float(each):.10g}" for each in op.operands if isinstance(each, (int, float))]
    return ", ".join([*numbers, op.label] if op.label else numbers)


def _unlike(op: Operation, other: Operation) -> str:
    """Write the parameters of one of JAX's operations that the other has otherwise."""
    own, theirs = (each.extra.get("params", {}) for each in (op, other))
    return ", ".join(f"{name}={value}" for name, value in own.items() if theirs.get(name) != value)


def axes(gap: Gap, _: Index) -> Explanation | None:
    """Find another axis along which all reductions of B's region give A's value."""
    region = gap.b
    reductions = [op for op in computing(region) if op.name in _REDUCTIONS and len(op.inputs) == 1]
    if not reductions or len(region.operations) > LARGEST:
        return None
    ndim = max(len(region.program.operations[op.inputs[0]].shape) for op in reductions)
    for axis in range(ndim):
        changed = {op.index: replace(op, run=_along(op.name, axis), extra={}) for op in reductions}
        for value in (rerun(region, changed), rerun(region, changed | _free(gap, changed))):
            if value is None or np.size(value) != gap.value_a.size:
                continue
            if is_a(gap, np.reshape(value, gap.value_a.shape)):
                name, own = _whole(region, reductions), _axis(region, reductions[0])
                return "axis", f"{name} {own}, where A's runs over axis {axis}"
    return None


def _whole(region: Region, reductions: list[Operation]) -> str:
    """Name what some reductions are parts of: a softmax, its logarithm, a norm; else the first."""
    names = {op.name for op in computing(region)}
    of_exp = any(
        op.name == "sum" and region.program.maker(op.inputs[0]).name == "exp" for op in reductions
    )
    operations = region.program.operations
    if of_exp and operations[region.end].size == operations[reductions[0].inputs[0]].size:
        return "log_softmax" if "log" in names else "softmax"
    if names & {"rsqrt", "sqrt"} and {op.name for op in reductions} <= {"mean", "sum"}:
        return "norm"
    return reductions[0].name


def _axis(region: Region, op: Operation) -> str:
    """Return the axis of a reduction, counted from the front; as it is written if it is not one."""
    one = re.match(r"(?:axis|dim)=[(\[]?(-?\d+),?[)\]]?(?:,|$)", op.label.replace(" ", ""))
    if one is None:
        return f"along {op.label}"
    return f"over axis {int(one[1]) % max(len(region.program.operations[op.inputs[0]].shape), 1)}"


def _along(name: str, axis: int) -> Any:
    return lambda operands: _REDUCTIONS[name](operands[0], axis=axis, keepdims=True)


def _free(gap: Gap, changed: dict[int, Operation]) -> dict[int, Operation]:
    """Turn reshapes and broadcasts of reduced values, which would not fit, into identities."""
    region, free, touched = gap.b, {}, set(changed)
    reduced = {region.program.operations[index].size for index in changed}
    for index in region.operations:
        op = region.program.operations[index]
        if index in changed or not any(i in touched for i in op.inputs):
            continue
        if op.is_layout:
            touched.add(index)
            free[index] = replace(op, run=lambda operands: operands[0])
        elif op.size in reduced:  # a guard of what was reduced, such as the largest logit and -inf
            touched.add(index)
    return free


CAUSES = (
    Cause(
        "operation",
        "B applies another operation to the same values.",
        judge,
        "jnp.maximum(x @ w, x @ v)",
        "jnp.minimum(x @ w, x @ v)",
    ),
    Cause(
        "slice",
        "B takes other elements of a value.",
        judge,
        "jnp.tanh(x @ w)[:, 1:] @ v",
        "jnp.tanh(x @ w)[:, :-1] @ v",
    ),
    Cause(
        "arguments",
        "B gives the same operation other arguments.",
        judge,
        "lax.cumsum(x @ w, 1) @ v",
        "lax.cumsum(x @ w, 1, reverse=True) @ v",
    ),
    Cause(
        "axis",
        "B reduces along another axis.",
        axes,
        "nn.softmax(x @ w, 1) @ v",
        "nn.softmax(x @ w, 2) @ v",
    ),
)
