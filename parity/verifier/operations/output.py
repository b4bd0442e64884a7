"""The one tensor of a model's output that the gradient is taken of."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.measure.traces.structure import visit_arrays
from vit_config import InputError

PREFERRED = ("out", "out.logits", "out.last_hidden_state", "out.pooler_output")


def main_output(output: Any, is_array: Callable[[Any], bool]) -> tuple[str, Any]:
    """The port and the tensor: the logits where there are any, else the first.

    Raises:
        InputError: the model returns no tensor.
    """
    found: dict[str, Any] = {}

    def keep(port: str, value: Any) -> Any:
        if value.ndim:
            found[port] = value
        return value

    visit_arrays(output, "out", is_array, keep)
    if not found:
        raise InputError(f"the model returns {type(output).__name__}, which contains no tensor")
    port = next((port for port in PREFERRED if port in found), next(iter(found)))
    return port, found[port]


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """A random weight for each number of the output; the loss is their sum. The same for the same
    shape."""
    stream = np.random.default_rng(zlib.crc32(repr(tuple(shape)).encode()))
    return stream.standard_normal(shape)
