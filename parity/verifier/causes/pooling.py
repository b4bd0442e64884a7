"""Poolings of B with another argument than A's: a window, a padding, whether a mean counts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.pools import POOL, Pool
from parity.verifier.search.exchange import is_a, is_b, layouts_of, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 1 << 22
"""Most elements of a value that is pooled again."""
_NAMES = {"kind": "reduction", "window": "window"}
"""Causes of other names than the argument."""


def judge(gap: Gap, index: Index) -> Explanation | None:
    """Recognise the values of both sides as poolings of one value that differ in one argument."""
    for of_a, of_b in _both(gap, index):
        x = np.asarray(gap.b.program.values([of_b.inputs[0]])[of_b.inputs[0]])
        axes = of_b.extra[POOL][1]
        wanted = [p for p in _as(of_a) if any(is_a(gap, each) for each in _values(gap, p.of(x, axes)))]
        own = [p for p in _as(of_b) if any(is_b(gap, each) for each in _values(gap, p.of(x, axes)))]
        if wanted and own:
            return _explain(own[0], wanted[0])
    return None


def _both(gap: Gap, index: Index) -> Iterator[tuple[Operation, Operation]]:
    """Yield the poolings of both sides that read the same value."""
    for b in _pools(gap.b):
        for a in _pools(gap.a):
            met = {each.index for each in index.meets(gap.b.program.operations[b.inputs[0]])}
            if met & set(a.inputs):
                yield a, b


def _pools(region: Region) -> list[Operation]:
    """Return the poolings of a region, and those whose values it reads."""
    operations = region.program.operations
    return [
        op
        for op in (operations[i] for i in (*region.operations, *outside(region)))
        if POOL in op.extra and op.inputs and operations[op.inputs[0]].size <= LARGEST
    ]


def _values(gap: Gap, value: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield what a pooling makes in each layout of a place's values."""
    return iter(()) if value is None else layouts_of(value, gap.value_a.shape)


def _as(op: Operation) -> list[Pool]:
    """Return a pooling, and the means that are made of it where it is a sum."""
    pool: Pool = op.extra[POOL][0]
    if pool.kind != "sum":
        return [pool]
    means = [replace(pool, kind="mean", counted=each) for each in (True, False)]
    return [pool, *means]


def _explain(own: Pool, wanted: Pool) -> Explanation | None:
    """Name the one argument that differs."""
    if not any(map(any, (*own.padding, *wanted.padding))):
        own, wanted = (replace(each, counted=True) for each in (own, wanted))
    apart = [f.name for f in fields(Pool) if getattr(own, f.name) != getattr(wanted, f.name)]
    if len(apart) != 1:
        return None
    name = apart[0]
    if name == "counted":
        counts = "the mean of a window counts the padding"
        return ("padding counted", f"{counts}, A's does not") if own.counted else (
            "padding not counted", f"{counts} in A alone"
        )  # fmt: skip
    if name == "kind":
        return "reduction", f"the {own.kind} of each window where A has the {wanted.kind}"
    return _NAMES.get(name, name), f"{own.argument(name)} where A has {wanted.argument(name)}"


CAUSES = (
    Cause(
        "window",
        "A pooling of B has windows of another size.",
        judge,
        "jnp.tanh(averaged(x @ w, 3, 2, (0, 0))) @ v",
        "jnp.tanh(averaged(x @ w, 2, 2, (0, 0))) @ v",
    ),
    Cause(
        "padding counted",
        "An average pooling of B counts the padding.",
        judge,
        "jnp.tanh(averaged(x @ w, 3, 1, (1, 1), counted=False)) @ v",
        "jnp.tanh(averaged(x @ w, 3, 1, (1, 1))) @ v",
    ),
    Cause(
        "padding not counted",
        "An average pooling of B does not count the padding.",
        judge,
        "jnp.tanh(averaged(x @ w, 3, 1, (1, 1))) @ v",
        "jnp.tanh(averaged(x @ w, 3, 1, (1, 1), counted=False)) @ v",
    ),
)
