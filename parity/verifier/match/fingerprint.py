"""Fingerprints of values that do not depend on the order of the values, and can be added.

The fingerprint of a set of numbers is the sum, modulo 2^64, of a mixed form of each number's bits. A
permutation of the numbers - a transposition, heads in another order - does not change it, and the
fingerprint of a joined tensor is the sum of the fingerprints of its parts. So one pass over each file
is enough to find which tensor, or which stretch of a tensor, holds the same numbers as another, without
comparing pairs of tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

SLAB = 2**19
"""Number of values that are mixed at once: few enough for a processor's cache."""
INTEGER = np.dtype(np.int64)
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_START = np.uint64(0x2545F4914F6CDD1D)


class Fingerprint(NamedTuple):
    """The fingerprint of one tensor, its values cast to one type."""

    total: int
    """Fingerprint of all values."""
    sums: tuple[np.ndarray, ...]
    """For each axis the fingerprints of its slices: (length of the axis,) uint64."""
    constant: bool
    """Whether all values are the same; true for an empty tensor."""


def common_type(one: np.dtype, other: np.dtype) -> np.dtype | None:
    """Return the type in which tensors of two types are compared, the narrower one; None if they cannot.

    Neither of float16 and bfloat16 is narrower; both are exact in float32.
    """
    if one.kind in "iub" and other.kind in "iub":
        return INTEGER
    if one.kind == other.kind == "c":
        return min(one, other, key=lambda each: each.itemsize)
    if not (_is_float(one) and _is_float(other)):
        return None
    for narrow, wide in ((one, other), (other, one)):
        few, many = ml_dtypes.finfo(narrow), ml_dtypes.finfo(wide)
        if few.nmant <= many.nmant and few.maxexp <= many.maxexp:
            return narrow
    return np.dtype(np.float32)


def bits(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return the bits of values cast to a type, equal where the values are; zeros have one sign. Those
    of the two parts of a complex number are mixed into one word."""
    with np.errstate(all="ignore"):  # what overflows in a narrower type overflows in both tensors
        cast = np.asarray(array).astype(kind, copy=False)
        if kind == INTEGER:
            return np.ascontiguousarray(cast).view(np.uint64)
        if kind.kind == "c":
            real, imaginary = np.real(cast), np.imag(cast)
            return mixed(real, real.dtype) ^ bits(imaginary, real.dtype).astype(np.uint64) * _ODD[1]
        wide = np.float64 if kind.itemsize > 4 else np.float32
        plain = np.ascontiguousarray(cast.astype(wide, copy=False)) + wide(0)
    return np.asarray(plain).view(np.uint64 if wide is np.float64 else np.uint32)


def mixed(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return what each value adds to a fingerprint: uint64 of the same shape."""
    words = bits(array, kind).astype(np.uint64)
    words += _START
    for odd, shift in zip(_ODD, (np.uint64(32), np.uint64(29)), strict=True):
        words *= odd
        words ^= words >> shift
    return words


def fingerprint(array: np.ndarray, kind: np.dtype) -> Fingerprint:
    """Return the fingerprint of a tensor with at least one axis, its values cast to a type."""
    rows = max(1, SLAB // max(1, array[:1].size))
    sums = [np.zeros(length, np.uint64) for length in array.shape]
    constant = True
    first = bits(array.reshape(-1)[:1], kind)
    for start in range(0, len(array), rows):
        slab = array[start : start + rows]
        constant = constant and bool((bits(slab, kind) == first).all())
        values = mixed(slab, kind)
        for axis in range(array.ndim):
            others = tuple(other for other in range(array.ndim) if other != axis)
            part = values.sum(axis=others, dtype=np.uint64)
            if axis == 0:
                sums[0][start : start + rows] = part
            else:
                sums[axis] += part
    return Fingerprint(int(sums[0].sum(dtype=np.uint64)), tuple(sums), constant)


def windows(sums: np.ndarray, length: int) -> np.ndarray:
    """Return the fingerprints of all stretches of `length` slices, by the slice where they begin."""
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sums, dtype=np.uint64)])
    return ends[length:] - ends[:-length]


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))
