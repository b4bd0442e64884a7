"""The interface through which a recording sees a framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.pool import Pooled
from parity.measure.traces.sample import Sample

if TYPE_CHECKING:
    from parity.measure.traces.recorder import Recorder


class Framework(Protocol):
    """The interface of the framework whose program is recorded."""

    name: Literal["torch", "jax", ""]

    def versions(self) -> dict[str, str]:
        """Return the versions of the framework, and the device it computes on."""
        ...

    def precision(self) -> dict[str, str]:
        """Return the flags that could make products less precise than their types."""
        ...

    def watch(self, recorder: Recorder) -> AbstractContextManager[Any]:
        """Report to `recorder` whatever can be seen without the user's help."""
        ...

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Pooled]]:
        """Yield the arrays in a value as (path, port, array), by common names in the common layout."""
        ...

    def begin_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist before a step."""
        ...

    def end_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist after a step."""
        ...

    def abandon_step(self, recorder: Recorder) -> None:
        """Report the tensors that exist when a step ends in an exception; raise nothing."""
        ...

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield every module of the model with its path, as far as it is known without a call."""
        ...

    def facts(self, module: Any) -> dict[str, Any]:
        """Return the attributes of a module."""
        ...
