"""Weights held as length and direction, multiplied out: W = g v / |v|.

torch's weight_norm, old and new, has a length for each row, each column or the whole tensor, which its
shape shows; GmP of CLIP's fine-tunes has one for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from parity.porting.formats.base import Stored
from vit_config import WeightsError


class Form(NamedTuple):
    """Names of a weight's two parts, after the name of its layer."""

    length: str
    direction: str
    weight: str
    source: str
    """The code that multiplies them out."""


FORMS = (
    Form(
        ".parametrizations.{}.original0", ".parametrizations.{}.original1", ".{}",
        "torch/nn/utils/parametrizations.py: _WeightNorm: torch._weight_norm(weight_v, weight_g, dim)",
    ),
    Form("_g", "_v", "", "torch/nn/utils/weight_norm.py: _weight_norm(v, g, dim)"),
    Form(".r", ".theta", ".weight", "GmP's GeometricLinear: r * F.normalize(theta, p=2, dim=1)"),
)  # fmt: skip
WEIGHTS = ("weight", "in_proj_weight")
"""Names of the parameters that a layer may hold so."""


def multiplied(tensors: Mapping[str, Stored]) -> tuple[dict[str, Stored], tuple[str, ...]]:
    """Return the tensors, those in two parts multiplied out, and a note if there were such.

    Raises:
        WeightsError: the shape of a length fits no axis of its direction.
    """
    result, count = dict(tensors), 0
    for name, length in tensors.items():
        for form, leaf in ((form, leaf) for form in FORMS for leaf in WEIGHTS):
            ending = form.length.format(leaf) if "{}" in form.length else form.length
            stem = name.removesuffix(ending)
            if not form.weight and not stem.endswith(f".{leaf}"):
                continue
            other = stem + form.direction.format(leaf)
            if stem == name or other not in tensors:
                continue
            result[stem + form.weight.format(leaf)] = _product(name, length, tensors[other])
            del result[name], result[other]
            count += 1
            break
    note = f"multiplied out {count} weights that are held as length and direction"
    return result, (note,) if count else ()


def _product(name: str, length: Stored, direction: Stored) -> Stored:
    g, v = length.shape, direction.shape
    axes = tuple(axis for axis, size in enumerate(g) if size == 1) if g else tuple(range(len(v)))
    if g and (len(g) != len(v) or any(a not in (1, b) for a, b in zip(g, v, strict=True))):
        raise WeightsError(f"{name}: {g} is no length of the rows or columns of a weight {v}")
    dtype = np.result_type(length.dtype, direction.dtype)

    def load() -> np.ndarray:
        factors, rows = (each.load().astype(np.float64) for each in (length, direction))
        with np.errstate(invalid="ignore", divide="ignore"):  # a row of zeros has no direction in torch
            whole = factors * rows / np.sqrt(np.sum(rows * rows, axis=axes, keepdims=bool(g)))
        return whole.astype(dtype)

    return Stored(v, dtype, load)
