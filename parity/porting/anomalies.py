"""Search for oddities in weights: reads every value once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from parity.porting.formats.base import Stored
from vit_config import WeightsError
from vit_config.files.stored import Extent

MANY = 6
"""Most tensors that an error message names."""


def anomalies(arrays: Mapping[str, Stored]) -> Iterator[str]:
    """Yield a sentence for each oddity of a model's tensors, by the twins' names.

    Values that are not finite; a head, or any matrix, that is all zero; a matrix whose rows are all the
    same. Reads one tensor at a time.

    Raises:
        WeightsError: a tensor that cannot be read.
    """
    for name, stored in arrays.items():
        values = stored.load()
        if said := not_finite(values):
            yield f"{name}: {said}"
        elif name.startswith("head") and name.endswith("weight") and not values.any():
            yield f"{name}: all zero, so the logits are the same for every image; train the head first"
        elif values.ndim > 1 and values.size > 1 and not values.any():
            yield f"{name}: all zero"
        elif values.ndim > 1 and len(values) > 1 and bool(np.all(values == values[:1])):
            yield f"{name}: every row is the same"


def not_finite(values: np.ndarray) -> str:
    """Say how many values are NaN or infinite; an empty string if none is."""
    finite = np.isfinite(values)
    if finite.all():
        return ""
    bad = values.size - int(np.count_nonzero(finite))
    return f"{bad:,} of {values.size:,} values are not finite"


def refuse_not_finite(arrays: Mapping[str, Stored], where: Path) -> dict[str, Stored]:
    """Return the same tensors, but reading one with NaN or infinite values raises a WeightsError.

    The error names every such tensor, found by reading all of them.
    """

    def checked(load: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            values = load()
            if not_finite(values):
                raise WeightsError(f"{where}: {_refusal(arrays)}")
            return values

        if isinstance(load, Extent):
            return replace(
                load, load=read, passes=lambda piece: load.passes(piece) and not not_finite(piece)
            )
        return read

    return {name: replace(stored, load=checked(stored.load)) for name, stored in arrays.items()}


def _refusal(arrays: Mapping[str, Stored]) -> str:
    found = [f"{name}: {said}" for name, each in arrays.items() if (said := not_finite(each.load()))]
    more = f"; and {len(found) - MANY} more tensors" if len(found) > MANY else ""
    return (
        f"{'; '.join(found[:MANY])}{more}; use a checkpoint from before the run diverged, or give"
        " --allow-nonfinite"
    )
