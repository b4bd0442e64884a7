"""Tensors of a file that nothing took: those that belong into the model, and those of other parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from parity.porting.formats.base import Stored

STANDARD = frozenset(
    ("weight", "bias", "kernel", "scale", "gamma", "beta", "running_mean", "running_var", "mean", "var")
)
"""Names of the tensors of one layer: who takes one of them takes all."""
COMPUTED = ("inv_freq", "freqs_cos", "freqs_sin", "periods", "rope.freqs", "position_ids")
"""Ends of names of tensors that the model's code computes, and that older versions saved."""
FEW = 2**12


def part_unused(
    tensors: Mapping[str, Stored],
    taken: set[str],
    wanting: set[str],
    unsaved: Sequence[Stored],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide the tensors that nothing took.

    A tensor belongs into the model if it is beside one that was taken, in the same layer, or in one of
    several numbered blocks of which others were.

    Args:
        tensors: those of the file.
        taken: those that the model holds.
        wanting: those that parameters should hold, and do not; they are named there.
        unsaved: buffers of the model that are not saved with it.

    Returns:
        Those that belong into the model; and those of parts that it does not have.
    """
    free = [name for name in tensors if name not in taken and name not in wanting]
    used = [*taken, *wanting]
    layers = {_parent(name) for name in used if _last(name) in STANDARD} - {""}
    blocks = {front for name in used for front in _numbered(name)}
    missed, outside = [], []
    for name in free:
        inside = (_last(name) in STANDARD and _parent(name) in layers) or any(
            front in blocks for front in _numbered(name)
        )
        of_use = inside and not name.endswith(COMPUTED) and _tells(name, tensors, taken, unsaved)
        (missed if of_use else outside).append(name)
    return tuple(missed), tuple(outside)


def _tells(name: str, tensors: Mapping[str, Stored], taken: set[str], unsaved: Sequence[Stored]) -> bool:
    """Return whether a tensor has numbers that nobody could do without: not a mask, not one value
    throughout, not the same as a tensor that was taken or as a buffer that is made."""
    stored = tensors[name]
    if stored.dtype.kind in "iub":
        return False
    array = stored.load()
    if np.unique(array.reshape(-1)[:FEW]).size <= 2 and np.unique(array).size <= 2:
        return False
    others = [tensors[each] for each in taken if tensors[each].shape == stored.shape]
    return not any(
        other.shape == stored.shape and np.array_equal(other.load().astype(array.dtype), array)
        for other in (*others, *unsaved)
    )


def _parent(name: str) -> str:
    return re.split(r"[./][^./]*$", name)[0] if re.search(r"[./]", name) else ""


def _last(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def _numbered(name: str) -> list[str]:
    """Return the lists of blocks that a tensor is in: ``encoder.layers`` of ``encoder.layers.3.norm``."""
    return [name[: mark.start()] for mark in re.finditer(r"[./]\d+(?=[./])", name)]
