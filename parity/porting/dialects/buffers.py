"""Buffers: tensors stored beside a library's parameters, whose values the schema determines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import ml_dtypes
import numpy as np

from parity.porting.dialects.dialect import Dialect
from parity.porting.formats.base import Stored
from vit_config import ViTConfig, WeightsError

ROUNDING = float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps) / 2
"""Relative tolerance of a buffer's values: some libraries store them in bfloat16."""


def make_buffers(dialect: Dialect, cfg: ViTConfig, dtype: np.dtype) -> dict[str, Stored]:
    """Build a model's buffers by the dialect's names; floating-point ones have type `dtype`."""
    buffers = {}
    for name, values in _made(dialect, cfg):
        buffers[name] = Stored.of(values.astype(dtype) if values.dtype.kind == "f" else values)
    return buffers


def compare_buffers(dialect: Dialect, cfg: ViTConfig, tensors: Mapping[str, Stored]) -> list[str]:
    """Compare the buffers in a file with those that its schema determines.

    Returns:
        A note on buffers that are equal only up to rounding.

    Raises:
        WeightsError: a buffer contradicts the schema.
    """
    rounded = []
    for name, values in _made(dialect, cfg):
        if name not in tensors or any(fnmatchcase(name, pattern) for pattern in dialect.ignored):
            continue
        stored = tensors[name].load()
        if stored.shape != values.shape or not _near(stored, values, ROUNDING):
            raise WeightsError(
                f"{name} is not what {dialect.title} computes for a model of this schema; the schema is"
                " another one, or the file is damaged"
            )
        if not _near(stored, values, 1e-6):
            rounded.append(name)
    if not rounded:
        return []
    return [f"{', '.join(rounded)}: rounded in the file; computed anew, without that rounding"]


def _near(stored: np.ndarray, values: np.ndarray, tolerance: float) -> bool:
    if values.dtype.kind != "f":
        return np.array_equal(stored, values)
    return np.allclose(stored.astype(np.float64), values.astype(np.float64), rtol=tolerance, atol=0)


def _made(dialect: Dialect, cfg: ViTConfig) -> Iterator[tuple[str, np.ndarray]]:
    for template, make in dialect.buffers.items():
        if (values := make(cfg)) is None:
            continue
        for i in range(cfg.depth if "{i}" in template else 1):
            yield template.replace("{i}", str(i)), values
