"""How far two regions may part by rounding alone: what a nudge by one rounding does to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.verifier.programs.fingerprint import HUGE, distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.constants import rounded_constants
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.pairing import Outputs
from parity.verifier.search.region import Gap, Region
from parity.verifier.search.written import TYPES, restore, rounded

FLOAT64 = 2.0**-53
FLOAT32 = 2.0**-24
MARGIN = 8.0
"""Factor on the distance that nudges cause, which are random and few."""
NUDGES = 3
NEARBY = 6
"""Operations before a value among which a scale is looked for."""
MOST = 0.05
"""Largest limit, however ill-conditioned a value is, as one with rows that are masked altogether."""


def limit_of(gap: Gap, index: Index, *, types: bool = True) -> float:
    """Return the relative distance that rounding explains at the end of a place.

    Every value that a region reads is nudged by one rounding; the limit is `MARGIN` times the distance
    that this causes, on the worse side.

    Args:
        gap: the place.
        index: A's values.
        types: nudge a value that came in a smaller type by a rounding of that type; else nudge all by
            one of float64.
    """
    sides = ((gap.a, Index(gap.b.program) if types else index), (gap.b, index))
    return min(MARGIN * max(_envelope(region, other, types) for region, other in sides), MOST)


def limit_of_tables(a: Program, b: Program, outputs: Outputs) -> float:
    """Return how far outputs may part because one program holds in float32 what the other computes, as
    sines in a buffer where the other turns each token by its own angle; 0 if an output parts further."""
    moved = _moved_by_tables(a, b), _moved_by_tables(b, a)
    limits = []
    for x, y in outputs.unequal(a, b):
        limit = MARGIN * max(moved[0].get(x, 0.0), moved[1].get(y, 0.0))
        if outputs.error((x, y), a.values([x])[x], b.values([y])[y]) > limit:
            return 0.0
        limits.append(limit)
    return max(limits, default=0.0)


def _moved_by_tables(program: Program, other: Program) -> dict[int, float]:
    """Return how far each output moves if the numbers that only this program holds in float32 are
    nudged."""
    index, held = Index(other), {}
    for op in program.operations:
        value = program.cache.get(op.index)
        array = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
        if op.run is None and array and op.size > 1 and _small(program, op.index, index) == FLOAT32:
            held[op.index] = value
    distances: dict[int, float] = {}
    ends = [index for _, index in program.outputs] if held else []
    for seed in range(NUDGES if held else 0):
        rng = np.random.default_rng(seed)
        fed = program.values(ends, {i: _nudged(value, FLOAT32, rng) for i, value in held.items()})
        own = program.values(ends)
        for i in ends:
            if isinstance(own[i], np.ndarray) and own[i].dtype.kind in "fc":
                distances[i] = max(distances.get(i, 0.0), distance(own[i], fed[i]))
    return distances


def is_rounded_number(gap: Gap, ratio: float) -> bool:
    """Return whether a ratio of B's value to A's may come from a number in a smaller type for which the
    other side has several: a scale of logits, and its root for queries and for keys."""
    regions = (gap.a, gap.b)
    written = [
        op.epsilon
        for region in regions
        for op in (region.program.operations[i] for i in (*region.operations, *region.readers))
        if any(isinstance(each, (float, np.floating)) for each in op.operands)
    ]
    return all(map(_scales, regions)) and abs(ratio - 1) <= max(written, default=0.0)


def _scales(region: Region) -> bool:
    """Whether something is multiplied or divided by a number in front of a value."""
    program, index = region.program, region.end
    for _ in range(NEARBY):
        op = program.operations[index]
        if op.name in ("mul", "div") and any(isinstance(e, (float, np.floating)) for e in op.operands):
            return True
        if not op.inputs:
            return False
        index = op.inputs[0]
    return False


def align(a: Program, b: Program) -> tuple[Program, Program, tuple[str, ...]]:
    """Return both programs with leaves and constants of the same types, and what was rounded for it.

    One side holds bfloat16 where the other has float32, or float32 where the other has float64: both run
    with the numbers of the smaller type. The parameters need not be cut alike, packed here and split
    there; those that differ by more than rounding still do.
    """
    labels: list[str] = []

    def given_to(program: Program, given: dict[int, np.ndarray]) -> Program:
        labels.extend(_label(program.operations[i]) for i in given)
        return program.fed(given, {}) if given else program

    of_a, of_b = _finer(a, b), _finer(b, a)
    a, b = given_to(a, of_a), given_to(b, of_b)
    (a, written_a), (b, written_b) = restore(a, b), restore(b, a)
    a = given_to(a, rounded_constants(a, b))
    b = given_to(b, rounded_constants(b, a))  # what A has been given of B's is B's already
    return a, b, tuple(dict.fromkeys([*labels, *written_a, *written_b]))


def _label(op: Operation) -> str:
    """Return the path of a leaf, or the line of a computed value."""
    return op.label if op.kind != "operation" else str(op.source or op.name)


def _finer(program: Program, other: Program) -> dict[int, np.ndarray]:
    """Return, rounded, the leaves whose numbers the other program holds in a smaller type."""
    index = Index(other)
    partners = [op for op in other.operations if op.kind != "operation" and op.epsilon in TYPES]
    smaller_leaves: dict[int, np.ndarray] = {}
    for leaf in program.operations:
        if leaf.kind == "operation" or not leaf.size or leaf.mark is None or index.find(leaf.mark):
            continue
        value = program.cache[leaf.index]
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        for epsilon in sorted({op.epsilon for op in partners if op.epsilon > leaf.epsilon}):
            smaller = rounded(value, epsilon)
            candidates = [op for op in partners if op.epsilon == epsilon]
            if any(_is(leaf, smaller, op, other.cache[op.index]) for op in candidates):
                smaller_leaves[leaf.index] = smaller
                break
    return smaller_leaves


def _is(leaf: Operation, rounded: np.ndarray, other: Operation, value: np.ndarray) -> bool:
    """Whether a leaf, rounded, is what the other program holds.

    An array that is an argument of its own is called an input, weight or not, and one that a function
    finds outside a constant. Of unlike kinds all numbers must be the same: some are by chance, in a type
    that has few.
    """
    if leaf.kind == other.kind:
        return share(rounded, value)
    same_size = leaf.size == other.size > 1
    return same_size and np.array_equal(np.sort(rounded, axis=None), np.sort(value, axis=None))


def share(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether one array has many of the other's numbers, by a sample of the smaller."""
    small, large = sorted((a.ravel(), b.ravel()), key=len)
    sample = small[:: max(len(small) // SAMPLE, 1)]
    return bool(np.isin(sample, large).mean() >= SHARED)


SAMPLE = 64
SHARED = 1 / 8
"""Share of the smaller leaf that must be in the larger: stacked on one side, packed on the other."""


def _envelope(region: Region, other: Index, types: bool) -> float:
    program, end = region.program, region.end
    if not region.operations:
        op = program.operations[end]
        small = types and op.kind != "parameter"  # these are of one type on both sides: `align`
        return op.epsilon if small else FLOAT64
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
            i: _nudged(values[i], max(FLOAT64, types * _small(program, i, other)), rng) for i in outside
        }
        for index in region.operations:
            known[index] = program.apply(program.operations[index], known, {})
        worst = max(worst, distance(own, known[end]))
    return worst if np.isfinite(worst) else 0.0


def _small(program: Program, index: int, other: Index) -> float:
    """Return the rounding of a constant that came in a smaller type, or of a float32 parameter that the
    other program lacks, which may be made of several, such as weights with their adapters; 0 for any
    other value."""
    op = program.maker(index)
    if op.kind == "parameter":
        own = op.epsilon == FLOAT32 and op.size > 1 and not is_weak(op) and not other.meets(op)
        return FLOAT32 if own else 0.0
    return op.epsilon if op.kind == "constant" else 0.0


def _nudged(value: Any, epsilon: float, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc":
        return value
    nudged = value * (1 + epsilon * rng.choice([-1.0, 1.0], value.shape))
    return np.where(np.abs(value) < HUGE, nudged, value)  # what stands for infinity is exact
