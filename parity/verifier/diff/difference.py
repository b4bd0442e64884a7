"""The comparison of two sides: recorded, aligned and judged."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from parity.measure.judged import Judged
from parity.measure.precision import reduced
from parity.measure.site import STAGES
from parity.measure.traces import Stage, Trace
from parity.measure.verdict import Verdict
from parity.verifier.diff.align import Alignment, How, align
from parity.verifier.diff.judge import (
    Comparison,
    Divergence,
    compare,
    parameters_apart,
    stages_of,
)
from parity.verifier.diff.left_out import left_out
from parity.verifier.diff.lines import lines_of
from parity.verifier.diff.rounding import Traces
from parity.verifier.diff.sides import Side
from parity.verifier.diff.structure import check_comparable, parameters_in_front
from parity.verifier.operations.comparison import Comparison as ByOperation

NUDGE = 1
"""Seed of the reference's shadow."""


@dataclass(frozen=True, repr=False)
class Difference:
    """All that was compared, and the first place that differs."""

    name_a: str
    name_b: str
    alignment: Alignment
    comparisons: tuple[Comparison, ...]
    """Every stage of every step, in order."""
    traces: Traces
    runs: bool
    """Whether both are models that were run; else one is a recording."""
    uncertified: tuple[str, ...]
    """Why equality in float32 would mean nothing: a side's products were less precise."""
    left_out: tuple[str, ...] = ()
    """What of A's was not compared, though parameters, gradients and moments all should be: then nothing
    is equal."""
    b_alone: tuple[str, ...] = ()
    """What B has and A has not, such as a parameter that it does not use."""
    notes: tuple[str, ...] = ()
    """What was done to a model that its author may not expect."""
    by_operation: Callable[[], ByOperation | str] = field(
        default=lambda: "nothing of the models was kept", repr=False
    )
    """Compares the two by their operations, or says why it cannot; asked once, by `lines`."""
    _folder: object = field(default=None, repr=False)

    def __repr__(self) -> str:
        """One line: who, how much, and the first place that differs."""
        first = self.first
        said = self.verdict if first is None else f"DIFFERENT at {first}"
        return f"<Difference {self.name_a} and {self.name_b}: {said}; {self.tensors} pairs of tensors>"

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

    @property
    def verdict(self) -> Verdict:
        """What is said of the two."""
        if not self.equal:
            return "DIFFERENT"
        return "INCOMPLETE" if self.left_out else "UNCERTIFIED" if self.uncertified else "EQUAL"

    @property
    def lines(self) -> ByOperation | None:
        """Where the two differ: on which lines of source they part, forward, or backward where the
        forward passes are the same. None where nothing differs, and where it cannot be told."""
        return None if isinstance(self._located, str) else self._located

    @property
    def no_lines(self) -> str:
        """Why `lines` cannot tell, in one sentence; empty where it can."""
        return self._located if isinstance(self._located, str) else ""

    @functools.cached_property
    def _located(self) -> ByOperation | str | None:
        return None if self.equal else self.by_operation()

    @property
    def tensors(self) -> int:
        """How many pairs of tensors were compared."""
        return sum(len(each.judged) for each in self.comparisons)

    @property
    def first(self) -> Divergence | None:
        """The first place that differs: what an error does to all that follows comes after it."""
        return self.first_of(STAGES)

    @property
    def places(self) -> tuple[tuple[Divergence, ...], ...]:
        """The first place that differs; or all parameters that do, for none of them follows from
        another, the same ones of all blocks together."""
        first = self.first
        if first is None:
            return ()
        if first.stage != "parameters":
            return ((first,),)
        found: dict[str, list[Divergence]] = {}
        for each in self.comparisons:
            for divergence in each.divergences if each.stage == "parameters" else ():
                found.setdefault(re.sub(r"\d+", "{i}", divergence.where), []).append(divergence)
        return tuple(tuple(group) for group in found.values())

    def first_of(self, stages: Collection[Stage]) -> Divergence | None:
        """The first place that differs in some stages."""
        found = (each.divergence for each in self.comparisons if each.stage in stages)
        return next((each for each in found if each is not None), None)

    @property
    def outputs(self) -> tuple[Judged, ...]:
        """How the tensors that the models return fared."""
        return tuple(
            judged
            for each in self.comparisons
            if each.stage == "forward"
            for judged in each.judged
            if judged.site.path == "" and judged.site.port.startswith("out")
        )

    @property
    def first_output(self) -> Divergence | None:
        """The place to blame if what the models return differs; None if that agrees."""
        return None if all(judged.passed for judged in self.outputs) else self.first


