"""The environment of a check: versions, devices, and the precision flags in force."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import numpy as np

from parity.measure.device import Device, names
from parity.measure.precision import (
    Precision,
    find_reduced_flags,
    jax_at,
    jax_precision,
    torch_at,
    torch_precision,
)
from parity.measure.tolerance import DType


def environment(precision: Precision = "highest", device: Device = "cpu") -> dict[str, str]:
    """Return the versions of everything that computes, the devices, and the matmul precision."""
    import flax
    import jax
    import torch

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "flax": flax.__version__,
        "torch": torch.__version__,
        **{f"{framework} device": name for framework, name in names(device).items()},
        "matmul precision": precision,
    }


def find_uncertified_flags(dtypes: Sequence[DType], precision: Precision) -> tuple[str, ...]:
    """Return the flags that make float32 products less precise than float32, if float32 is compared."""
    if "float32" not in dtypes:
        return ()
    with torch_at(precision), jax_at(precision):
        return tuple(
            flag for own in (jax_precision(), torch_precision()) for flag in find_reduced_flags(own)
        )
