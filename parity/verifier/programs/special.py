"""Special functions of float64, by whichever library is there."""

from __future__ import annotations

import sys

import numpy as np


def special(name: str, x: np.ndarray) -> np.ndarray:
    """Return a function of `scipy.special` of an array; the error functions by PyTorch where that is
    loaded, because importing scipy's takes a second."""
    if name in ("erf", "erfc") and "torch" in sys.modules:
        torch = sys.modules["torch"]
        given = torch.from_numpy(np.array(x))  # a copy: torch warns of what cannot be written to
        return getattr(torch.special, name)(given).numpy()
    from scipy import special as functions

    return getattr(functions, name)(x)
