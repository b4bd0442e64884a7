"""Recordings: in order, bit for bit, whether an array lies in memory or on disk."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from parity.measure import recording
from parity.measure.recording import HeldRecording
from parity.measure.site import Site


@pytest.mark.parametrize("limit", [10**9, 100])
def test_arrays_come_back_bit_for_bit_and_in_order(monkeypatch, limit):
    monkeypatch.setattr(recording, "_room", lambda: limit)
    stream = np.random.default_rng(0)
    held = HeldRecording()
    given = {}
    for i, dtype in enumerate([np.float64, ml_dtypes.bfloat16, np.float32, np.float16, np.int64] * 2):
        site = Site(0, "forward", f"blocks.{i}", "out")
        given[site] = (100 * stream.standard_normal((3, 5, 2))).astype(dtype).transpose(2, 0, 1)
        held.add(site, given[site])
    held.add(Site(0, "loss", "x"), np.ones(4))
    assert list(held.sites("forward")) == list(given)
    assert list(held.sites()) == [*given, Site(0, "loss", "x")]
    for site, array in given.items():
        assert held.read(site).dtype == array.dtype
        assert held.read(site).tobytes() == array.tobytes()
        assert held.read(site).shape == array.shape


def test_a_module_that_is_called_again_is_another_call():
    held = HeldRecording()
    for value in range(3):
        held.add(Site(0, "forward", "drop", "out"), np.array([value]))
    assert [str(site) for site in held.sites()] == ["drop out", "drop out (call 2)", "drop out (call 3)"]
    assert [int(held.read(site)[0]) for site in held.sites()] == [0, 1, 2]


def test_what_has_no_room_lies_on_disk_until_the_recording_goes(monkeypatch):
    monkeypatch.setattr(recording, "_room", lambda: 80)
    held = HeldRecording()
    for i in range(4):
        held.add(Site(0, "forward", f"{i}", "out"), np.full(5, i, np.float64))  # 40 bytes each
    where = [entry.where for entry in held._entries.values()]
    assert [isinstance(each, Path) for each in where] == [False, False, True, True]
    folder = where[-1].parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()  # whoever tidies up first
    del held


@pytest.mark.parametrize(
    ("said", "room"),
    [("MemTotal: 9 kB\nMemAvailable:    5242880 kB\n", 2**30), ("MemAvailable: 5 kB\n", 384 * 2**20),
     ("MemAvailable: 99999999 kB\n", 2**31), ("nothing", 384 * 2**20)],
)  # fmt: skip
def test_a_fifth_of_what_the_system_has_is_room(monkeypatch, said, room):
    monkeypatch.setattr(Path, "read_text", lambda _: said)
    assert recording._room() == room
