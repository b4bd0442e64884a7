"""Nudging numbers by one unit in the last place, the smallest change there is, as a yardstick."""

from __future__ import annotations

import zlib

import numpy as np


def nudge_numbers(array: np.ndarray, seed: int, name: str) -> np.ndarray:
    """Move each finite nonzero number of an array to one of its two neighbours, at random.

    Args:
        seed, name: fix the directions; arrays of other names move differently.
    """
    if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
        return array
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    up = stream.integers(0, 2, array.shape, dtype=np.int8) * np.int8(2) - np.int8(1)
    # the next number of larger size is the next pattern of bits, in every IEEE type
    bits = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
    moves = np.isfinite(array.astype(np.float64, copy=False)) & (array != 0)
    return (bits + (up * moves).reshape(bits.shape)).view(array.dtype).reshape(array.shape)
