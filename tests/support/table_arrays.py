"""Arrays through tables of rows, in both directions."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from parity.porting.dialects.table import (
    Table,
    bind_ours,
    bind_theirs,
)
from parity.porting.dialects.transfer import read, write
from parity.porting.formats.base import Stored
from tests.support.tiny import TINY

DTYPES = ("float16", "bfloat16", "float32", "float64")


def draw(*shape: int, dtype="float64", seed=0) -> np.ndarray:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def stored(arrays: dict[str, np.ndarray]) -> dict[str, Stored]:
    return {name: Stored.of(array) for name, array in arrays.items()}


def values(tensors: dict[str, Stored]) -> dict[str, np.ndarray]:
    arrays = {name: each.load() for name, each in tensors.items()}
    for name, array in arrays.items():  # the header tells the truth
        assert (array.shape, array.dtype) == (tensors[name].shape, tensors[name].dtype)
        assert array.flags.c_contiguous
    return arrays


def into(table: Table, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A file's tensors as ours; none is left over."""
    bound, left = bind_theirs(table, {name: array.shape for name, array in arrays.items()})
    assert left == []
    return values(read(bound, stored(arrays)))


def back(table: Table, arrays: dict[str, np.ndarray], cfg=TINY) -> dict[str, np.ndarray]:
    bound, left = bind_ours(table, cfg, arrays)
    assert left == []
    return values(write(bound, stored(arrays), cfg))


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        assert (array.shape, array.dtype) == (expected[name].shape, expected[name].dtype), name
        assert array.tobytes() == expected[name].tobytes(), name
