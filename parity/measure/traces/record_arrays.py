"""Recording named arrays, whatever made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.pool import Pooled
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from vit_config import InputError


class PlainArrays:
    """No framework: values are arrays or dictionaries of them, in whatever layout the user gives."""

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
        """Yield the arrays in nested dictionaries, with names joined by dots."""
        if isinstance(value, Mapping):
            for name, part in value.items():
                for below, port, array in self.named(stage, part):
                    yield ".".join(each for each in (str(name), below) if each), port, array
            return
        if isinstance(value, Sample | Pooled):
            yield "", "", value
            return
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind in "US":
            kind = type(value).__name__
            raise InputError(f"{stage}: expected arrays or dictionaries of them, found {kind}")
        yield "", "", array

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
