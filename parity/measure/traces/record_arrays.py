"""Recording named arrays, whatever made them; and what a recording asks of a framework."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.sample import Sample
from parity.measure.traces.trees import common_parameter, named_leaves
from vit_config import InputError

if TYPE_CHECKING:
    from parity.measure.traces.recorder import Recorder


class PlainArrays:
    """No framework: values are arrays or trees of them, of any framework."""

    name: Literal["torch", "jax", ""] = ""

    def versions(self) -> dict[str, str]:
        """Return the versions of the framework, and the device it computes on."""
        return {"numpy": np.__version__}

    def precision(self) -> dict[str, str]:
        """Return the flags that could make products less precise than their types."""
        return {}

    def watch(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Report to `recorder` whatever can be seen without the user's help."""
        return nullcontext()

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample]]:
        """Yield the arrays of a tree as (path, port, array), with names joined by dots; of any state of
        optax, the moments.

        A tree with kernels is Flax's: its names and layouts are translated.
        """
        leaves = [(path, port, _array(stage, leaf)) for path, port, leaf in named_leaves(stage, value)]
        of_flax = any(path[-1:] == ("kernel",) for path, _, _ in leaves)
        for path, port, array in leaves:
            name = ".".join(path)
            name, array = common_parameter(name, array) if of_flax else (name, array)
            yield name, port, array

    def begin_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist before a step."""

    def end_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist after a step."""

    def abandon_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist when a step ends in an exception; raise nothing."""

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield every module of the model with its path, as far as it is known without a call."""
        return iter(())

    def facts(self, module: Any) -> dict[str, Any]:
        """Return the attributes of a module."""
        return {}


def _array(stage: Stage, leaf: Any) -> np.ndarray:
    """Return a leaf of a tree as an array.

    Raises:
        InputError: it is none.
    """
    if (torch := sys.modules.get("torch")) is not None and isinstance(leaf, torch.Tensor):
        from parity.measure.traces.record_torch import as_numpy

        return as_numpy(leaf)
    array = np.asarray(leaf)
    if array.dtype == object or array.dtype.kind in "US":
        raise InputError(f"{stage}: expected arrays or trees of them, found {type(leaf).__name__}")
    return array
