"""One stage of one training step, and its reading from a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parity.measure.site import AVERAGE, Site, Stage
from parity.measure.traces.format import Event, ModuleFacts
from parity.measure.traces.reader import Trace
from parity.measure.traces.recorder import OPTIMIZER
from parity.verifier.recordings.accumulated import Joined
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import Divergence
from parity.verifier.recordings.pairs import Counterpart, Counterparts, gathered


@dataclass(frozen=True)
class StepSegment:
    """Inputs and results of one stage of one training step of one program.

    Keys of dictionaries are the names of parameters; all values are float64.
    """

    step: int
    """Counted from 0 within the recording."""
    stage: Stage
    """The stage that differs: ``loss``, ``gradients``, ``clipped``, ``learning rate``, ``moments`` or
    ``updated``."""
    result: Mapping[str, np.ndarray]
    """Values of that stage; moments as ``NAME exp_avg``, ``NAME exp_avg_sq``, ``NAME
    momentum_buffer``."""
    parameters: Mapping[str, np.ndarray]
    """Parameters before the step."""
    gradients: Mapping[str, np.ndarray]
    """Gradients before clipping."""
    clipped: Mapping[str, np.ndarray]
    """Gradients that the optimiser was given; empty if they were not recorded."""
    rates: tuple[float, ...]
    """Learning rate of every recorded step."""
    moments_before: Mapping[str, np.ndarray]
    """Moments after the step before; empty at the first recorded step."""
    moments: Mapping[str, np.ndarray]
    """Moments after this step."""
    count: int | None
    """Number of this update, counted by the optimiser from 1; None if unknown."""
    logits: np.ndarray | None = None
    """Logits of this step's forward pass, (B, classes)."""
    parts: tuple[int, ...] = ()
    """Rows of the logits that each micro-batch of this step has."""
    labels: np.ndarray | None = None
    """Labels, (B,) integers or (B, classes)."""
    optimizer: ModuleFacts | None = None
    """Class and defaults of the optimiser, if recorded."""
    index: int = 0
    """Position of this step among the recorded ones: ``rates[index]`` is its learning rate."""
    group_rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Learning rates of every recorded step, by group; the name of an only group is empty."""
    gradients_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients of the step before; empty at the first recorded step."""
    gradients_single: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients of micro-batches as a mean in float32; empty if there is no such mean."""
    clipped_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients that the optimiser was given in the step before; empty at the first."""
    clipped_by_both: bool = False
    """Whether both programs recorded the gradients that their optimisers were given: a difference in how
    these were clipped is no difference of the moments."""
    following: StepSegment | None = None
    """Moments of the next step, if those before this step were not recorded."""


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a stage may have been computed."""

    choices: Mapping[str, str]
    """Assumptions in words, by aspect: ``{"momentum": "beta1 0.9"}``. Two hypotheses of the same aspects
    that differ in one choice differ in one thing."""
    value: Any
    """Result under these assumptions: a dictionary like `StepSegment.result`."""


class HeldLeaf(NamedTuple):
    """Where the numbers of a leaf are: in one event as it is, or at an index of several."""

    events: tuple[Event, ...]
    index: np.ndarray | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    shape: tuple[int, ...] | None = None


Elsewhere = dict[str, tuple[Counterpart, tuple[int, ...]]]
"""For each parameter that a side holds elsewhere: where, and its shape on the other side."""


class TraceArrays(Mapping[str, np.ndarray]):
    """Arrays of a trace by name, as float64, each read on demand."""

    def __init__(self, read: Callable[[Event], Any], events: Mapping[str, HeldLeaf]) -> None:
        self._read = read
        self._events = dict(events)

    def __getitem__(self, name: str) -> np.ndarray:
        held = self._events[name]
        read = [self._read(each) for each in held.events]
        value = read[0] if held.shape is None else gathered(read, held.index, held.shape)
        return np.asarray(value, dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)


def step_segments(difference: Difference, divergence: Divergence) -> tuple[StepSegment, StepSegment]:
    """Read the differing stage of a training step from both recordings, with A's names of parameters."""
    traces, partners = difference.traces, difference.counterparts
    mine, theirs = divergence.judged.site, divergence.judged.partner
    steps = traces.a.steps[0], mine.step
    shapes = {each.path: each.shape for step in steps for each in traces.a.of("parameters", step)}
    of_b = {each.path: each for each in traces.b.of("parameters", traces.b.steps[0])}
    in_a, in_b = {}, {}
    for group, mine_of in _groups(partners).items():
        held = {name: (partners[name], shapes[name]) for name in mine_of}
        if len(group) > len(mine_of):  # packed in A: a rule may hold for a part of it
            in_a |= _split(held, [of_b[name] for name in group])
        else:
            in_b |= held
    return (
        step_segment(traces.a, mine.step, mine.stage, in_a),
        step_segment(traces.b, theirs.step, theirs.stage, in_b),
    )


