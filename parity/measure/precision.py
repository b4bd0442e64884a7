"""Flags by which a framework may compute float32 products less precisely than in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

Precision = Literal["highest", "high", "default"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""In this order: full float32; TensorFloat-32 or three passes of bfloat16, where the device has
them; whatever the frameworks are set to."""

_TORCH = "torch.get_float32_matmul_precision()"
_TORCH_MATMUL = "torch.backends.cuda.matmul.allow_tf32"
_TORCH_CUDNN = "torch.backends.cudnn.allow_tf32"
_JAX = "jax_default_matmul_precision"
_PLATFORM = "platform"


def torch_precision() -> dict[str, str]:
    """Return PyTorch's flags, and whether its tensors may be on a GPU."""
    import torch

    return {
        _TORCH: torch.get_float32_matmul_precision(),
        _TORCH_MATMUL: str(torch.backends.cuda.matmul.allow_tf32),
        _TORCH_CUDNN: str(torch.backends.cudnn.allow_tf32),
        _PLATFORM: "gpu" if torch.cuda.is_available() else "cpu",
    }


def jax_precision() -> dict[str, str]:
    """Return JAX's flag, and the platform it computes on."""
    import jax

    config: Any = jax.config
    return {
        _JAX: str(config.jax_default_matmul_precision),
        _PLATFORM: jax.default_backend(),
    }


@contextmanager
def torch_at(precision: Precision) -> Iterator[None]:
    """Set PyTorch to a precision inside the context; its flags are restored afterwards."""
    import torch

    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if precision != "default":
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = precision == "high"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


@contextmanager
def jax_at(precision: Precision) -> Iterator[None]:
    """Set JAX to a precision inside the context."""
    import jax

    if precision == "default":
        yield
        return
    with jax.default_matmul_precision(precision):
        yield


def find_reduced_flags(flags: Mapping[str, str]) -> list[str]:
    """Return the flags by which float32 products are, or may be here, less precise than float32.

    Args:
        flags: result of `torch_precision` or `jax_precision` where the model ran.

    Returns:
        Each flag with its value and the value to set, as shown to the user.
    """
    accelerated = flags.get(_PLATFORM, "cpu") not in ("cpu", "")
    reduced_flags = []
    if flags.get(_TORCH, "highest") != "highest":
        reduced_flags.append(f'{_TORCH} = "{flags[_TORCH]}" (set "highest")')
    for flag in (_TORCH_MATMUL, _TORCH_CUDNN):
        if accelerated and flags.get(flag) == "True":
            reduced_flags.append(f"{flag} = True (set False)")
    full = ("highest", "float32", "F32_F32_F32")
    if (
        _JAX in flags
        and flags[_JAX] not in full
        and (accelerated or flags[_JAX] not in ("None", "default"))
    ):
        reduced_flags.append(f'{_JAX} = {flags[_JAX]} (set "highest")')
    return reduced_flags
