"""Tensors of a file that nothing took: those that belong into the model, and those of other parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from parity.porting.formats.base import Stored
from parity.verifier.loaded.names import Tokens, tokens
from parity.verifier.loaded.numbers import as_set

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
    vague: set[str],
    unsaved: Sequence[Stored],
    also: Sequence[Tokens],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide the tensors that nothing took, and that are no copies of others.

    A tensor belongs into the model if it is beside one that was taken, in the same layer; in one of
    several numbered blocks of which others were; or if it has the name of a tied parameter, but other
    numbers.

    Args:
        tensors: those of the file.
        taken: those that the model holds.
        wanting: those that parameters should hold, and do not; they are named there.
        vague: those of `taken` that are only as good as others: they do not show that a layer is in use.
        unsaved: buffers of the model that are not saved with it.
        also: further names of tied parameters.

    Returns:
        Those that belong into the model; and those of parts that it does not have.
    """
    used = taken | wanting
    layers = {_parent(name) for name in used - vague if _last(name) in STANDARD} - {""}
    blocks = {front for name in used - vague for front in _numbered(name)}
    missed, outside = [], []
    for name in (each for each in tensors if each not in used):
        words = tokens(name)
        inside = (
            (_last(name) in STANDARD and _parent(name) in layers)
            or any(front in blocks for front in _numbered(name))
            or any(words[-len(each) :] == each for each in also)
        )
        if not inside or name.endswith(COMPUTED) or _is_mask(tensors[name]):
            outside.append(name)
        else:
            missed.append(name)
    alike = {tensors[name].shape for name in missed}
    there = {_print(each) for each in (*(tensors[n] for n in used), *unsaved) if each.shape in alike}
    missed = [name for name in missed if _print(tensors[name]) not in there]
    return tuple(missed), tuple(outside)


def _is_mask(stored: Stored) -> bool:
    """Return whether a tensor is of whole numbers, or holds no more than two values."""
    if stored.dtype.kind in "iub":
        return True
    array = stored.load().reshape(-1)
    return np.unique(array[:FEW]).size <= 2 and np.unique(array).size <= 2


def _print(stored: Stored) -> tuple[tuple[int, ...], int]:
    """Return what a tensor has in common with a copy of it, also in another type."""
    kind = np.dtype(np.complex64 if stored.dtype.kind == "c" else np.float32)
    return stored.shape, as_set(stored.load(), kind)


def _parent(name: str) -> str:
    return re.split(r"[./][^./]*$", name)[0] if re.search(r"[./]", name) else ""


def _last(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def _numbered(name: str) -> list[str]:
    """Return the lists of blocks that a tensor is in: ``encoder.layers`` of ``encoder.layers.3.a``."""
    return [name[: mark.start()] for mark in re.finditer(r"[./]\d+(?=[./])", name)]
