"""Indexes of records in files without a table of contents, remembered from one start to the next.

Indexes are kept in ``$XDG_CACHE_HOME/vit-parity/indexes`` (``~/.cache`` by default), for sets are
often read-only. An index belongs to a set's files as they are: their paths, sizes and times of
change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from vit_config.errors import ConfigError
from vit_config.files.atomic import atomic_file
from vit_train.sources.place import Place, version_of

Index = Mapping[str, np.ndarray]
"""Arrays by name; numbers only."""


def recall_index(
    kind: str,
    files: Sequence[Place],
    find: Callable[[], Index],
    lasts: Callable[[Index], bool] = lambda _: True,
) -> Index:
    """Return the index of some files: the remembered one, or one found now and kept.

    Args:
        kind: name of the index's subject and form; each kind is an index of its own.
        find: function that goes through the files; its errors are raised.
        lasts: function that returns whether to keep a found index.
    """
    path = _folder() / f"{_known_by(kind, files)}.npz"
    with contextlib.suppress(OSError, ValueError, EOFError, BadZipFile), path.open("rb") as file:
        return dict(np.load(file))
    index = find()
    if not lasts(index):
        return index
    with contextlib.suppress(OSError, ConfigError):  # without a place to keep it, it is found again
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, force=True) as file:
            np.savez(file, allow_pickle=False, **index)
    return index


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "vit-parity" / "indexes"


def _known_by(kind: str, files: Sequence[Place]) -> str:
    digest = hashlib.sha256(kind.encode())
    for file in files:
        digest.update(b"\0" + os.fsencode(version_of(file)))
    return digest.hexdigest()
