"""The fingerprint of a set: a digest of every record, which is computed once and remembered."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from vit_config.images.orientation import is_turned
from vit_config.terminal import complain
from vit_train.data.records import DamagedRecordError, ImageShape, Records
from vit_train.sources.index_cache import Index, recall_index
from vit_train.sources.place import Place, changed_at, on_disk

THREADS = 32
"""Threads; more than there are cores, since they wait for disks and networks."""
CHUNK = 64
"""Records per task of a thread."""
LARGE = 2**31
"""Bytes from which on a set is announced before it is read."""
SETTLED = 2.0
"""Seconds after which a new change of a file gets another time, on any file system."""


class Fingerprint(NamedTuple):
    """What all records of a set were read for, once."""

    fingerprint: str
    """SHA-256 (hex), see `ImageDataset`."""
    turned: int
    """Photos whose camera noted that they are turned."""


def fingerprint(
    full_name: str,
    class_names: tuple[str, ...] | None,
    shape: ImageShape,
    *splits: Records,
    files: Sequence[Place],
) -> Fingerprint:
    """Compute what identifies an `ImageDataset`.

    Args:
        files: files of the set: while their paths, sizes and times stay the same, the digest of
            their records is remembered.

    Raises:
        DataError: a label is not a whole number.
    """
    about = json.dumps([full_name, class_names, shape, [len(records) for records in splits]])
    values = recall_index(
        f"records 2 {about}",
        files,
        lambda: _digest_of(splits, files),
        lasts=lambda index: not index["unreadable"] and _settled(files),
    )
    digest = hashlib.sha256(about.encode() + values["digest"].tobytes()).hexdigest()
    return Fingerprint(digest, int(values["turned"]))


def _digest_of(splits: Sequence[Records], files: Sequence[Place]) -> Index:
    """Compute SHA-256 of all records, and count turned photos, and records that could not be read: these
    are handled when their turn comes."""
    size = sum(map(on_disk, files))
    if size > LARGE:
        name = splits[0].where.partition(", split")[0]
        complain(f"{name}: {size / 1e9:.1f} GB are read once, so that a changed record is noticed")
    digest, unreadable, turned = hashlib.sha256(), 0, 0
    with ThreadPoolExecutor(THREADS) as pool:
        for records in splits:
            starts = range(0, len(records), CHUNK)
            for part, missed, noted in pool.map(lambda start, of=records: _chunk(of, start), starts):
                digest.update(part)
                unreadable += missed
                turned += noted
    return {
        "digest": np.frombuffer(digest.digest(), np.uint8),
        "unreadable": np.array(unreadable),
        "turned": np.array(turned),
    }


def _chunk(records: Records, start: int) -> tuple[bytes, int, int]:
    digest, unreadable, turned = hashlib.sha256(), 0, 0
    for index in range(start, min(start + CHUNK, len(records))):
        try:
            raw = records.read_raw(index)
        except DamagedRecordError:
            digest.update(b"%d unreadable " % index)
            unreadable += 1
            continue
        image = raw["image"] if isinstance(raw["image"], bytes) else raw["image"].tobytes()
        turned += isinstance(raw["image"], bytes) and is_turned(image)
        label = str(raw["label"]).encode()
        digest.update(b"%d %s %d " % (index, label, len(image)) + image)
    return digest.digest(), unreadable, turned


def _settled(files: Sequence[Place]) -> bool:
    """Return whether any later change of the files gets another time."""
    return max(map(changed_at, files), default=0.0) < time.time() - SETTLED
