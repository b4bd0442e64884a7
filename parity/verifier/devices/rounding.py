"""How far one operation's results on two devices may be apart, and what explains more than that.

A device may round otherwise: sums in another order, functions by another formula. What that moves a
result by is measured on the first device, from operands that are moved by half a unit in the last place
each. A sum of K terms may be K / 2 rounded partial sums away from another order of it, and its nudged
operands move it by about the square root of 2 K roundings (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, 3.1), so that sums of many terms are allowed the square root of K times more - but for
16-bit types, whose sums hardware keeps in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from parity.verifier.devices.step import Step, nudge, rounding_of
from parity.verifier.programs.callables import is_floating
from parity.verifier.programs.names import ELEMENTWISE
from parity.verifier.programs.operation import Source

ALLOWED = 8.0
"""Multiple of the measured rounding that another device may be away; measured on operations of the twins
and of timm between kernels for AVX2, AVX-512 and none, oneDNN and its reference, and XLA's settings: 3
at most."""
NUDGES = 3
"""How often operands are moved."""
COMPOSED = frozenset({"gelu", "silu", "softplus", "hardswish", "mish", "elu"})
"""Functions that kernels make of others, of which a part as large as the operand may cancel, as in
1 + erf(x): each kernel is away by a rounding of the operand."""
FUNCTIONS = ELEMENTWISE | COMPOSED | {"hardsigmoid", "erfinv", "logaddexp"}
"""Operations each of whose results depends on one element of each operand."""


class Apart(NamedTuple):
    """An operation that computes other numbers on the second device."""

    name: str
    source: Source | None
    attributes: str
    shape: tuple[int, ...]
    dtype: str
    times: float
    """By how many times more than a device may round otherwise the worst number differs."""
    error: float
    """Relative distance in the norm."""
    reason: str


def judge(a: Step, results: Sequence[np.ndarray], attributes: str) -> Apart | None:
    """Compare an operation's results on a second device with those on the first; None if alike.

    Args:
        attributes: what the second side's operation is told besides its operands.
    """
    moved = [a.run([nudge(each, np.random.default_rng(seed)) for each in a.operands])
             for seed in range(NUDGES)]  # fmt: skip
    worst: Apart | None = None
    for i, (one, other) in enumerate(zip(a.results, results, strict=True)):
        if not is_floating(one):
            continue
        allowed = _allowed(a, one, [each[i] for each in moved])
        times = _times(one, other, allowed)
        if times > 1 and (worst is None or times > worst.times):
            reason = next((why for why, explains in _reasons(a, i) if explains(other, allowed)), "")
            worst = Apart(
                a.signature.name, a.source, a.signature.attributes, one.shape, one.dtype.name, times,
                _distance(one, other), reason or _otherwise(a.signature.attributes, attributes),
            )  # fmt: skip
    return worst


def _otherwise(one: str, other: str) -> str:
    if one != other:
        return f"it is told ({one}), and in B ({other})"
    return "another algorithm or approximation"


def terms(step: Step) -> float:
    """Estimate how many products or numbers each result sums up, from the sizes."""
    read = [math.prod(shape) for _, shape in step.signature.operands]
    made = max(math.prod(step.signature.results[0][1]), 1)
    largest = sorted(read)[-2:]
    product = step.signature.name in ("matmul", "conv", "addmm", "baddbmm", "linear", "einsum")
    return max(math.sqrt(math.prod(largest) / made) if product else max(largest) / made, 1.0)


def _allowed(step: Step, value: np.ndarray, moved: Sequence[np.ndarray]) -> np.ndarray:
    """Return for each element how far it may be away."""
    wide, unit = _wide(value), rounding_of(value.dtype)
    least = float(ml_dtypes.finfo(value.dtype).smallest_subnormal)
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(_wide(each) - wide) for each in moved], axis=0)
        spread = np.where(np.isfinite(spread), spread, 0)
        if step.signature.name in COMPOSED:
            spread = spread + unit * np.abs(_wide(step.operands[0]))
        elif step.signature.name not in FUNCTIONS and spread.ndim:
            spread = np.maximum(spread, np.sqrt(np.mean(spread**2, axis=-1, keepdims=True)))
            low = unit > rounding_of(np.dtype(np.float32))
            spread = spread * (1 if low else max(1, math.sqrt(terms(step)) / 4))
        return ALLOWED * (spread + unit * np.where(np.isfinite(wide), np.abs(wide), 0)) + 2 * least


def _times(one: np.ndarray, other: np.ndarray, allowed: np.ndarray) -> float:
    """Return the largest multiple of what is allowed that a number is away."""
    if one.shape != other.shape:
        return math.inf
    if not one.size:
        return 0.0
    a, b = _wide(one), _wide(other)
    odd = (np.isfinite(a) != np.isfinite(b)) | (np.isnan(a) != np.isnan(b))
    if odd.any() or (a[np.isinf(a)] != b[np.isinf(a)]).any():
        return math.inf
    finite = np.isfinite(a)
    return float((np.abs(a[finite] - b[finite]) / allowed[finite]).max(initial=0.0))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    a, b = _wide(one), _wide(other)
    if a.shape != b.shape or not (np.isfinite(a) == np.isfinite(b)).all():
        return math.inf
    finite = np.isfinite(a)
    size = float(np.linalg.norm(a[finite])) or 1.0
    return float(np.linalg.norm(a[finite] - b[finite])) / size


Explains = Callable[[np.ndarray, np.ndarray], bool]
"""Whether what a second device gave is explained, within what is allowed."""


def _reasons(step: Step, i: int) -> Iterator[tuple[str, Explains]]:
    """Yield what a device may do otherwise, the operation recomputed so on the first device."""
    own = step.results[i]
    unit, tiny = rounding_of(own.dtype), float(ml_dtypes.finfo(own.dtype).smallest_normal)
    yield "infinite or NaN on one side only", lambda other, _: _is_odd(own, other)

    def flushed(other: np.ndarray, allowed: np.ndarray) -> bool:
        with np.errstate(invalid="ignore"):
            away = np.abs(_wide(own) - _wide(other)) > allowed
        return bool((_wide(other)[away] == 0).all() and (np.abs(_wide(own))[away] < tiny).all())

    yield "numbers below the smallest normal one are flushed to zero", flushed
    flush = [_flushed(each) for each in step.operands]
    if any(not np.array_equal(x, y) for x, y in zip(flush, step.operands, strict=True)):
        yield "operands below the smallest normal one are read as zero", _like(step, flush, i)
    product = step.signature.name in ("matmul", "conv", "addmm", "baddbmm", "linear", "einsum")
    for name, digits in (("TensorFloat-32", 2.0**-11), ("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
        if digits > unit:
            factors = slice(-2, None) if step.signature.name in ("addmm", "baddbmm") else slice(0, 2)
            rounded = list(step.operands)
            rounded[factors] = [_rounded(each, name) for each in rounded[factors]]
            what = "its factors are" if product else "its operands are"
            yield f"{what} rounded to {name}", _like(step, rounded, i)
            if name != "TensorFloat-32":
                made = _rounded(step.run(rounded)[i], name)
                yield f"it is computed in {name}", _like_values(made)
    for name, digits in (("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
        if digits > unit:
            yield f"its result is rounded to {name}", _rounds(own, name)
    if step.signature.name == "gelu":
        yield "the tanh form of GELU", _like_values(_tanh_gelu(step.operands[0]))
    if terms(step) > 1:
        for name, digits in (("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
            yield f"as far away as sums kept in {name} are", _sums(step, own, digits)


def _like(step: Step, operands: Sequence[np.ndarray], i: int) -> Explains:
    return lambda other, allowed: _times(step.run(operands)[i], other, allowed) <= 1


def _like_values(values: np.ndarray) -> Explains:
    return lambda other, allowed: _times(values, other, allowed) <= 1


def _rounds(own: np.ndarray, name: str) -> Explains:
    """Whether the other numbers are representable in a type, and the nearest to the own ones."""

    def explains(other: np.ndarray, allowed: np.ndarray) -> bool:
        rounded = _rounded(other, name)
        unit = 2.0**-8 if name == "bfloat16" else 2.0**-11
        near = np.abs(_wide(own) - _wide(other)) <= allowed + unit * np.abs(_wide(own))
        return np.array_equal(rounded, other) and bool(near.all())

    return explains


def _sums(step: Step, own: np.ndarray, unit: float) -> Explains:
    """Whether the distance is that of K partial sums rounded to a type, within a factor of 4."""

    def explains(other: np.ndarray, allowed: np.ndarray) -> bool:
        expected = unit * math.sqrt(terms(step)) / 2
        return expected / 4 <= _distance(own, other) <= expected * 4

    return explains


def _is_odd(own: np.ndarray, other: np.ndarray) -> bool:
    return bool((np.isfinite(_wide(own)) != np.isfinite(_wide(other))).any())


def _flushed(array: np.ndarray) -> np.ndarray:
    if not is_floating(array):
        return array
    tiny = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    return np.where(np.abs(_wide(array)) < tiny, 0, array).astype(array.dtype)


def _rounded(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    if name != "TensorFloat-32":
        with np.errstate(over="ignore"):
            return array.astype(getattr(ml_dtypes, name, name)).astype(np.float32)
    bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    bits += 0x0FFF + ((bits >> 13) & 1)  # to nearest, ten bits behind the leading one
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32).reshape(array.shape)


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    wide = _wide(x)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)  # Hendrycks and Gimpel, 2016
    return (0.5 * wide * (1 + np.tanh(inner))).astype(x.dtype)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)
