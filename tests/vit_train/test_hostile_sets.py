"""A data set that lies is one line, and takes little memory; one that only looks odd is read."""

import os

import numpy as np
import pytest

from tests.support import hostile_sets
from tests.support.hostile_sets import REFUSED
from tests.support.small_sets import in_folders, in_parquet, in_tar, picture
from vit_config import DataError
from vit_train.batches.data import open_dataset
from vit_train.sources import fingerprint

MOST = 300
"""MiB."""


@pytest.fixture(scope="module")
def opened():
    """All of them, opened in one process: its peak is that of the worst."""
    return hostile_sets.opened_sets()


@pytest.mark.parametrize("name", REFUSED)
def test_a_set_that_lies_is_one_line(opened, name):
    assert REFUSED[name][0] in opened[name]["said"]
    assert len(opened[name]["said"].splitlines()) == 1
    assert opened[name]["mib"] < MOST


@pytest.mark.parametrize("name", hostile_sets.READ)
def test_a_set_that_looks_odd_is_read(opened, name):
    assert not opened[name]["said"]


def test_an_image_of_too_many_pixels_is_replaced_where_that_is_asked_for(tmp_path):
    _, build = REFUSED["a PNG of 3.6 thousand million pixels"]
    dataset = open_dataset(build(tmp_path), tmp_path)
    (bad,) = (i for i in range(3) if dataset.train.name(i).endswith("b.png"))
    with pytest.raises(DataError, match="pixels"):
        dataset.train[bad]
    dataset.train.on_damage = "replace"
    np.testing.assert_array_equal(dataset.train[bad]["image"], dataset.train[(bad + 1) % 3]["image"])
    assert list(dataset.train.damaged) == [bad]


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_any_record_that_changed_is_another_fingerprint(tmp_path, kind):
    """Of 700, more than any sample would look at; a label counts as much as an image."""
    build = {"folder": in_folders, "tar": in_tar}[kind]

    def write(folder, odd=None):
        folder.mkdir()
        names = {f"{i:03}": b"%03d" % (999 if i == odd else i) for i in range(700)}
        if kind == "folder":
            more = lambda dog: [(dog / f"{k}.png").write_bytes(v) for k, v in names.items()]  # noqa: E731
        else:
            more = [
                (f"{k}.{e}", v if e == "png" else b"1") for k, v in names.items() for e in ("png", "cls")
            ]
        return build(folder, more)

    first = open_dataset(write(tmp_path / "a"), tmp_path).fingerprint
    assert open_dataset(write(tmp_path / "b"), tmp_path).fingerprint == first
    for odd in (1, 350, 698):
        assert open_dataset(write(tmp_path / f"c{odd}", odd), tmp_path).fingerprint != first


def test_records_are_read_once_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "SETTLED", 0.0)
    (tmp_path / "set").mkdir()
    spec = in_folders(tmp_path / "set", lambda dog: (dog / "b.png").write_bytes(picture()))
    first = open_dataset(spec, tmp_path).fingerprint
    read = []
    chunk = fingerprint._chunk
    monkeypatch.setattr(fingerprint, "_chunk", lambda *each: read.append(each) or chunk(*each))
    assert open_dataset(spec, tmp_path).fingerprint == first
    assert not read
    path = tmp_path / "set" / "train" / "dog" / "b.png"
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    assert open_dataset(spec, tmp_path).fingerprint != first
    assert read
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[::-1])
    assert open_dataset(spec, tmp_path).fingerprint == first  # too fresh to be remembered: read again


def test_the_fingerprint_of_parquet_is_that_of_its_rows(tmp_path, capsys):
    fingerprints = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        fingerprints.add(open_dataset(in_parquet(tmp_path / name), tmp_path).fingerprint)
    assert len(fingerprints) == 1
    assert capsys.readouterr().err == ""  # little is read at once
