"""Pooling in one vocabulary for both frameworks: the largest number of each window, its mean or sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.verifier.programs.windows import shown

POOL = "pool"
"""Key of a pooling's arguments in the `extra` of its operation."""
_KINDS = {"max": "largest", "sum": "sum", "min": "smallest"}
_OF_TORCH = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad",
             "divisor_override")  # fmt: skip
_ORDERS = {"max": (0, 1, 2, 3, 4), "avg": (0, 1, 2, 4, 5, 6)}
"""Which of these arguments each of torch's poolings has, in order."""


@dataclass(frozen=True)
class Pool:
    """The arguments of a pooling, for each axis that its window moves along."""

    kind: str
    """The "largest", the "smallest", the "sum" or the "mean" of each window."""
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    """Before and behind each axis."""
    dilation: tuple[int, ...]
    counted: bool = True
    """Whether a mean counts the padding."""

    @property
    def text(self) -> str:
        """The arguments that differ from their defaults, as a formula shows them."""
        plain = {"window": "", "stride": "1", "padding": "0", "dilation": "1"}
        values = {name: self.argument(name) for name in plain}
        return ", ".join(f"{name}={each}" for name, each in values.items() if each != plain[name])

    def argument(self, name: str) -> str:
        """Write an argument as a person would: one number where all axes have the same."""
        return shown(name, getattr(self, name))

    def of(self, x: np.ndarray, axes: Sequence[int]) -> np.ndarray | None:
        """Return what it makes of a value along some axes; None where the value does not fit."""
        if len(axes) != len(self.window):
            return None
        axes = [axis % x.ndim for axis in axes]
        pads = [(0, 0)] * x.ndim
        for axis, each in zip(axes, self.padding, strict=True):
            pads[axis] = each
        reach = [(n - 1) * d + 1 for n, d in zip(self.window, self.dilation, strict=True)]
        fill = {"largest": -math.inf, "smallest": math.inf}.get(self.kind, 0.0)
        padded = np.pad(x, pads, constant_values=fill)
        if min(low for pair in pads for low in pair) < 0 or any(
            padded.shape[axis] < n for axis, n in zip(axes, reach, strict=True)
        ):
            return None
        windows = self._windows(padded, axes, reach)
        inner = tuple(range(x.ndim, windows.ndim))
        if self.kind in ("largest", "smallest"):
            return windows.max(inner) if self.kind == "largest" else windows.min(inner)
        if self.kind == "sum":
            return windows.sum(inner)
        counts = self._windows(np.pad(np.ones_like(x), pads), axes, reach).sum(inner)
        return windows.sum(inner) / (math.prod(self.window) if self.counted else counts)

    def _windows(self, padded: np.ndarray, axes: Sequence[int], reach: Sequence[int]) -> np.ndarray:
        view = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(axes))  # type: ignore[call-overload]
        steps = [slice(None)] * view.ndim
        for i, axis in enumerate(axes):
            steps[axis] = slice(None, None, self.stride[i])
            steps[padded.ndim + i] = slice(None, None, self.dilation[i])
        return view[tuple(steps)]


def pool_of_jax(name: str, params: Mapping[str, Any]) -> tuple[Pool, tuple[int, ...]] | None:
    """Return the pooling of one of the primitives `reduce_window_*`, and its axes; None of another."""
    kind = _KINDS.get(name.removeprefix("reduce_window_"))
    if not name.startswith("reduce_window_") or kind is None or set(params["base_dilation"]) != {1}:
        return None
    window, stride, dilation = (
        tuple(params[each]) for each in ("window_dimensions", "window_strides", "window_dilation")
    )
    padding = [(int(low), int(high)) for low, high in params["padding"]]
    axes = tuple(i for i, n in enumerate(window) if n > 1 or stride[i] > 1 or padding[i] != (0, 0))
    window, stride, dilation = (tuple(each[i] for i in axes) for each in (window, stride, dilation))
    return Pool(kind, window, stride, tuple(padding[i] for i in axes), dilation), axes


def pool_of_torch(name: str, args: Sequence[Any]) -> tuple[Pool, tuple[int, ...]] | None:
    """Return the pooling of one of torch's operators, and its axes; None of another, or where the last
    window may be smaller than the others."""
    kind, _, rest = name.partition("_pool")
    if kind not in _ORDERS or rest[1:2] != "d":
        return None
    count = int(rest[0])
    given = dict(zip((_OF_TORCH[i] for i in _ORDERS[kind]), args[1:], strict=False))
    if given.get("ceil_mode") or given.get("divisor_override"):
        return None

    def each(name: str, default: Any) -> tuple[int, ...]:
        value = given.get(name) or default
        value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        return value * count if len(value) == 1 else value

    window = each("kernel_size", None)
    pool = Pool(
        "largest" if kind == "max" else "mean", window, each("stride", window),
        tuple((n, n) for n in each("padding", 0)), each("dilation", 1),
        given.get("count_include_pad", True),
    )  # fmt: skip
    return pool, tuple(range(-count, 0))
