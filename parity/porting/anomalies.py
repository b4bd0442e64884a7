"""What is odd about weights: found by looking at every value once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.porting.formats.base import Stored


def anomalies(arrays: Mapping[str, Stored]) -> Iterator[str]:
    """Yield a sentence for each oddity of a model's tensors, by the twins' names.

    Values that are not finite; a head, or any matrix, that is all zero; a matrix whose rows are all the
    same. Reads one tensor at a time.

    Raises:
        WeightsError: a tensor that cannot be read.
    """
    for name, stored in arrays.items():
        values = stored.load()
        if bad := int(np.count_nonzero(~np.isfinite(values))):
            yield f"{name}: {bad:,} of {values.size:,} values are not finite"
        elif name.startswith("head") and name.endswith("weight") and not values.any():
            yield f"{name}: all zero, the model says the same of every image; train the head first"
        elif values.ndim > 1 and values.size > 1 and not values.any():
            yield f"{name}: all zero"
        elif values.ndim > 1 and len(values) > 1 and bool(np.all(values == values[:1])):
            yield f"{name}: every row is the same"