def _groups(counterparts: Counterparts) -> dict[tuple[str, ...], list[str]]:
    """Return the parameters of A that each set of B's parameters holds."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, each in counterparts.items():
        groups.setdefault(each.names, []).append(name)
    return groups


def _split(held: Elsewhere, parameters: list[Event]) -> Elsewhere:
    """Return where A holds the numbers of each of B's parameters, from where B holds those of A's."""
    index = [each.index for each, _ in held.values() if each.index is not None]
    back = np.argsort(np.concatenate(index))
    cuts = np.cumsum([each.size for each in parameters])[:-1]
    return {
        each.path: (Counterpart(tuple(held), own), each.shape)
        for each, own in zip(parameters, np.split(back, cuts), strict=True)
    }


def step_segment(
    trace: Trace, step: int, stage: Stage, elsewhere: Elsewhere | None = None
) -> StepSegment:
    """Read one stage of one step.

    Leaves kept only as a sample are left out.

    Args:
        trace: the recording.
        step: number of the step in the recording.
        stage: the stage that differs.
        elsewhere: where the other side's parameters are that this one calls or lays out otherwise.
    """

    def loose(stage: Stage, step: int) -> TraceArrays:
        return TraceArrays(trace.read, _leaves(trace, stage, step, elsewhere or {}))

    known = step - 1 in trace.steps
    rates = {name: _series(trace, "learning rate", name) for name in _paths(trace, "learning rate")}
    logits, parts = _logits(trace, step)
    counts = [e for e in trace.of("moments", step) if e.port == "step" and e.size == 1]
    return StepSegment(
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
        logits=logits,
        parts=parts,
        labels=_labels(trace, step),
        optimizer=trace.modules.get(OPTIMIZER),
        index=trace.steps.index(step),
        group_rates=rates,
        gradients_before=loose("gradients", step - 1) if known else {},
        clipped_before=loose("clipped", step - 1) if known else {},
        gradients_single=_single_means(trace, _leaves(trace, "gradients", step, elsewhere or {}))
        if stage == "moments"
        else {},
        following=step_segment(trace, step + 1, stage, elsewhere)
        if stage == "moments" and not known and step + 1 in trace.steps
        else None,
    )


def _single_means(trace: Trace, leaves: Mapping[str, HeldLeaf]) -> Mapping[str, np.ndarray]:
    """Return mean gradients of micro-batches, as `optax.MultiSteps` keeps them in float32; none where
    nothing is joined."""
    first = next(iter(leaves.values()), None)
    if first is None or not isinstance(trace, Joined) or trace.in_float32(first.events[0]) is None:
        return {}
    return TraceArrays(trace.in_float32, leaves)


def _leaves(trace: Trace, stage: Stage, step: int, elsewhere: Elsewhere) -> dict[str, HeldLeaf]:
    """Return where whole arrays are held; for moments, those of parameters, as ``NAME kind``."""
    leaves: dict[str, HeldLeaf] = {}
    moved = {name for each, _ in elsewhere.values() for name in each.names}
    by_port: dict[str, dict[str, Event]] = {}
    for event in trace.of(stage, step):
        counts = stage == "moments" and (event.port == "step" or not event.path)
        if event.spacing is not None or counts or (stage == "updated" and event.port == AVERAGE):
            continue
        if event.path in moved:
            by_port.setdefault(event.port, {}).setdefault(event.path, event)
            continue
        leaves.setdefault(_key(stage, event.path, event.port), HeldLeaf((event,)))
    for port, events in by_port.items():
        for name, (each, shape) in elsewhere.items():
            if all(other in events for other in each.names):
                there = tuple(events[other] for other in each.names)
                leaves[_key(stage, name, port)] = HeldLeaf(there, each.index, shape)
    return leaves


def _key(stage: Stage, name: str, port: str) -> str:
    return f"{name} {port}" if stage == "moments" else name


def _paths(trace: Trace, stage: Stage) -> list[str]:
    """Return the names of the numbers logged in a stage, in order."""
    return list(dict.fromkeys(e.path for e in trace.of(stage) if e.size == 1))


def _series(trace: Trace, stage: Stage, path: str) -> tuple[float, ...]:
    """Return one number of every recorded step; nothing if a step lacks it."""
    sites = [Site(step, stage, path) for step in trace.steps]
    if not all(site in trace for site in sites):
        return ()
    return tuple(float(trace.read(site).reshape(-1)[0]) for site in sites)


def _logits(trace: Trace, step: int) -> tuple[np.ndarray | None, tuple[int, ...]]:
    """Return the model's output, else the last output that is a matrix; of several calls, one below the
    other, with the number of rows of each."""
    flat = [e for e in trace.of("forward", step) if e.port.startswith("out") and len(e.shape) == 2]
    whole = [e for e in flat if e.spacing is None]
    for port in ("out.logits", "out"):
        named = [e for e in whole if not e.path and e.port == port]
        if named:
            rows = np.concatenate([trace.read(each) for each in named])
            return rows.astype(np.float64), tuple(each.shape[0] for each in named)
    return (trace.read(whole[-1]).astype(np.float64) if whole else None), ()


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
