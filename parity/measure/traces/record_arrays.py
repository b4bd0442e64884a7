"""Recording named arrays, whatever made them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.common_jax import common_parameter
from parity.measure.traces.pool import Pooled
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.trees import named_leaves
from vit_config import InputError


class PlainArrays:
    """No framework: values are arrays or trees of them, of any framework."""

    name: Literal["torch", "jax", ""] = ""

    def versions(self) -> dict[str, str]:
        """Return numpy's version."""
        return {"numpy": np.__version__}

    def precision(self) -> dict[str, str]:
        """Report nothing."""
        return {}

    def watch(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Watch nothing: there is no model."""
        return nullcontext()

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Pooled]]:
        """Yield the arrays of a tree, with names joined by dots; of any state of optax, the moments.

        A tree with kernels is Flax's: its names and layouts are translated.
        """
        leaves = [(path, port, _array(stage, leaf)) for path, port, leaf in named_leaves(stage, value)]
        of_flax = any(path[-1:] == ("kernel",) for path, _, _ in leaves)
        for path, port, array in leaves:
            name = ".".join(path)
            name, array = common_parameter(name, array) if of_flax else (name, array)
            yield name, port, array

    def begin_step(self, recorder: Recorder) -> None:
        """Report nothing."""

    def end_step(self, recorder: Recorder) -> None:
        """Report nothing."""

    def abandon_step(self, recorder: Recorder) -> None:
        """Report nothing."""

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Return no modules."""
        return iter(())

    def facts(self, module: Any) -> dict[str, Any]:
        """Return no attributes."""
        return {}


def _array(stage: Stage, leaf: Any) -> np.ndarray | Sample | Pooled:
    """Return a leaf of a tree as an array.

    Raises:
        InputError: it is none.
    """
    if isinstance(leaf, (Sample, Pooled)):
        return leaf
    if (torch := sys.modules.get("torch")) is not None and isinstance(leaf, torch.Tensor):
        from parity.measure.traces.pool_torch import as_numpy

        return as_numpy(leaf)
    array = np.asarray(leaf)
    if array.dtype == object or array.dtype.kind in "US":
        raise InputError(f"{stage}: expected arrays or trees of them, found {type(leaf).__name__}")
    return array
