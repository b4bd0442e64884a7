"""Operations of both frameworks that faults here use, beside those of `parity.faults.twin`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from parity.faults.twin import Here


def apply(here: Here, x: Any, weight: Any, bias: Any) -> Any:
    """Apply a linear layer or convolution with another weight (PyTorch's layout) and bias."""
    module = here.module
    if here.twin.name == "torch":
        import torch

        if isinstance(module, torch.nn.Conv2d):
            return torch.nn.functional.conv2d(x, weight, bias, module.stride)
        return torch.nn.functional.linear(x, weight, bias)
    import jax
    from flax import nnx

    if isinstance(module, nnx.Conv):
        strides: Any = module.strides
        layout = ("NHWC", "HWIO", "NHWC")
        kernel = weight.transpose(2, 3, 1, 0)
        y = jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=layout)
    else:
        y = x @ weight.T
    return y if bias is None else y + bias


def constant(here: Here, value: np.ndarray | float, like: Any) -> Any:
    """Convert numbers to an array of the framework, with the type of `like`."""
    if here.twin.name == "torch":
        return here.xp.as_tensor(value, dtype=like.dtype, device=like.device)
    return here.xp.asarray(value, like.dtype)


def softmax(here: Here, x: Any, axis: int) -> Any:
    """Compute exp(x), scaled so that each slice along `axis` sums to 1."""
    if here.twin.name == "torch":
        return here.xp.softmax(x, axis)
    import jax

    return jax.nn.softmax(x, axis)


@contextmanager
def setting(here: Here, **attributes: Any) -> Iterator[None]:
    """Give the module's attributes other values inside the context."""
    module = here.module
    before = {name: getattr(module, name) for name in attributes}
    # NNX refuses to change a module of another level of tracing, and is passed by
    put = module.__setattr__ if here.twin.name == "torch" else vars(module).__setitem__
    try:
        for name, value in attributes.items():
            put(name, value)
        yield
    finally:
        for name, value in before.items():
            put(name, value)
