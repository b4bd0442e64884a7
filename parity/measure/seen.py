"""What a comparison could have seen: numbers that depend on nothing agree whatever a model computes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

MATTERS = re.compile(r"(^|\.)(weight|kernel|gamma)$")
"""Names of parameters that multiply: where one is zero, what it multiplies reaches nothing."""


def unseen(outputs: Iterable[np.ndarray]) -> str:
    """Return why what was compared, outputs of several images (B, ...), could not have differed; empty
    if it could."""
    arrays = [np.asarray(each) for each in outputs]
    if not any(each.size for each in arrays):
        return "there are no numbers in it"
    if not any(each.any() for each in arrays):
        return "it is zero throughout, where no difference shows"
    if all(len(each) > 1 and not (each != each[:1]).any() for each in arrays):
        return "it is the same for all images, so that nothing of the layers before was compared"
    return ""


def is_zero(name: str, load: Callable[[], np.ndarray]) -> bool:
    """Return whether a parameter multiplies what other layers make, and is zero throughout."""
    return MATTERS.search(name) is not None and not load().any()
