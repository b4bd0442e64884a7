"""Activations of B that differ from A's of the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import is_a, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region
from parity.verifier.search.written import FLOAT32, TYPES, rounded

LARGEST = 1 << 16
"""Most elements for which the error function is computed one by one."""


Numbers = Callable[[float], float]
"""A number as a program holds it: in full, or in a smaller type."""
Function = Callable[[np.ndarray, Numbers], np.ndarray]


def _gelu_tanh(x: np.ndarray, held: Numbers) -> np.ndarray:
    return np.tanh(held(np.sqrt(2 / np.pi)) * (x + held(0.044715) * x**3))


def _erf(x: np.ndarray, held: Numbers) -> np.ndarray:
    from math import erf

    if x.size > LARGEST:
        return np.full(x.shape, np.nan)
    return np.vectorize(erf, otypes=[float])(x * held(np.sqrt(0.5)))


def _sigmoid(x: np.ndarray, _: Numbers) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _quick(x: np.ndarray, held: Numbers) -> np.ndarray:
    return _sigmoid(held(1.702) * x, held)


PARTS: dict[str, Function] = {
    "gelu": _erf,
    "gelu, tanh": _gelu_tanh,
    "quick gelu": _quick,
    "silu": _sigmoid,
    "tanh": lambda x, _: np.tanh(x),
}
"""The characteristic function in each activation; the rest is arithmetic that all of them share."""

FACTORS: dict[str, Function] = {
    "gelu": lambda x, held: 0.5 * (1 + _erf(x, held)),
    "gelu, tanh": lambda x, held: 0.5 * (1 + _gelu_tanh(x, held)),
    "quick gelu": _quick,
    "silu": _sigmoid,
}
"""What multiplies x in each activation."""

ACTIVATIONS: dict[str, Function] = {
    **{n: lambda x, held, f=f: x * f(x, held) for n, f in FACTORS.items()},
    "relu": lambda x, _: np.maximum(x, 0),
    "relu squared": lambda x, _: np.maximum(x, 0) ** 2,
    "tanh": lambda x, _: np.tanh(x),
    "sigmoid": _sigmoid,
    "softmax": lambda x, _: (e := np.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
    "identity": lambda x, _: x,
}
GATES: dict[str, Function] = {
    "sigmoid": _sigmoid,
    "softmax": lambda x, _: np.exp(x - x.max(-1, keepdims=True)),
}
"""Functions that turn scores into weights, up to the factor by which their sum becomes one."""
_KINDS = (
    PARTS,
    FACTORS,
    ACTIVATIONS,
    {n: lambda x, held, f=f: 1 + f(x, held) for n, f in PARTS.items()},
    GATES,
)


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise another activation of the same value."""
    own, wanted = _numbers_of(gap.b), _numbers_of(gap.a)
    for x in inputs_of(gap.b, gap):
        for kinds in _KINDS:
            with np.errstate(all="ignore"):
                of_a = [n for n, f in kinds.items() if any(is_a(gap, f(x, held)) for held in wanted)]
                of_b = [
                    n for n, f in kinds.items()
                    if any(distance(gap.value_b, f(x, held)) <= 1e-12 for held in own)
                ]  # fmt: skip
            if len(of_a) == 1 and len(of_b) == 1 and {*of_a, *of_b} != {"identity"}:
                return "activation", f"{of_b[0]} where A has {of_a[0]}"
    return None


def _numbers_of(region: Region) -> list[Numbers]:
    """Return how a region may hold its numbers: in full, in the smaller types that its
    operations ask for, or as the shortest decimals of float32, as a program of JAX is read."""
    asked = {region.program.operations[i].epsilon for i in region.operations} & TYPES.keys()

    def smaller(epsilon: float) -> Numbers:
        return lambda number: float(rounded(np.asarray(number), epsilon))

    decimal = [lambda number: float(str(np.float32(number)))] if FLOAT32 in asked else []
    return [float, *map(smaller, sorted(asked)), *decimal]


def inputs_of(region: Region, gap: Gap) -> Iterator[np.ndarray]:
    """Yield what a region reads, of the size of its end, in its shape; the end of an empty region."""
    for value in region.program.values(outside(region)).values():
        if (
            isinstance(value, np.ndarray)
            and value.size == gap.value_a.size
            and value.ndim
            and value.dtype.kind == "f"
        ):
            yield value.reshape(gap.value_a.shape)


CAUSES = (
    Cause(
        "activation",
        "B applies another activation to the same value, or its gradient.",
        judge,
        "nn.gelu(x @ w, approximate=False) @ v",
        "nn.gelu(x @ w) @ v",
    ),
)
