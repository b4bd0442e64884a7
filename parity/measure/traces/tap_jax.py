"""The tap that records the arrays of a watched Flax model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from parity.measure.site import Stage, Where
from parity.measure.traces.arrivals import Arrivals, Traced
from parity.measure.traces.gradients_jax import is_differentiated, link_gradients, watch_gradient
from parity.measure.traces.pool import SMALL, FixedPool, Pooled
from parity.measure.traces.recorder import Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.watch_jax import report, side_by_side
from parity.measure.versions.of_flax import LOOP_ON_TRIAL
from parity.measure.versions.of_jax import REPLAY, purposes

TOGETHER = 64
"""Number of values handed over in one callback; the program keeps them until then."""


class _Waiting:
    """Small values that leave the program together: a callback takes a tenth of a millisecond, whatever
    it hands over."""

    def __init__(self, arrived: Callable[[Traced, Pooled], None]) -> None:
        self._arrived = arrived
        self._values: list[tuple[Traced, Sample]] = []

    def add(self, source: Traced, sample: Sample) -> None:
        """Queue a value, to be handed over with others."""
        self._values.append((source, sample))
        if len(self._values) >= TOGETHER:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand over all queued values, in one callback for each type."""
        values, self._values = self._values, []
        for places, begins, numbers in side_by_side([sample.values for _, sample in values]):
            # a compiled program must not keep traced values
            known = [
                (source, sample.shape, sample.spacing) for source, sample in (values[i] for i in places)
            ]
            report(numbers, partial(self._seen, known, begins))

    def _seen(
        self,
        known: list[tuple[Traced, tuple[int, ...], tuple[int, ...] | None]],
        begins: list[int],
        numbers: np.ndarray,
    ) -> None:
        flat = FixedPool(numbers.copy())
        for (source, shape, spacing), begin in zip(known, begins, strict=True):
            self._arrived(source, Pooled(flat, begin, shape, spacing))


class JaxTap:
    """Tap that records every array at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._arrivals = Arrivals()
        self._runs = 0
        self._error: Exception | None = None
        self._last: tuple[jax.Array, Traced] | None = None
        self._state: Any = None
        """State of JAX in which the running model is traced; inside a loop or a branch it is another."""
        self._values = self._gradients = _Waiting(self.arrived)
        """Small values of that state, and of its backward pass."""
        self._link: jax.Array | None = None

    def begin(self, path: str, module: Any) -> int:
        """Begin a call of a module; return its number."""
        if not path:
            self.begin_run()
        return self._recorder.begin(path, module)

    def begin_run(self) -> None:
        """Begin a run: arrays traced from now on are executed together."""
        self._runs += 1
        self._last = self._link = None
        state = get_opaque_trace_state(convention="flax")
        if self._state == state:  # within another run, whose values have no other end
            self._values.hand_over()
        self._state = state
        self._values, self._gradients = _Waiting(self.arrived), _Waiting(self.arrived)

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Report an array when it is computed; return its stand-in for differentiation."""
        if LOOP_ON_TRIAL in purposes(value):
            return value
        order = self._recorder.next_order()
        sample = self._recorder.sample(value)
        if self._last is not None and self._last[0] is value:
            source = self._last[1]  # one module's output is the next one's input: sent once
            source.spots.append((where, order))
        else:
            source = self.source("forward", where, order, value)
            self.report(source, sample, waits=True)
        gradient = self.source("backward", where, order, value)
        if self._waits(sample) and is_differentiated(value):
            waiting = self._gradients
            seen = lambda g: waiting.add(gradient, self._recorder.sample(g))  # noqa: E731
            link = jnp.zeros(()) if self._link is None else self._link
            passed, self._link = link_gradients(value, link, seen, waiting.hand_over)
        else:
            passed = watch_gradient(value, lambda g: self.report(gradient, self._recorder.sample(g)))
        self._last = passed, source
        return passed

    def end(self, path: str) -> None:
        """End a call of a module."""
        if not path:
            self.end_run()

    def end_run(self) -> None:
        """End a run: hand over the values that wait."""
        self._values.hand_over()
        self._state = None

    def _waits(self, sample: Sample) -> bool:
        return sample.values.size <= SMALL and get_opaque_trace_state(convention="flax") == self._state

    def report(self, source: Traced, sample: Sample, *, waits: bool = False) -> None:
        """Hand over the kept elements of a value when it is computed.

        Args:
            waits: a small value may wait until the run ends, or until there are enough of them.
        """
        if waits and self._waits(sample):
            self._values.add(source, sample)
        else:
            known = sample._replace(values=None)  # a compiled program must not keep traced values
            report(sample.values, lambda x: self.arrived(source, known._replace(values=x)))

    def source(self, stage: Stage, where: Where, order: int, value: jax.Array) -> Traced:
        """Return the source of a value that is about to be reported."""
        return Traced(stage, self._runs, [(where, order)], _is_replayed(value))

    def arrived(self, source: Traced, value: np.ndarray | Sample | Pooled) -> None:
        """Keep a computed value; errors are raised where the step ends, not in compiled code."""
        if not self._recorder.running or self._error is not None:
            return
        try:
            stored = value if isinstance(value, Pooled) else self._recorder.store(value)
            self._arrivals.add(source, stored)
        except Exception as error:
            self._error = error

    def settle(self) -> None:
        """Record the values that arrived in this step.

        Raises:
            ConfigError: a type that a trace cannot hold.
        """
        by_hand = {"gradients"} if self._recorder.logged("gradients") else set()
        for stage, where, value in self._arrivals.settle():
            if stage not in by_hand:
                self._recorder.seen(stage, where, value)
        error, self._error = self._error, None
        if error is not None:
            raise error


def _is_replayed(value: jax.Array) -> bool:
    """Return whether `jax.checkpoint` traces a value, so that the backward pass computes it again."""
    return any(REPLAY in purpose for purpose in purposes(value))
