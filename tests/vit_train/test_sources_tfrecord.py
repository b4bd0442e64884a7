"""TFRecord files without TensorFlow: the checksum by its standard, and sets of tensorflow-datasets."""

import json
import os
import pickle
import sys

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.support.tiny_tfds import write_tiny_set
from vit_config import DataError
from vit_train.batches.data import open_dataset
from vit_train.sources.tfrecord import TFRecords


def checksum(data):
    """RFC 3720's division, bit by bit, and the mask of TFRecord files."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 * (register & 1))
    crc = register ^ 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32).to_bytes(4, "little")


def test_files_of_another_writer_are_read(tmp_path):
    """TensorBoard writes its events as TFRecords."""
    writer = EventFileWriter(str(tmp_path))
    for step in range(3):
        writer.add_event(Event(step=step, wall_time=1.0, source_metadata={"writer": "x" * 300}))
    writer.close()
    records = TFRecords([*tmp_path.iterdir()])
    assert [Event.FromString(records[index]).step for index in range(1, 4)] == [0, 1, 2]


def as_tfrecord(folder):
    """Rewrite a set of array_record as TFRECORD, as `tfds convert_format` does."""
    for path in sorted(folder.glob("*.array_record-*")):
        reader = ArrayRecordReader(str(path))
        content = b""
        for record in reader.read_all():
            head = len(record).to_bytes(8, "little")
            content += head + checksum(head) + record + checksum(record)
        reader.close()
        path.unlink()
        (folder / path.name.replace(".array_record-", ".tfrecord-")).write_bytes(content)
    info = folder / "dataset_info.json"
    said = json.loads(info.read_text())
    said["fileFormat"] = "tfrecord"
    for split in said["splits"]:
        split["filepathTemplate"] = split["filepathTemplate"].replace("array_record", "tfrecord")
    info.write_text(json.dumps(said))


@pytest.fixture
def folder(tmp_path):
    folder = write_tiny_set(tmp_path, splits={"train": 7, "test": 3})
    as_tfrecord(folder)
    return folder


def test_the_same_set_in_either_format_is_the_same(folder, tmp_path):
    write_tiny_set(tmp_path / "other", splits={"train": 7, "test": 3})
    ours, theirs = (
        open_dataset("tfds:tiny_rectangles", place) for place in (tmp_path, tmp_path / "other")
    )
    assert ours.fingerprint == theirs.fingerprint
    assert ours.class_names == ("red", "green", "blue")
    again = pickle.loads(pickle.dumps(ours.train))
    for index in range(7):
        for each in (theirs.train, again):
            np.testing.assert_array_equal(ours.train[index]["image"], each[index]["image"])
            assert ours.train[index]["label"] == each[index]["label"]


def test_a_changed_byte_is_named_and_a_cut_file_refused(folder, tmp_path):
    (path,) = folder.glob("*train.tfrecord*")
    whole = path.read_bytes()
    place = TFRecords([path])._offsets[4]
    path.write_bytes(whole[: place + 99] + bytes([whole[place + 99] ^ 1]) + whole[place + 100 :])
    records = open_dataset("tfds:tiny_rectangles", tmp_path).train
    assert records[3]["image"].shape == (21, 15, 3)
    with pytest.raises(DataError, match=rf"record 4 \(.*, byte {place}\): damaged \(the checksum of it"):
        records[4]
    records.on_damage = "replace"
    np.testing.assert_array_equal(records[4]["image"], records[5]["image"])
    path.write_bytes(whole[: place + 5])
    with pytest.raises(DataError, match=r"record 4 ends at byte .*; copy or prepare the set again"):
        open_dataset("tfds:tiny_rectangles", tmp_path)
    path.write_bytes(whole[:place])
    with pytest.raises(DataError, match=r"has 4 records, dataset_info.json says 7"):
        open_dataset("tfds:tiny_rectangles", tmp_path)


def test_what_checks_them_is_named_where_it_is_missing(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)  # importing it fails
    with pytest.raises(
        DataError, match=r"split train: google-crc32c, .*pip install .vit-parity\[train\]"
    ):
        open_dataset("tfds:tiny_rectangles", tmp_path)


def test_where_records_begin_is_found_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = sorted(folder.glob("*.tfrecord-*"))
    first = TFRecords(paths)
    content = [*first]
    [index] = (tmp_path / "cache" / "vit-parity" / "indexes").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("vit_train.sources.tfrecord.record_offsets", None)
        again = TFRecords(paths)
    assert again.counts == first.counts
    assert [*again] == content
    index.write_bytes(index.read_bytes()[:50])  # a damaged index is found anew
    assert [*TFRecords(paths)] == content
    with monkeypatch.context() as patch:  # and so is that of a file which has changed
        patch.setattr("vit_train.sources.tfrecord.record_offsets", lambda path: np.zeros(5, np.int64))
        os.utime(paths[0], ns=(1, 1))
        assert TFRecords(paths).counts == [5] * len(paths)
    monkeypatch.setenv("XDG_CACHE_HOME", str(index))  # a file: there is no place to keep it
    assert [*TFRecords(paths)] == content
    with pytest.raises(OSError, match="was changed after the fingerprint"):
        first[0]
