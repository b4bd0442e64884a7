"""Recording named arrays, whatever made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.pool import Part
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from vit_config import InputError


class Arrays:
    """No framework: values are arrays, or dictionaries of them, in whatever layout the user gives."""

    name: Literal["torch", "jax", ""] = ""

    def versions(self) -> dict[str, str]:
        """Of numpy."""
        return {"numpy": np.__version__}

    def precision(self) -> dict[str, str]:
        """Nothing is known."""
        return {}

    def watch(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Nothing is seen by itself."""
        return nullcontext()

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Part]]:
        """The arrays in nested dictionaries, names joined by dots."""
        if isinstance(value, Mapping):
            for name, part in value.items():
                for below, port, array in self.named(stage, part):
                    yield ".".join(each for each in (str(name), below) if each), port, array
            return
        if isinstance(value, Sample | Part):
            yield "", "", value
            return
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind in "US":
            kind = type(value).__name__
            raise InputError(f"{stage}: expected arrays or dictionaries of them, found {kind}")
        yield "", "", array

    def begin_step(self, recorder: Recorder) -> None:
        """Nothing is known."""

    def end_step(self, recorder: Recorder) -> None:
        """Nothing is known."""

    def abandon_step(self, recorder: Recorder) -> None:
        """Nothing is known."""

    def modules(self) -> Iterator[tuple[str, Any]]:
        """There are none."""
        return iter(())

    def facts(self, module: Any) -> dict[str, Any]:
        """There are no modules."""
        return {}
