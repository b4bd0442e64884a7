"""The comparison of two sides: recorded, aligned, judged flowing and fed."""

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
from parity.measure.traces import Stage, Trace
from parity.verifier.diff.align import Alignment, How, align
from parity.verifier.diff.feed import Feed
from parity.verifier.diff.judge import (
    Comparison,
    Divergence,
    Mode,
    Traces,
    compare,
    parameters_apart,
    stages_of,
)
from parity.verifier.diff.left_out import left_out
from parity.verifier.diff.lines import lines_of
from parity.verifier.diff.sides import Side
from parity.verifier.diff.structure import check_comparable
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
    """Every stage of every step, flowing; then fed."""
    flowing: Traces
    fed: Traces | None
    """B on the activations and gradients of A; None where a side cannot be run."""
    uncertified: tuple[str, ...]
    """Why equality in float32 would mean nothing: a side's products were less precise."""
    left_out: tuple[str, ...] = ()
    """What was not compared, though parameters, gradients and moments all should be: then nothing is
    equal."""
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
        said = "EQUAL" if first is None else f"DIFFERENT at {first}"
        if first is None and (self.left_out or self.uncertified):
            said = "INCOMPLETE" if self.left_out else "UNCERTIFIED"
        return f"<Difference {self.name_a} and {self.name_b}: {said}; {self.tensors} pairs of tensors>"

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

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
        """The first place that differs; fed before flowing, for there an error is where it is made."""
        found = [each.divergence for each in self._in_order() if each.divergence is not None]
        return found[0] if found else None

    @property
    def places(self) -> tuple[tuple[Divergence, ...], ...]:
        """Every place that differs, the same place of all blocks together; of flowing comparisons only
        the first can be known."""
        first = self.first
        if first is None:
            return ()
        if first.mode == "flowing" and first.stage != "parameters":
            return ((first,),)
        found: dict[tuple[str, str], list[Divergence]] = {}
        seen: set[str] = set()
        for each in self._in_order():
            if (each.mode, each.stage) == (first.mode, first.stage):
                for divergence in each.divergences:
                    if divergence.where not in seen:  # the rest of the same code may follow from it
                        seen.add(divergence.where)
                        found.setdefault(_pattern(divergence), []).append(divergence)
        return tuple(tuple(group) for group in found.values())

    def first_of(self, stages: Collection[Stage]) -> Divergence | None:
        """The first place that differs in some stages."""
        found = (each.divergence for each in self._in_order() if each.stage in stages)
        return next((each for each in found if each is not None), None)

    @property
    def outputs(self) -> tuple[Judged, ...]:
        """How the tensors that the models return fared, each model on its own activations."""
        return tuple(
            judged
            for each in self.comparisons
            if (each.mode, each.stage) == ("flowing", "forward")
            for judged in each.judged
            if judged.site.path == "" and judged.site.port.startswith("out")
        )

    @property
    def first_output(self) -> Divergence | None:
        """The place to blame if what the models return differs; None if that agrees."""
        return None if all(judged.passed for judged in self.outputs) else self.first

    def traces(self, mode: Mode) -> Traces:
        """The recordings of one mode."""
        return self.fed if mode == "fed" and self.fed is not None else self.flowing

    def _in_order(self) -> Iterator[Comparison]:
        """Step by step, as things are computed; what an error does to what follows comes after it."""
        for step in sorted({each.step for each in self.comparisons}):
            mine = [each for each in self.comparisons if each.step == step]
            for mode, stages in _ORDER:
                for stage in stages:
                    yield from (each for each in mine if (each.mode, each.stage) == (mode, stage))


_ORDER: tuple[tuple[Mode, tuple[Stage, ...]], ...] = (
    ("flowing", ("batch", "parameters")),
    ("fed", ("forward",)),
    ("flowing", ("forward", "loss")),
    ("fed", ("backward", "gradients")),
    ("flowing", ("backward", "gradients", "clipped", "learning rate", "moments", "updated")),
)


