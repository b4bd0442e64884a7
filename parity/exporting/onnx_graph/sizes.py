"""How much memory the result of a node takes, known before it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

_WIDEST = 8
"""Bytes of a number."""
_BY_NUMBERS = ("ConstantOfShape", "Conv", "Expand", "Pad", "Tile")
"""Operators whose results are as large as a number says: an operand's or an attribute's. Range counts by
itself: a tensor without numbers has none to read."""
_FEW = 64
"""Numbers of an operand that may be read: a shape, axes, repeats."""


def result_bytes(
    name: str, run: Callable[..., Any], operands: Sequence[Any], attributes: Mapping[str, Any], most: int
) -> int:
    """Return the bytes of an operator's largest result, or 0 where they cannot be more than `most`, or
    only computing it would tell.

    The operator runs on tensors that have shapes and no numbers, but for short lists of numbers.
    """
    shapes = [getattr(each, "shape", ()) for each in operands]
    # a length of 0 takes nothing here, and what is summed over it has all the other lengths
    if (
        name not in _BY_NUMBERS
        and math.prod(max(n, 1) for each in shapes for n in each) * _WIDEST <= most
    ):
        return 0
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():

        def shape_of(value: Any) -> Any:
            shape = getattr(value, "shape", ())
            if len(shape) < 2 and math.prod(shape) <= _FEW:
                return value
            if isinstance(value, torch.Tensor):
                return mode.from_tensor(value)
            return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, value.dtype)).dtype)

        try:
            results = run(*map(shape_of, operands), **attributes)
        except Exception:  # it says so when it runs
            return 0
        results = results if isinstance(results, tuple) else (results,)
        return max((getattr(each, "nbytes", 0) for each in results), default=0)
