"""What is done with the arrays of a watched Flax model that is recorded."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from parity.measure.site import Stage, Where
from parity.measure.traces.arrivals import Arrivals, Source
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.watch_jax import report, report_together, watch_gradient

SMALL = 4096
"""Numbers of a value that may wait for others."""

TOGETHER = 64
"""Values that are handed over at once; as long they are kept by the program."""


class RecordingTap:
    """Records every array at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._arrivals = Arrivals()
        self._runs = 0
        self._error: Exception | None = None
        self._last: tuple[jax.Array, Source] | None = None
        self._state: Any = None
        """Of JAX, in which the model that runs is traced; inside of a loop or a branch it is another."""
        self._waiting: list[tuple[Source, Sample]] = []
        """Small values of that state, to be reported together."""

    def begin(self, path: str, module: Any) -> int:
        """A call of a module begins."""
        if not path:
            self.begin_run()
        return self._recorder.begin(path, module)

    def begin_run(self) -> None:
        """What is traced from now on is executed together."""
        self._runs += 1
        self._last = None
        state = get_opaque_trace_state(convention="flax")
        if self._state == state:  # within another run: what waits has no other end
            self._hand_over()
        self._state, self._waiting = state, []

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Have it reported when it is computed; pass on what differentiation takes for it."""
        order = self._recorder.next_order()
        if self._last is not None and self._last[0] is value:
            source = self._last[1]  # one module's output is the next one's input: sent once
            source.spots.append((where, order))
        else:
            source = self.source("forward", where, order, value)
            self.report(source, self._recorder.sample(value), waits=True)
        gradient = self.source("backward", where, order, value)
        passed = watch_gradient(value, lambda g: self.report(gradient, self._recorder.sample(g)))
        self._last = passed, source
        return passed

    def end(self, path: str) -> None:
        """A call of a module is over."""
        if not path:
            self.end_run()

    def end_run(self) -> None:
        """Nothing waits any more."""
        self._hand_over()
        self._state = None

    def _hand_over(self) -> None:
        values = [kept.values for _, kept in self._waiting]
        known = [(source, kept._replace(values=None)) for source, kept in self._waiting]
        self._waiting = []

        def seen(i: int, values: np.ndarray) -> None:
            source, kept = known[i]
            self.arrived(source, kept._replace(values=values))

        report_together(values, seen)

    def report(self, source: Source, kept: Sample, *, waits: bool = False) -> None:
        """Have what is kept of a value handed over when it is computed.

        Args:
            waits: a small value may wait until the run ends, or until there are enough of them.
        """
        small = kept.values.size <= SMALL
        if waits and small and get_opaque_trace_state(convention="flax") == self._state:
            self._waiting.append((source, kept))
            if len(self._waiting) >= TOGETHER:
                self._hand_over()
        else:
            known = kept._replace(values=None)  # what is compiled shall not keep what was traced
            report(kept.values, lambda x: self.arrived(source, known._replace(values=x)))

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
