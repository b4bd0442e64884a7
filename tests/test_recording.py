"""Recordings: in order, bit for bit, whether an array lies in memory or on disk."""

import ml_dtypes
import numpy as np
import pytest

from parity.measure import recording
from parity.measure.recording import Key, Recording


@pytest.mark.parametrize("limit", [10**9, 100])
def test_arrays_come_back_bit_for_bit_and_in_order(monkeypatch, limit):
    monkeypatch.setattr(recording, "_IN_MEMORY", limit)
    stream = np.random.default_rng(0)
    kept = Recording()
    given = {}
    for i, dtype in enumerate([np.float64, ml_dtypes.bfloat16, np.float32, np.float16, np.int64] * 2):
        key = Key("modules", f"blocks.{i}", "out")
        given[key] = (100 * stream.standard_normal((3, 5, 2))).astype(dtype).transpose(2, 0, 1)
        kept.add(key, given[key])
    kept.add(Key("loss", "x"), np.ones(4))
    assert list(kept.keys("modules")) == list(given)
    assert list(kept.keys()) == [*given, Key("loss", "x")]
    for key, array in given.items():
        assert kept[key].dtype == array.dtype
        assert kept[key].tobytes() == array.tobytes()
        assert kept[key].shape == array.shape
