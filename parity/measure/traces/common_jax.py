"""Translation of Flax's parameters to PyTorch's names and layouts."""

from __future__ import annotations

from typing import Any

_CONVOLUTIONS = {3: (2, 1, 0), 4: (3, 2, 0, 1), 5: (4, 3, 0, 1, 2)}
"""Axes that turn (space..., in, out) into (out, in, space...), by the number of axes."""


def common_parameter(path: str, array: Any) -> tuple[str, Any]:
    """Translate a Flax parameter, an array of NumPy or JAX, to PyTorch's name and layout.

    ``kernel`` (in, out) becomes ``weight`` (out, in), a convolution's (h, w, in, out) becomes (out,
    in, h, w), and attention's kernels by heads - (in, heads, d) of query, key and value, (heads, d,
    out) of out - become matrices; ``scale`` and ``embedding`` become ``weight``.
    """
    module, _, leaf = path.rpartition(".")
    last = module.rpartition(".")[2]
    by_heads = last in ("query", "key", "value")
    if leaf == "kernel":
        if array.ndim == 3 and last == "out":
            array = array.reshape(-1, array.shape[-1])
        elif array.ndim == 3 and by_heads:
            array = array.reshape(len(array), -1)
        if array.ndim == 2:
            array = array.T
        elif array.ndim in _CONVOLUTIONS:
            array = array.transpose(_CONVOLUTIONS[array.ndim])
    if leaf == "bias" and array.ndim == 2 and by_heads:
        array = array.reshape(-1)
    leaf = "weight" if leaf in ("kernel", "scale", "embedding") else leaf
    return (f"{module}.{leaf}" if module else leaf), array
