"""Values that are not finite: counted, and refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from parity.porting.formats.base import Stored
from vit_config import WeightsError
from vit_config.files.stored import Extent

MANY = 6
"""Most tensors that an error message names."""


def not_finite(name: str, values: np.ndarray) -> str:
    """Say how many values of a tensor are NaN or infinite; an empty string if none is. Bounds of a layer
    may be infinite."""
    finite = ~np.isnan(values) if name.endswith(".bounds") else np.isfinite(values)
    if finite.all():
        return ""
    bad = values.size - int(np.count_nonzero(finite))
    return f"{bad:,} of {values.size:,} values are not finite"


def refuse_not_finite(arrays: Mapping[str, Stored], where: Path) -> dict[str, Stored]:
    """Return the same tensors, but reading one with NaN or infinite values raises a WeightsError.

    The error names every such tensor, found by reading all of them.
    """

    def checked(name: str, load: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            values = load()
            if not_finite(name, values):
                raise WeightsError(f"{where}: {_refusal(arrays)}")
            return values

        if isinstance(load, Extent):
            fine = lambda piece: load.passes(piece) and not not_finite(name, piece)  # noqa: E731
            return replace(load, load=read, passes=fine)
        return read

    return {name: replace(stored, load=checked(name, stored.load)) for name, stored in arrays.items()}


def _refusal(arrays: Mapping[str, Stored]) -> str:
    problems = [
        f"{name}: {text}" for name, each in arrays.items() if (text := not_finite(name, each.load()))
    ]
    more = f"; and {len(problems) - MANY} more tensors" if len(problems) > MANY else ""
    return (
        f"{'; '.join(problems[:MANY])}{more}; use a checkpoint from before the run diverged, or give"
        " --allow-nonfinite"
    )
