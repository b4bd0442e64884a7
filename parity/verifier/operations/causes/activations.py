"""Another activation of the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from parity.verifier.operations.causes.exchange import Cause, is_a, outside
from parity.verifier.operations.meeting import Index
from parity.verifier.operations.region import Found, Region, distance

LARGEST = 1 << 16
"""Elements up to which the error function is computed one by one."""


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    if x.size > LARGEST:
        return np.full(x.shape, np.nan)
    return np.vectorize(erf, otypes=[float])(x / np.sqrt(2))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _erf,
    "gelu, tanh": _gelu_tanh,
    "quick gelu": lambda x: _sigmoid(1.702 * x),
    "silu": _sigmoid,
    "tanh": np.tanh,
}
"""The one function in each activation that makes it; the rest is arithmetic that all of them share."""

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
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


def judge(found: Found, _: Index) -> Cause | None:
    """Another activation of the same value."""
    for x in _read(found.b, found):
        for kinds in (PARTS, ACTIVATIONS, {n: lambda x, f=f: 1 + f(x) for n, f in PARTS.items()}):
            with np.errstate(all="ignore"):
                values = {name: function(x) for name, function in kinds.items()}
            of_a = [name for name, value in values.items() if is_a(found, value)]
            of_b = [name for name, value in values.items() if distance(found.instead, value) <= 1e-12]
            if len(of_a) == 1 and len(of_b) == 1 and {*of_a, *of_b} != {"identity"}:
                return "activation", f"{of_b[0]} where A has {of_a[0]}"
    return None


def _read(region: Region, found: Found) -> Iterator[np.ndarray]:
    """What a region reads, of the size of its end, in its shape; the end itself where it is empty."""
    for value in region.program.values(outside(region)).values():
        if (
            isinstance(value, np.ndarray)
            and value.size == found.value.size
            and value.ndim
            and value.dtype.kind == "f"
        ):
            yield value.reshape(found.value.shape)