def compare_sides(
    a: Side,
    b: Side,
    *,
    how: How | Path = "auto",
    shadow: Side | None = None,
    folder: Path | None = None,
) -> Difference:
    """Compare two sides; A is the reference.

    Where A can be run, the envelope of rounding is measured on it, run once more with parameters and
    inputs one unit in the last place away.

    Args:
        how: how modules are aligned, see `parity.verifier.diff.align`.
        shadow: a recording of A so nudged, where A is a trace.
        folder: where to put the recordings; a temporary one by default.

    Raises:
        InputError: models that cannot be compared, or outputs that are not finite on both sides.
    """
    root = Path(tempfile.mkdtemp(prefix="parity-", dir=folder))
    with ThreadPoolExecutor(2) as both:
        first, second = both.submit(a.record, root / "a"), both.submit(b.record, root / "b")
        trace_a, trace_b = first.result(), second.result()
        if count := parameters_in_front(trace_a, trace_b):
            a.bind(count)
            trace_a = a.record(root / "a, bound")
        if count := parameters_in_front(trace_b, trace_a):
            b.bind(count)
            trace_b = b.record(root / "b, bound")
        check_comparable(a.name, trace_a, b.name, trace_b)
        alignment = align(trace_a, trace_b, how)
        moved: Trace | None = shadow.record(root / "shadow") if shadow else None
        if moved is None and a.runs:
            moved = a.record(root / "shadow", nudge=NUDGE)
        traces = Traces(trace_a, trace_b, moved)
    notes = [
        f"{side.name}: {note}"
        for side, trace in ((a, trace_a), (b, trace_b))
        for note in (*side.notes, *_samples(trace))
    ]
    difference = Difference(
        name_a=a.name,
        name_b=b.name,
        alignment=alignment,
        comparisons=tuple(_comparisons(traces, alignment)),
        traces=traces,
        runs=a.runs and b.runs,
        uncertified=tuple(_uncertified(a.name, trace_a, b.name, trace_b)),
        left_out=left_out(traces, alignment, "A"),
        b_alone=left_out(traces, alignment, "B"),
        notes=tuple(dict.fromkeys(notes)),
        by_operation=functools.partial(lines_of, a.subject, b.subject),
        _folder=root,
    )
    weakref.finalize(difference, shutil.rmtree, root, ignore_errors=True)
    return difference


def _comparisons(traces: Traces, alignment: Alignment) -> Iterator[Comparison]:
    for index, (step_a, step_b) in enumerate(zip(traces.a.steps, traces.b.steps, strict=False)):
        stages = set(stages_of(traces.b, step_b))
        apart = parameters_apart(traces, alignment, index)
        for stage in stages_of(traces.a, step_a):
            if stage == "parameters" and step_a != traces.a.steps[0]:
                continue  # what the step before left, and was judged there
            if stage in stages:
                yield compare(traces, alignment, stage, step_a, step_b, apart)


def _samples(trace: Trace) -> Iterator[str]:
    """That only a part of some tensors was kept, so that only this part is compared."""
    count = sum(event.spacing is not None for event in trace.events)
    if count:
        yield f"of {count} of its {len(trace.events)} tensors a sample was kept, and is what is compared"


def _uncertified(name_a: str, a: Trace, name_b: str, b: Trace) -> Iterator[str]:
    types = {e.dtype for trace in (a, b) for e in trace.of("forward", min(trace.steps, default=0))}
    if "float32" not in types:
        return
    for name, trace in ((name_a, a), (name_b, b)):
        for flag in reduced(trace.index.precision):
            yield f"{name}: {flag}"
