"""What is done with the arrays of a watched Flax model that is recorded."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from parity.measure.site import Stage, Where
from parity.measure.traces.arrivals import Arrivals, Source
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.watch_jax import report, watch_gradient


class RecordingTap:
    """Records every array at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._arrivals = Arrivals()
        self._runs = 0
        self._error: Exception | None = None
        self._last: tuple[jax.Array, Source] | None = None

    def begin(self, path: str, module: Any) -> int:
        """A call of a module begins."""
        if not path:
            self.begin_run()
        return self._recorder.begin(path, module)

    def begin_run(self) -> None:
        """What is traced from now on is executed together."""
        self._runs += 1
        self._last = None

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Have it reported when it is computed; pass on what differentiation takes for it."""
        order = self._recorder.next_order()
        if self._last is not None and self._last[0] is value:
            source = self._last[1]  # one module's output is the next one's input: sent once
            source.spots.append((where, order))
        else:
            source = self.source("forward", where, order, value)
            self._report(source, value)
        gradient = self.source("backward", where, order, value)
        passed = watch_gradient(value, lambda arrived: self._report(gradient, arrived))
        self._last = passed, source
        return passed

    def _report(self, source: Source, value: jax.Array) -> None:
        """Have what is to be kept of a value handed over when it is computed."""
        kept = self._recorder.sample(value)
        report(kept.values, lambda x: self.arrived(source, kept._replace(values=x)))

    def source(self, stage: Stage, where: Where, order: int, value: jax.Array) -> Source:
        """A value that is about to be reported."""
        return Source(stage, self._runs, [(where, order)], _is_replayed(value))

    def arrived(self, source: Source, value: np.ndarray | Sample) -> None:
        """A value was computed. What goes wrong is raised where the step ends, not in compiled code."""
        if not self._recorder.running or self._error is not None:
            return
        try:
            kept = self._recorder.store(value)
            self._arrivals.add(source, kept)
        except Exception as error:
            self._error = error

    def settle(self) -> None:
        """Record what arrived in this step.

        Raises:
            ConfigError: a type that a trace cannot hold.
        """
        by_hand = {"gradients"} if self._recorder.logged("gradients") else set()
        for stage, where, kept in self._arrivals.settle():
            if stage not in by_hand:
                self._recorder.seen(stage, where, kept)
        error, self._error = self._error, None
        if error is not None:
            raise error


def _is_replayed(value: jax.Array) -> bool:
    """Whether it is traced by `jax.checkpoint`, and so computed again in the backward pass.

    JAX has no public word on this; were its private one to change, a replay would be a further call.
    """
    trace: Any = getattr(value, "_trace", None)
    while trace is not None:
        about = getattr(getattr(trace, "frame", None), "debug_info", None)
        if "checkpoint" in str(getattr(about, "traced_for", "")):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False
