"""Digests of named arrays, by which numbers that must be the same bit for bit are told from others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from vit_config.files.seal import array_bytes


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 (hex) of names, types, shapes and values, in the order of names."""
    return digest_each(arrays, arrays.__getitem__)


def digest_each(names: Iterable[str], load: Callable[[str], np.ndarray]) -> str:
    """The same of arrays that are fetched one by one, as of a model too large to be held twice."""
    found = hashlib.sha256()
    for name in sorted(names):
        value = load(name)
        found.update(f"{name} {value.dtype} {value.shape}\n".encode())
        found.update(array_bytes(value))
    return found.hexdigest()
