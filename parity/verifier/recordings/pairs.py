"""Pairs of tensors of one stage of a step: by place, by name, or by the numbers of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parity.measure.site import STAGES
from parity.measure.traces import Event, Site, Stage, Trace
from parity.verifier.recordings.align import Alignment
from parity.verifier.recordings.calls import EventPair, Parts, layout_between
from parity.verifier.recordings.rounding import Traces

Partners = Mapping[tuple[str, str, int], Event]
"""Events of B by path, port and call."""


def stages_of(trace: Trace, step: int) -> tuple[Stage, ...]:
    """Return the stages that a trace has of a step, in order."""
    stages = {event.stage for event in trace.events if event.step == step}
    return tuple(stage for stage in STAGES if stage in stages)


def pairs_of(
    traces: Traces, alignment: Alignment, stage: Stage, step_a: int, step_b: int
) -> Iterator[EventPair]:
    """Yield the pairs of tensors of one stage of one step, matched by place or by name, in order."""
    a, b = traces.a, traces.b
    if stage in ("forward", "backward"):
        pairs = []
        for pair in alignment.pairs:
            mine = Site(step_a, stage, *pair.a.site[2:])
            theirs = Site(step_b, stage, *pair.b.site[2:])
            if mine in a and theirs in b:
                pairs.append(EventPair(a[mine], b[theirs], pair.axes))
        yield from pairs if stage == "forward" else reversed(pairs)
        return
    if stage in ("batch", "loss"):  # each program has its own names for them: paired in order
        for mine, theirs in zip(a.of(stage, step_a), b.of(stage, step_b), strict=False):
            axes = layout_between(mine.shape, theirs.shape)
            if axes is not None:
                yield EventPair(mine, theirs, None if axes == "same" else axes)
        return
    partners = _named(b, stage, step_b)
    events = list(a.of(stage, step_a))
    # gradients are computed from the last module to the first
    for event in reversed(events) if stage == "gradients" else events:
        pair = _by_values(alignment, event, partners) or _by_name(alignment, event, partners)
        if pair:
            yield pair


def _by_name(alignment: Alignment, event: Event, partners: Partners) -> EventPair | None:
    module, _, leaf = event.path.rpartition(".")
    other = alignment.path_in_b(module)
    names = [event.path, f"{other}.{leaf}" if other else leaf] if other is not None else [event.path]
    for name in names:
        partner = partners.get((name, event.port, event.call))
        axes = layout_between(event.shape, partner.shape) if partner else None
        if partner and axes is not None:
            return EventPair(event, partner, None if axes == "same" else axes)
    return None


def _by_values(alignment: Alignment, event: Event, partners: Partners) -> EventPair | None:
    """Return the pair of a tensor and the elements of B's whose parameters have the same values."""
    counterpart = alignment.counterparts.get(event.path)
    if counterpart is None:
        return None
    events = [partners.get((name, event.port, event.call)) for name in counterpart.names]
    there = tuple(each for each in events if each is not None)
    if len(there) < len(events) or any(each.spacing != event.spacing for each in there):
        return None
    return EventPair(event, there[0], None, Parts(there, counterpart.index))


def _named(trace: Trace, stage: Stage, step: int) -> dict[tuple[str, str, int], Event]:
    return {(e.path, e.port, e.call): e for e in trace.of(stage, step)}
