"""Finding the tensors of a segment by their shapes, and by their names where shapes leave a choice."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from parity.verifier.diagnose.segment import Segment


def sources(segment: Segment) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors a result may have been computed from, the latest first, each value once."""
    seen: list[np.ndarray] = []
    for array in reversed(list(segment.before.values())):
        if not any(array.shape == other.shape and np.array_equal(array, other) for other in seen):
            seen.append(array)
            yield first_name(segment, array), array


def first_name(segment: Segment, array: np.ndarray) -> str:
    """Where a tensor was seen first: dropouts that do nothing pass on what others made."""
    return next(
        name
        for name, other in segment.before.items()
        if other.shape == array.shape and np.array_equal(other, array)
    )


def vector(segment: Segment, size: int, pattern: str) -> np.ndarray | None:
    """The parameter of `size` numbers whose name matches."""
    for name, array in segment.parameters.items():
        if array.size == size and re.search(pattern, name.lower()):
            return array.reshape(-1)
    return None


GAIN = r"^(weight|scale|gain|gamma|g|w|kernel)$"
BIAS = r"bias|beta|^b$"


def is_named(segment: Segment, pattern: str) -> bool:
    """Whether the module's class, path, target or facts contain a word."""
    texts = (segment.module.name, segment.module.path.rpartition(".")[2], segment.target)
    return any(re.search(pattern, text.lower()) for text in texts)
