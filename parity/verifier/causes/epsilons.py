"""A small number that is added to a root on one side and under it on the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.numbers import SMALL
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.search.exchange import is_a, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise a small number of B's that, moved to the other side of its root, gives A's value."""
    for changed, number, outside in _moved(gap.b):
        if is_a(gap, rerun(gap.b, changed)):
            places = ("to the root", "under it") if outside else ("under the root", "to it")
            name = "epsilon outside the root" if outside else "epsilon inside the root"
            return name, f"B adds {number:.10g} {places[0]}, A {places[1]}"
    return None


def _moved(region: Region) -> Iterator[tuple[dict[int, Operation], float, bool]]:
    """Yield exchanged operations, the number moved, and whether B adds it to the root."""
    ops = {i: region.program.operations[i] for i in region.operations}
    for add in ops.values():
        number = _added(add)
        if number is None:
            continue
        plain = replace(
            add, operands=tuple(each if isinstance(each, Ref) else 0.0 for each in add.operands)
        )
        root = ops.get(region.program.maker(add.inputs[0]).index)
        if root is not None and root.name == "sqrt":
            under = replace(root, run=lambda given, n=number: np.sqrt(np.asarray(given[0]) + n))
            yield {root.index: under, add.index: plain}, number, True
        for root in ops.values():
            if root.name not in ("sqrt", "rsqrt") or not root.inputs:
                continue
            if region.program.maker(root.inputs[0]) is add:
                power = 1.0 if root.name == "sqrt" else -1.0
                to_it = replace(root, run=_root_and(number, power))
                yield {root.index: to_it, add.index: plain}, number, False


def _root_and(number: float, power: float) -> Any:
    return lambda given: (np.sqrt(np.asarray(given[0])) + number) ** power


def _added(op: Operation) -> float | None:
    """Return the small number that a sum adds; None if it adds none."""
    if op.name != "add" or len(op.inputs) != 1:
        return None
    numbers = [each for each in op.operands if not isinstance(each, Ref)]
    number = float(np.real(numbers[0])) if len(numbers) == 1 and np.ndim(numbers[0]) == 0 else 0.0
    return number if 0 < number < SMALL else None


CAUSES = (
    Cause(
        "epsilon outside the root",
        "B adds the small number to the root, A under it.",
        judge,
        "x / jnp.sqrt(x.var(-1, keepdims=True) + 1e-3)",
        "x / (jnp.sqrt(x.var(-1, keepdims=True)) + 1e-3)",
    ),
    Cause(
        "epsilon inside the root",
        "B adds the small number under the root, A to it.",
        judge,
        "x / (jnp.sqrt(x.var(-1, keepdims=True)) + 1e-3)",
        "x / jnp.sqrt(x.var(-1, keepdims=True) + 1e-3)",
    ),
)
