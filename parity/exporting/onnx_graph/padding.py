"""ONNX operators that pad: Pad, and Conv with its rules for padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from parity.exporting.onnx_graph.operands import ints, number, tensor


def conv(
    x: Any, weight: Any, bias: Any = None, *, kernel_shape: Any = None, strides: Any = None,
    pads: Any = None, dilations: Any = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    """Convolve over one, two or three axes."""
    x, weight, bias = tensor(x), tensor(weight), None if bias is None else tensor(bias)
    axes = weight.ndim - 2
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    pads = list(pads or [0] * 2 * axes)
    if auto_pad.startswith("SAME"):
        rows = zip(x.shape[2:], weight.shape[2:], strides, dilations, strict=True)
        sums = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in rows]
        less, more = [each // 2 for each in sums], [-(-each // 2) for each in sums]
        pads = [*less, *more] if auto_pad == "SAME_UPPER" else [*more, *less]
    if pads[:axes] != pads[axes:]:
        x, pads = F.pad(x, _as_torch(pads)), [0] * 2 * axes
    run = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
    return run(x, weight, bias, tuple(strides), tuple(pads[:axes]), tuple(dilations), group)


def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """Pad a tensor, or cut it where a number of `pads` is negative."""
    x, pads = tensor(x), ints(pads)
    half = len(pads) // 2
    whole = [0] * 2 * x.ndim
    for i, axis in enumerate(range(x.ndim) if axes is None else ints(axes)):
        whole[axis % x.ndim], whole[axis % x.ndim + x.ndim] = pads[i], pads[half + i]
    if mode == "constant":
        return F.pad(x, _as_torch(whole), value=0 if value is None else number(value))
    for axis, (before, after) in enumerate(zip(whole[: x.ndim], whole[x.ndim :], strict=True)):
        if before or after:
            rows = np.pad(np.arange(x.shape[axis]), (max(before, 0), max(after, 0)), mode)  # type: ignore
            rows = rows[max(-before, 0) : len(rows) - max(-after, 0)]
            x = x.index_select(axis, torch.from_numpy(rows))
    return x


def _as_torch(pads: Sequence[int]) -> list[int]:
    """Return ONNX's pads, all beginnings before all ends, as PyTorch's: the last axis first."""
    half = len(pads) // 2
    return [*itertools.chain(*zip(pads[:half][::-1], pads[half:][::-1], strict=True))]
