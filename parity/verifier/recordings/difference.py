"""Comparison of two recordings of training, step by step."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from parity.measure.precision import find_reduced_flags
from parity.measure.site import STAGES
from parity.measure.traces import Stage, Trace
from parity.measure.verdict import Verdict
from parity.verifier.recordings.accumulated import Resumed, behind_the_whole, by_updates
from parity.verifier.recordings.counterparts import counterparts
from parity.verifier.recordings.judge import (
    Divergence,
    StageComparison,
    compare,
    parameters_apart,
)
from parity.verifier.recordings.left_out import (
    all_missing,
    lacking_stages,
    lacking_steps,
    left_out,
)
from parity.verifier.recordings.pairs import Counterparts, Traces, stages_of
from parity.verifier.recordings.sides import Recorded, check_comparable


@dataclass(frozen=True, repr=False)
class Difference:
    """Result of comparing two recordings: all comparisons, and the first place that differs."""

    name_a: str
    name_b: str
    counterparts: Counterparts
    comparisons: tuple[StageComparison, ...]
    """Every stage of every step, in order."""
    traces: Traces
    uncertified: tuple[str, ...]
    """Reasons why equality in float32 proves nothing: a side's products ran at reduced precision."""
    left_out: tuple[str, ...] = ()
    """What was not compared, by stage: parameters, gradients and moments of A, and steps that one of the
    two lacks; if there is anything, the two are not EQUAL."""
    b_alone: tuple[str, ...] = ()
    """What only B has, such as a parameter that it does not use, by stage."""
    unseen: str = ""
    """Why nothing that was computed could have differed; empty if it could."""
    notes: tuple[str, ...] = ()
    """Facts about a recording that its author may not expect, such as tensors kept only as samples."""

    def __repr__(self) -> str:
        """Return one line: the sides, how much was compared, and the first place that differs."""
        first = self.first
        outcome = self.verdict if first is None else f"DIFFERENT at {first}"
        return (
            f"<Difference {self.name_a} and {self.name_b}: {outcome}; {self.tensors} pairs of tensors>"
        )

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two recordings."""
        return self.verdict_but_for_differences if self.equal else "DIFFERENT"

    @property
    def verdict_but_for_differences(self) -> Verdict:
        """Verdict if what differs did not."""
        vague = self.uncertified or self.unseen
        return "INCOMPLETE" if self.left_out else "UNCERTIFIED" if vague else "EQUAL"

    @property
    def tensors(self) -> int:
        """Number of pairs of tensors that were compared."""
        return sum(len(each.judged) for each in self.comparisons)

    @property
    def first(self) -> Divergence | None:
        """First place that differs, in the order of computation; later ones may inherit its error."""
        return self.first_of(STAGES)

    @property
    def places(self) -> tuple[tuple[Divergence, ...], ...]:
        """First place that differs. If that is a parameter: all parameters that differ, as none follows
        from another, with the same parameter of all blocks in one group."""
        first = self.first
        if first is None:
            return ()
        if first.stage != "parameters":
            return ((first,),)
        groups: dict[str, list[Divergence]] = {}
        for each in self.comparisons:
            for divergence in each.divergences if each.stage == "parameters" else ():
                groups.setdefault(re.sub(r"\d+", "{i}", divergence.where), []).append(divergence)
        return tuple(tuple(group) for group in groups.values())

    def first_of(self, stages: Collection[Stage]) -> Divergence | None:
        """Return the first place that differs in the given stages; None if there is none."""
        divergences = (each.divergence for each in self.comparisons if each.stage in stages)
        return next((each for each in divergences if each is not None), None)


def compare_sides(a: Recorded, b: Recorded) -> Difference:
    """Compare two recordings; A is the reference.

    Raises:
        InputError: the recordings cannot be compared, or both have outputs that are not finite.
    """
    trace_a, trace_b = by_updates(a.trace, behind_the_whole(a.trace, b.trace))
    check_comparable(a.name, trace_a, b.name, trace_b)
    traces = Traces(trace_a, trace_b)
    partners = counterparts(traces)
    notes = [f"{side.name}: {note}" for side in (a, b) for note in _samples(side.trace)]
    for side, trace in ((a, trace_a), (b, trace_b)):
        if isinstance(trace, Resumed):
            notes.append(f"{side.name}: it resumes {a.name} in step {trace.began}")
        elif trace is not side.trace:
            notes.append(
                f"{side.name}: its micro-batches are joined, and compared by steps of the optimiser"
            )
    comparisons = tuple(_comparisons(traces, partners))
    return Difference(
        name_a=a.name,
        name_b=b.name,
        counterparts=partners,
        comparisons=comparisons,
        traces=traces,
        uncertified=tuple(_uncertified(a.name, trace_a, b.name, trace_b)),
        left_out=(
            *lacking_steps(trace_a, trace_b),
            *lacking_stages(trace_a, trace_b, "A"),
            *left_out(traces, partners, "A"),
            *all_missing(trace_a, comparisons),
        ),
        b_alone=(
            *lacking_stages(trace_a, trace_b, "B"),
            *left_out(traces, partners, "B"),
        ),
        unseen=_unseen(trace_a),
        notes=tuple(dict.fromkeys(notes)),
    )


def _comparisons(traces: Traces, partners: Counterparts) -> Iterator[StageComparison]:
    for index, (step_a, step_b) in enumerate(zip(traces.a.steps, traces.b.steps, strict=False)):
        stages = set(stages_of(traces.b, step_b))
        apart = parameters_apart(traces, partners, index)
        for stage in stages_of(traces.a, step_a):
            if stage == "parameters" and step_a != traces.a.steps[0]:
                continue  # the step before left them, and they were judged there
            if stage in stages:
                yield compare(traces, partners, stage, step_a, step_b, apart)


def _samples(trace: Trace) -> Iterator[str]:
    """Say that only samples of some tensors were kept, so that only these are compared."""
    count = sum(event.spacing is not None for event in trace.events)
    if count:
        yield f"of {count} of its {len(trace.events)} tensors a sample was kept, and is what is compared"


def _unseen(trace: Trace) -> str:
    """Return why no difference could show in what was computed; empty if one could."""
    computed = [e for e in trace.events if e.stage in ("forward", "loss", "gradients")]
    zero = computed and not any(trace.read(each).any() for each in computed)
    return "all outputs and gradients are zero, where no difference shows" if zero else ""


def _uncertified(name_a: str, a: Trace, name_b: str, b: Trace) -> Iterator[str]:
    types = {e.dtype for trace in (a, b) for e in trace.events if e.stage in ("forward", "gradients")}
    if "float32" not in types:
        return
    for name, trace in ((name_a, a), (name_b, b)):
        for flag in find_reduced_flags(trace.index.precision):
            yield f"{name}: {flag}"
