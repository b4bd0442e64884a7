"""TFRecord files read at random, without TensorFlow.

A record is its length (8 bytes, little-endian), the length's checksum (4), the bytes, and their
checksum (4): https://www.tensorflow.org/tutorials/load_data/tfrecord. There is no table of contents:
the begin of each record is found once, by going from length to length, and kept (`index_cache`).
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vit_config.images.pixels import LONGEST_FILE
from vit_train.sources.index_cache import Index, recall_index
from vit_train.sources.place import open_ordinary, stamp_of

HEAD, TAIL = 12, 4
"""Bytes before and behind the content of a record."""


class TFRecords(Sequence[bytes]):
    """The records of some files, in order.

    Raises:
        OSError: a file does not end where a record ends.
        ModuleNotFoundError: google-crc32c, which computes their checksums, is not installed.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        _checksum(b"")
        self.paths, self._stamps = list(paths), [stamp_of(path) for path in paths]
        index = recall_index("tfrecord 1", self.paths, lambda: _index(self.paths))
        self.counts: list[int] = index["counts"].tolist()
        """Number of records in each file."""
        self._ends = np.cumsum(self.counts)
        self._offsets = index["offsets"]

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read the content of a record.

        Raises:
            OSError: the record's bytes are not those that were written.
        """
        number = int(np.searchsorted(self._ends, index, side="right"))
        with open_ordinary(self.paths[number], self._stamps[number]) as file:
            file.seek(int(self._offsets[index]))
            head = file.read(HEAD)
            length = int.from_bytes(head[:8], "little")
            if len(head) < HEAD or _checksum(head[:8]) != int.from_bytes(head[8:], "little"):
                raise OSError("the checksum of its length is another")
            if length > LONGEST_FILE:
                raise OSError(f"it has {length} bytes; {LONGEST_FILE} are enough")
            content, tail = file.read(length), file.read(TAIL)
        if _checksum(content) != int.from_bytes(tail, "little"):
            raise OSError("the checksum of its bytes is another")
        return content

    def name(self, index: int) -> str:
        """Return a record's name in messages: its number, file and place."""
        return f"record {index} ({self._path(index).name}, byte {self._offsets[index]})"

    def _path(self, index: int) -> Path:
        return self.paths[int(np.searchsorted(self._ends, index, side="right"))]


def _checksum(data: bytes) -> int:
    """Compute the CRC-32C of some bytes with TFRECORD's mask, which keeps the checksum of data that
    contain checksums from being weak.
    """
    import google_crc32c  # of the extra [train]

    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _index(paths: Sequence[Path]) -> Index:
    parts = [record_offsets(path) for path in paths]
    offsets = np.concatenate([np.zeros(0, np.int64), *parts])
    return {"counts": np.array([len(each) for each in parts], np.int64), "offsets": offsets}


def record_offsets(path: Path) -> np.ndarray:
    """Find where each record of a file begins, (N,) int64.

    Raises:
        OSError: the file does not end where a record ends.
    """
    size, offsets, place = path.stat().st_size, [], 0
    if size == 0:
        return np.zeros(0, np.int64)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if hasattr(content, "madvise"):
            content.madvise(mmap.MADV_RANDOM)  # do not read ahead the bytes between two lengths
        while place < size:
            offsets.append(place)
            place += HEAD + int.from_bytes(content[place : place + 8], "little") + TAIL
    if place != size:
        raise OSError(f"{path}: record {len(offsets) - 1} ends at byte {place}, the file at {size}")
    return np.array(offsets, np.int64)
