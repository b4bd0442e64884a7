"""Pairs of tensors of one stage of a step: in order, by name, or by the numbers of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from parity.measure.site import STAGES
from parity.measure.traces import Event, Stage, Trace
from parity.measure.traces.sample import thin_array
from vit_config import InputError


class Traces(NamedTuple):
    """The two recordings of a comparison."""

    a: Trace
    b: Trace


class Counterpart(NamedTuple):
    """Parameters of B that hold the numbers of one of A."""

    names: tuple[str, ...]
    index: np.ndarray | None  # pyright: ignore[reportIncompatibleMethodOverride]
    """Position of each of A's numbers among all numbers of these parameters; None: as they are."""


Counterparts = Mapping[str, Counterpart]
"""For each parameter of A whose partner is called or laid out otherwise: B's with its numbers."""


class Parts(NamedTuple):
    """Tensors of B that hold the numbers of one of A, and where; see `Counterpart`."""

    events: tuple[Event, ...]
    index: np.ndarray | None  # pyright: ignore[reportIncompatibleMethodOverride]


class EventPair(NamedTuple):
    """Two events that recorded what should be the same tensor."""

    a: Event
    b: Event
    axes: tuple[int, ...] | None = None
    """Transposition from the layout of `b` to that of `a`; None if the layouts are the same."""
    parts: Parts | None = None
    """Tensors that hold what `a` does, if they are not called or laid out alike; `b` is the first."""

    @property
    def all_b(self) -> tuple[Event, ...]:
        """Every tensor of B that holds numbers of `a`."""
        return self.parts.events if self.parts else (self.b,)


def layout_between(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | Literal["same"] | None:
    """Return the transposition from shape `b` to shape `a`; "same" if they are equal, None if none fits.

    Feature maps may be channels-first on one side and channels-last on the other.
    """
    if tuple(a) == tuple(b):
        return "same"
    if len(a) == len(b) == 4:
        for axes in ((0, 3, 1, 2), (0, 2, 3, 1)):
            if tuple(b[i] for i in axes) == tuple(a):
                return axes
    return None


def _pair(a: Event, b: Event | None) -> EventPair | None:
    """Pair two events; None if their shapes cannot be those of one tensor."""
    axes = None if b is None else layout_between(a.shape, b.shape)
    return None if b is None or axes is None else EventPair(a, b, None if axes == "same" else axes)


def stages_of(trace: Trace, step: int) -> tuple[Stage, ...]:
    """Return the stages that a trace has of a step, in order."""
    stages = {event.stage for event in trace.events if event.step == step}
    return tuple(stage for stage in STAGES if stage in stages)


def pairs_of(
    traces: Traces, counterparts: Counterparts, stage: Stage, step_a: int, step_b: int
) -> Iterator[EventPair]:
    """Yield the pairs of tensors of one stage of one step, in order."""
    mine, theirs = list(traces.a.of(stage, step_a)), list(traces.b.of(stage, step_b))
    if stage in ("batch", "loss"):  # each program has its own names for them: paired in order
        yield from filter(None, map(_pair, mine, theirs))
        return
    named = {(e.path, e.port, e.call): e for e in theirs}
    # gradients are computed from the last module to the first
    for event in reversed(mine) if stage == "gradients" else mine:
        pair = _by_values(counterparts, event, named)
        pair = pair or _pair(event, named.get((event.path, event.port, event.call)))
        if pair is None and stage == "forward" and not event.path:
            pair = _of_output(event, mine, theirs)
        if pair:
            yield pair


def _of_output(event: Event, mine: list[Event], theirs: list[Event]) -> EventPair | None:
    """Return the pair of a model's first output, bare on one side and part of something on the other."""
    first = [next((e for e in each if _is_output(e, event.call)), None) for each in (mine, theirs)]
    return _pair(event, first[1]) if event is first[0] else None


def _is_output(event: Event, call: int) -> bool:
    return not event.path and event.call == call and event.port.startswith("out")


def _by_values(
    counterparts: Counterparts, event: Event, named: Mapping[tuple[str, str, int], Event]
) -> EventPair | None:
    """Return the pair of a tensor and the elements of B's whose parameters have the same values."""
    counterpart = counterparts.get(event.path)
    if counterpart is None:
        return None
    events = [named.get((name, event.port, event.call)) for name in counterpart.names]
    there = tuple(each for each in events if each is not None)
    if len(there) < len(events) or any(each.spacing != event.spacing for each in there):
        return None
    return EventPair(event, there[0], None, Parts(there, counterpart.index))


def gathered(
    arrays: Sequence[np.ndarray], index: np.ndarray | None, shape: Sequence[int] | None
) -> np.ndarray:
    """Return the numbers of some arrays at an index, in a shape (None: as a row)."""
    row = np.concatenate([each.reshape(-1) for each in arrays])
    row = row if index is None else row[index]
    return row if shape is None else row.reshape(shape)


def read_pair(a: Trace, b: Trace, pair: EventPair) -> tuple[np.ndarray, np.ndarray]:
    """Read both tensors in A's layout; if only one is a sample, the same elements of the other.

    Raises:
        InputError: both are samples, of different elements.
    """
    if pair.parts is not None:
        x = a.read(pair.a)
        return x, gathered([b.read(each) for each in pair.parts.events], pair.parts.index, x.shape)
    x, y = a.read(pair.a), b.read(pair.b)
    mine, theirs = pair.a.spacing, pair.b.spacing
    if pair.axes is not None:
        y = y.transpose(pair.axes)
        theirs = theirs and tuple(theirs[axis] for axis in pair.axes)
    if mine == theirs:
        return x, y
    if mine and theirs:
        raise InputError(
            f"{a.path} and {b.path} keep other elements of {pair.a.site}; record both with the same"
            " `keep`"
        )
    return (x, thin_array(y, mine)) if mine else (thin_array(x, theirs or ()), y)
