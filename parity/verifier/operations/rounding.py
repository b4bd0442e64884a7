"""How far two regions may part by rounding alone: what a nudge by one rounding does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from parity.verifier.operations.constants import rounded_constants
from parity.verifier.operations.fingerprint import HUGE
from parity.verifier.operations.meeting import Index
from parity.verifier.operations.program import Operation, Program, Ref
from parity.verifier.operations.region import Found, Region, distance

FLOAT64 = 2.0**-53
MARGIN = 8.0
"""Times the distance that nudges cause; they are random and few."""
NUDGES = 3
MOST = 0.05
"""What is never rounding alone, however ill-conditioned: rows that are masked altogether."""


def limit_of(found: Found) -> float:
    """The relative distance that rounding explains at the end of a place.

    Every value that a region reads is nudged by one rounding of the type that the program wanted it in
    (float64 where it did not say); the limit is `MARGIN` times the distance that this causes, on the
    worse side.
    """
    return min(MARGIN * max(_envelope(found.a), _envelope(found.b)), MOST)


def align(a: Program, b: Program) -> tuple[Program, Program, tuple[str, ...]]:
    """Both programs with inputs, parameters and constants of one type, and what was rounded to it.

    One side holds bfloat16 where the other has float32, or float32 where the other has float64: both run
    with the numbers of the smaller type. The parameters need not be cut alike, packed here and split
    there; those that differ by more than rounding still do.
    """
    labels: list[str] = []

    def rounded(program: Program, given: dict[int, np.ndarray]) -> Program:
        labels.extend(_label(program.operations[i]) for i in given)
        return program.fed(given, {}) if given else program

    of_a, of_b = _finer(a, b), _finer(b, a)
    a, b = rounded(a, of_a), rounded(b, of_b)
    of_a, of_b = rounded_constants(a, b), rounded_constants(b, a)
    a, b = rounded(a, of_a), rounded(b, of_b)
    return a, b, tuple(dict.fromkeys(labels))


def _label(op: Operation) -> str:
    """A leaf's path; of what is computed, its line."""
    return op.label if op.kind != "operation" else str(op.source or op.name)


def _finer(program: Program, other: Program) -> dict[int, np.ndarray]:
    """The leaves of a program whose numbers the other holds rounded, in its type."""
    index = Index(other)
    partners = [op for op in other.operations if op.kind != "operation" and op.epsilon in _TYPES]
    found: dict[int, np.ndarray] = {}
    for leaf in program.operations:
        if leaf.kind == "operation" or not leaf.size or leaf.mark is None or index.find(leaf.mark):
            continue
        value = program.kept[leaf.index]
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        for epsilon in sorted({op.epsilon for op in partners if op.epsilon > leaf.epsilon}):
            rounded = _rounded(value, epsilon)
            alike = [op for op in partners if op.epsilon == epsilon]
            if any(_is(leaf, rounded, op, other.kept[op.index]) for op in alike):
                found[leaf.index] = rounded
                break
    return found


def _is(leaf: Operation, rounded: np.ndarray, other: Operation, value: np.ndarray) -> bool:
    """Whether a leaf, rounded, is what the other program holds.

    An array that is an argument of its own is called an input, weight or not, and one that a function
    finds outside a constant. Of unlike kinds all numbers must be the same: some are by chance, in a type
    that has few.
    """
    if leaf.kind == other.kind:
        return share(rounded, value)
    alike = leaf.size == other.size > 1
    return alike and np.array_equal(np.sort(rounded, axis=None), np.sort(value, axis=None))


def share(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether one has many of the other's numbers; a part of the smaller is looked at."""
    small, large = sorted((a.ravel(), b.ravel()), key=len)
    sample = small[:: max(len(small) // SAMPLE, 1)]
    return bool(np.isin(sample, large).mean() >= SHARED)


SAMPLE = 64
SHARED = 1 / 8
"""Of the smaller of two leaves; stacked over layers on one side and packed on the other, some."""

_TYPES = {2.0**-8: "bfloat16", 2.0**-11: "float16", 2.0**-24: "float32"}


def _rounded(value: np.ndarray, epsilon: float) -> np.ndarray:
    import ml_dtypes

    name = _TYPES[epsilon]
    return value.astype(getattr(ml_dtypes, name) if name == "bfloat16" else name).astype(np.float64)


def _envelope(region: Region) -> float:
    program, end = region.program, region.end
    if not region.operations:
        op = program.operations[end]
        return op.epsilon if op.kind != "parameter" else FLOAT64  # of one type on both sides: `align`
    inside = set(region.operations)
    outside = sorted({i for o in region.operations for i in program.operations[o].inputs} - inside)
    values = program.values([*outside, end])
    own = values[end]
    if not isinstance(own, np.ndarray) or own.dtype.kind not in "fc":
        return 0.0
    worst = 0.0
    for seed in range(NUDGES):
        rng = np.random.default_rng(seed)
        known: dict[int, Any] = {
            i: _nudged(values[i], max(FLOAT64, _small(program, i)), rng) for i in outside
        }
        for index in region.operations:
            op = program.operations[index]
            known[index] = program.apply(_nudged_literals(op, rng), known, {})
        worst = max(worst, distance(own, known[end]))
    return worst if np.isfinite(worst) else 0.0


def _small(program: Program, index: int) -> float:
    """The rounding of a constant that came in a smaller type; parameters and inputs are exact."""
    op = program.operations[index]
    while op.is_layout and op.inputs:
        op = program.operations[op.inputs[0]]
    return op.epsilon if op.kind == "constant" else 0.0


def _nudged(value: Any, epsilon: float, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc":
        return value
    nudged = value * (1 + epsilon * rng.choice([-1.0, 1.0], value.shape))
    return np.where(np.abs(value) < HUGE, nudged, value)  # what stands for infinity is exact


def _nudged_literals(op: Operation, rng: np.random.Generator) -> Operation:
    """An operation that the program wanted in a smaller type, with its numbers nudged."""
    if not op.epsilon or all(isinstance(each, Ref) for each in op.operands):
        return op
    operands = tuple(
        each
        if isinstance(each, Ref) or not _inexact(each)
        else each * (1 + op.epsilon * rng.choice([-1.0, 1.0]))
        for each in op.operands
    )
    return replace(op, operands=operands)


def _inexact(each: Any) -> bool:
    """Whether a number written in the program has more digits than a few."""
    return (
        isinstance(each, (float, np.floating))
        and len(f"{float(each):.12g}".strip("-0.").replace(".", "")) > 7
    )
