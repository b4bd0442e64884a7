"""Operands of ONNX operators: tensors, and the numpy arrays that what comes out of shapes stays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def fold_constants(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator: operands that are all constants are folded in numpy, unrecorded; with a tensor
    among them, it runs recorded."""

    @functools.wraps(run)
    def evaluated(*operands: Any, **attributes: Any) -> Any:
        if any(isinstance(each, torch.Tensor) for each in operands):
            return run(*operands, **attributes)
        with torch._C._DisableTorchDispatch():
            result = run(*operands, **attributes)
        return tuple(map(_array, result)) if isinstance(result, tuple) else _array(result)

    return evaluated


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value


def tensor(value: Any) -> torch.Tensor:
    """Return an operand as a tensor."""
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))


def ints(value: Any) -> list[int]:
    """Return an operand that is a list of whole numbers."""
    if isinstance(value, torch.Tensor):
        value = value.numpy(force=True)
    return [int(each) for each in np.asarray(value).reshape(-1)]


def number(value: Any) -> Any:
    """Return an operand that is one number: a tensor as it is, else the number."""
    return value if isinstance(value, torch.Tensor) else np.asarray(value).item()