def _pattern(divergence: Divergence) -> tuple[str, str]:
    """What the same places of all blocks have in common."""
    site = divergence.judged.site
    return re.sub(r"\d+", "{i}", divergence.where), re.sub(r"\d+", "{i}", f"{site.path} {site.port}")


def compare_sides(
    a: Side,
    b: Side,
    *,
    how: How | Path = "auto",
    shadow: Side | None = None,
    folder: Path | None = None,
) -> Difference:
    """Compare two sides; A is the reference.

    Where both can be run, the envelope of rounding is measured on A, run once more with parameters and
    inputs one unit in the last place away; and B is run a second time, fed the activations and gradients
    of A, and so is A's shadow.

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
        check_comparable(a.name, trace_a, b.name, trace_b)
        alignment = align(trace_a, trace_b, how)
        moved: Trace | None = shadow.record(root / "shadow") if shadow else None
        if moved is None and a.runs:
            moved = a.record(root / "shadow", nudge=NUDGE)
        flowing = Traces(trace_a, trace_b, moved, "flowing")
        fed = None
        if a.runs and b.runs:
            reference = both.submit(a.record, root / "fed shadow", feed=_own_feed(trace_a), nudge=NUDGE)
            other = both.submit(b.record, root / "fed", feed=_feed(trace_a, alignment))
            fed = Traces(trace_a, other.result(), reference.result(), "fed")
    difference = Difference(
        name_a=a.name,
        name_b=b.name,
        alignment=alignment,
        comparisons=tuple(_comparisons(flowing, fed, alignment)),
        flowing=flowing,
        fed=fed,
        uncertified=tuple(_uncertified(a.name, trace_a, b.name, trace_b)),
        left_out=left_out(flowing, alignment),
        notes=tuple(dict.fromkeys(f"{side.name}: {note}" for side in (a, b) for note in side.notes)),
        by_operation=functools.partial(lines_of, a.subject, b.subject),
        _folder=root,
    )
    weakref.finalize(difference, shutil.rmtree, root, ignore_errors=True)
    return difference


def _comparisons(flowing: Traces, fed: Traces | None, alignment: Alignment) -> Iterator[Comparison]:
    for index, (step_a, step_b) in enumerate(zip(flowing.a.steps, flowing.b.steps, strict=False)):
        stages = set(stages_of(flowing.b, step_b))
        apart = parameters_apart(flowing, alignment, index)
        for stage in stages_of(flowing.a, step_a):
            if stage == "parameters" and step_a != flowing.a.steps[0]:
                continue  # what the step before left, and was judged there
            if stage in stages:
                yield compare(flowing, alignment, stage, step_a, step_b, apart)
    if fed is not None:
        stage: Stage
        for stage in ("forward", "backward", "gradients"):
            yield compare(fed, alignment, stage, fed.a.steps[0], fed.b.steps[0])


def _feed(reference: Trace, alignment: Alignment) -> Feed:
    """What B is fed: at every aligned port what A had there, in B's layout."""
    sites = {}
    for pair in alignment.pairs:
        mine, theirs = pair.a, pair.b
        axes = None if pair.axes is None else tuple(pair.axes.index(i) for i in range(len(pair.axes)))
        sites[theirs.path, theirs.port, theirs.call] = (mine.path, mine.port, mine.call), axes
    return Feed(reference, sites)


def _own_feed(reference: Trace) -> Feed:
    """What the shadow of A is fed: A's own tensors, moved by one unit in the last place."""
    own = {(e.path, e.port, e.call) for e in reference.of("forward", reference.steps[0])}
    return Feed(reference, {place: (place, None) for place in own}, NUDGE)


def _uncertified(name_a: str, a: Trace, name_b: str, b: Trace) -> Iterator[str]:
    types = {e.dtype for trace in (a, b) for e in trace.of("forward", min(trace.steps, default=0))}
    if "float32" not in types:
        return
    for name, trace in ((name_a, a), (name_b, b)):
        for flag in reduced(trace.index.precision):
            yield f"{name}: {flag}"
