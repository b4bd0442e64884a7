"""Reading of one stage of one training step from a trace, as a `StepSegment`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.measure.site import Site, Stage
from parity.measure.traces.format import Event
from parity.measure.traces.reader import Trace
from parity.measure.traces.recorder import OPTIMIZER
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import Divergence
from parity.verifier.recordings.steps.segment import StepSegment


class Leaves(Mapping[str, np.ndarray]):
    """Arrays of a trace by name, as float64, each read on demand."""

    def __init__(self, trace: Trace, events: Mapping[str, Event]) -> None:
        self._trace = trace
        self._events = dict(events)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._trace.read(self._events[name]), dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)


def step_segments(difference: Difference, divergence: Divergence) -> tuple[StepSegment, StepSegment]:
    """Read the differing stage of a training step from both recordings, with A's names of parameters."""
    traces, alignment = difference.traces, difference.alignment
    mine, theirs = divergence.judged.site, divergence.judged.partner
    names = {}
    for event in traces.a.of("parameters", mine.step):
        module, _, leaf = event.path.rpartition(".")
        other = alignment.path_in_b(module)
        if other is not None:
            names[f"{other}.{leaf}" if other else leaf] = event.path
    return (
        step_segment(traces.a, mine.step, mine.stage),
        step_segment(traces.b, theirs.step, theirs.stage, names),
    )


def step_segment(
    trace: Trace, step: int, stage: Stage, names: Mapping[str, str] | None = None
) -> StepSegment:
    """Read one stage of one step.

    Leaves kept only as a sample are left out.

    Args:
        trace: the recording.
        step: number of the step in the recording.
        stage: the stage that differs.
        names: A's name of each parameter whose name differs.
    """
    names = names or {}
    known = step - 1 in trace.steps
    loose = lambda stage, step: Leaves(trace, _leaves(trace, stage, step, names))  # noqa: E731
    rates = {name: _series(trace, "learning rate", name) for name in _paths(trace, "learning rate")}
    losses = [_series(trace, "loss", name) for name in _paths(trace, "loss")]
    counts = [e for e in trace.of("moments", step) if e.port == "step" and e.size == 1]
    return StepSegment(
        framework=trace.index.framework,
        step=step,
        stage=stage,
        result=loose(stage, step),
        parameters=loose("parameters", step),
        gradients=loose("gradients", step),
        clipped=loose("clipped", step),
        rates=next(iter(rates.values()), ()),
        moments_before=loose("moments", step - 1) if known else {},
        moments=loose("moments", step),
        count=int(trace.read(counts[0]).reshape(())) if counts else None,
        logits=_logits(trace, step),
        labels=_labels(trace, step),
        losses=next(iter(losses), ()),
        optimizer=trace.modules.get(OPTIMIZER),
        index=trace.steps.index(step),
        group_rates=rates,
        gradients_before=loose("gradients", step - 1) if known else {},
        clipped_before=loose("clipped", step - 1) if known else {},
        following=step_segment(trace, step + 1, stage, names)
        if stage == "moments" and not known and step + 1 in trace.steps
        else None,
    )


def _leaves(trace: Trace, stage: Stage, step: int, names: Mapping[str, str]) -> dict[str, Event]:
    """Return the events that hold whole arrays; for moments, those of parameters, as ``NAME kind``."""
    found: dict[str, Event] = {}
    for event in trace.of(stage, step):
        if event.spacing is not None or (
            stage == "moments" and (event.port == "step" or not event.path)
        ):
            continue
        name = names.get(event.path, event.path)
        found.setdefault(f"{name} {event.port}" if stage == "moments" else name, event)
    return found


def _paths(trace: Trace, stage: Stage) -> list[str]:
    """Return the names of the numbers logged in a stage, in order."""
    return list(dict.fromkeys(e.path for e in trace.of(stage) if e.size == 1))


def _series(trace: Trace, stage: Stage, path: str) -> tuple[float, ...]:
    """Return one number of every recorded step; nothing if a step lacks it."""
    sites = [Site(step, stage, path) for step in trace.steps]
    if not all(site in trace for site in sites):
        return ()
    return tuple(float(trace.read(site).reshape(-1)[0]) for site in sites)


def _logits(trace: Trace, step: int) -> np.ndarray | None:
    """Return the model's output, else the last output that is a matrix."""
    flat = [e for e in trace.of("forward", step) if e.port.startswith("out") and len(e.shape) == 2]
    whole = [e for e in flat if e.spacing is None]
    for port in ("out.logits", "out"):
        named = [e for e in whole if not e.path and e.port == port]
        if named:
            return trace.read(named[-1]).astype(np.float64)
    return trace.read(whole[-1]).astype(np.float64) if whole else None


def _labels(trace: Trace, step: int) -> np.ndarray | None:
    """Return the integers of the batch, else its matrix of targets."""
    events = [e for e in trace.of("batch", step) if e.spacing is None]
    for event in events:
        if len(event.shape) == 1 and np.issubdtype(np.dtype(event.dtype), np.integer):
            return trace.read(event)
    for event in events:
        if len(event.shape) == 2:
            return trace.read(event).astype(np.float64)
    return None
