"""Weights in eight bits with a scale beside each, as float32: bitsandbytes' int8, and scaled float8.

Each scheme is a record; a tensor of eight bits without the scale of a known scheme stays as it is, and
is refused by name (`unfit.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from parity.porting.formats.base import Stored
from vit_config import WeightsError


class Scheme(NamedTuple):
    """A way to keep a matrix in eight bits."""

    name: str
    scale: str
    """Word in the name of the scale where a weight's name has ``weight``."""
    types: tuple[str, ...]
    factor: float
    """Number by which the scale is multiplied."""
    source: str
    """The code that multiplies it out."""


FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SCHEMES = (
    Scheme(
        "bitsandbytes' int8", "SCB", ("int8",), 1 / 127,
        "bitsandbytes/backends/default/ops.py: int8_vectorwise_dequant: A * stats / 127",
    ),
    Scheme("float8 with scales", "weight_scale", FLOAT8, 1.0, "compressed_tensors: x_q * scale"),
    Scheme("float8 with scales", "weight_scale_inv", FLOAT8, 1.0, "DeepSeek-V3: weight_dequant"),
    Scheme("float8 with scales", "scale_weight", FLOAT8, 1.0, "ComfyUI: scaled_fp8_ops"),
)  # fmt: skip
BESIDE = ("weight_format", "input_scale", "scale_input")
"""Words in the names of tensors that the product with unrounded numbers does not need."""
BLOCK = 128
"""Side of the blocks of ``weight_scale_inv``."""


def dequantised(tensors: Mapping[str, Stored]) -> tuple[dict[str, Stored], tuple[str, ...]]:
    """Return the tensors, those in eight bits multiplied by their scales, and a note on each scheme.

    Raises:
        WeightsError: a scale has not the shape of one of its matrix.
    """
    result, counts = dict(tensors), dict[str, int]()
    for name, stored in tensors.items():
        stem = name.removesuffix("weight")
        scheme = _scheme(stem, stored, tensors) if stem != name else None
        if scheme is None:
            continue
        scale = tensors[f"{stem}{scheme.scale}"]
        result[name] = _wide(name, stored, scale, scheme)
        for each in (scheme.scale, *BESIDE):
            result.pop(f"{stem}{each}", None)
        counts[scheme.name] = counts.get(scheme.name, 0) + 1
    notes = (f"{count} matrices of {name} multiplied out to float32" for name, count in counts.items())
    return result, tuple(notes)


def _scheme(stem: str, stored: Stored, tensors: Mapping[str, Stored]) -> Scheme | None:
    for each in SCHEMES:
        if stored.dtype.name in each.types and f"{stem}{each.scale}" in tensors:
            return each
    return None


def _wide(name: str, stored: Stored, scale: Stored, scheme: Scheme) -> Stored:
    rows, *rest = stored.shape or (1,)
    blocks = (-(-rows // BLOCK), -(-rest[0] // BLOCK)) if len(rest) == 1 else ()
    by_block = scheme.scale == "weight_scale_inv" and scale.shape == blocks != ()
    one = scale.shape in ((), (1,), (1, 1))
    by_row = scale.shape in ((rows,), (rows, 1))
    if not (one or by_row or by_block):
        raise WeightsError(
            f"{name}: is of shape {stored.shape} in {stored.dtype}, its scale of {scale.shape}, expected"
            f" one number or {rows}"
        )

    def load() -> np.ndarray:
        values, factors = stored.load().astype(np.float32), scale.load().astype(np.float32)
        if by_block:
            factors = factors.repeat(BLOCK, 0)[:rows].repeat(BLOCK, 1)[:, : rest[0]]
        else:
            factors = factors.reshape(-1, *(1,) * len(rest))
        return values * (factors * np.float32(scheme.factor))

    return Stored(stored.shape, np.dtype(np.float32), load)
