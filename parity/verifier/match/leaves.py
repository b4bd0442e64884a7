"""The leaves of one side, read one by one from a file, with their fingerprints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from parity.measure.traces.reader import is_trace
from parity.porting.formats import open_container
from parity.porting.formats.base import Stored
from parity.verifier.match.fingerprint import Fingerprint, common_type, fingerprint
from vit_config import ConfigError, WeightsError

Shape = tuple[int, ...]


class Leaves:
    """Named arrays, read when they are needed.

    Args:
        tensors: tensors of any shape and type, by name.
    """

    def __init__(self, tensors: Mapping[str, Stored | np.ndarray]) -> None:
        self.stored = {
            name: each if isinstance(each, Stored) else Stored.of(each) for name, each in tensors.items()
        }
        self.shapes: dict[str, Shape] = {n: each.shape or (1,) for n, each in self.stored.items()}
        """Shapes by name; a scalar has shape (1,)."""
        self.types = {name: each.dtype for name, each in self.stored.items()}
        self.prints: dict[str, dict[np.dtype, Fingerprint]] = {}
        # a leaf that is joined or stacked is read several times in a row
        self.load = lru_cache(maxsize=4)(self._load)

    def _load(self, name: str) -> np.ndarray:
        return self.stored[name].load().reshape(self.shapes[name])

    def read(self, others: Iterable[np.dtype], begun: Callable[[str], object]) -> None:
        """Take the fingerprints of all leaves, in each type in which the other side may hold the same.

        Args:
            others: the types of the other side's leaves.
            begun: called with the name of each leaf before it is read.

        Raises:
            WeightsError: a leaf's bytes are damaged.
        """
        others = set(others)
        for name, dtype in self.types.items():
            kinds = {common_type(dtype, other) for other in others} - {None}
            if kinds:
                begun(name)
                array = self._load(name)
                self.prints[name] = {
                    kind: fingerprint(array, kind) for kind in kinds if kind is not None
                }

    def size(self, name: str) -> int:
        """Return the number of values of a leaf."""
        return math.prod(self.shapes[name])

    def constant(self, name: str) -> bool:
        """Return whether a leaf's values are all the same, or it has none."""
        return any(each.constant for each in self.prints.get(name, {}).values())


def modules_above(name: str) -> list[str]:
    """Return the modules that contain a leaf, the outermost first: ``a`` and ``a.b`` for ``a.b.c``."""
    return [name[: mark.start()] for mark in re.finditer(r"[./]", name)]


def read_leaves(path: str | Path) -> dict[str, Stored]:
    """Read the arrays of a checkpoint of any kind, by name.

    Raises:
        ConfigError: `path` is a recording.
        MissingFileError: there is nothing at `path`.
        WeightsError: the file is damaged or has no arrays.
    """
    if is_trace(path):
        raise ConfigError(
            f"{path}: a recording, not a checkpoint; parity diff compares two recordings, and finds"
            " parameters of other names by their numbers"
        )
    tensors = open_container(path).tensors
    if not tensors:
        raise WeightsError(f"{path}: holds no arrays to match")
    return dict(tensors)
