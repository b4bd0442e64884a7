"""Digests of named arrays; equal digests mean arrays that are equal bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from vit_config.files.seal import array_bytes


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 (hex) of the names, types, shapes and values, in the order of names."""
    return digest_each(arrays, arrays.__getitem__)


def digest_each(names: Iterable[str], load: Callable[[str], np.ndarray]) -> str:
    """Return the `digest` of arrays loaded one by one, for models too large to be held twice."""
    sha = hashlib.sha256()
    for name in sorted(names):
        value = load(name)
        sha.update(f"{name} {value.dtype} {value.shape}\n".encode())
        sha.update(array_bytes(value))
    return sha.hexdigest()
