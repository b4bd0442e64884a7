"""Search for the operations that must stay in float32 of a program in a small type."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from parity.exporting.narrow.graph import Graph, Rounding
from parity.measure.error import relative_error
from parity.measure.shown import number
from parity.measure.smallest import smallest

AUTO = "auto"
"""The name that asks for the search."""
WORST = 5
"""How many of the layers that lose most in 8 bits are printed."""
MARGIN = 0.95
"""Share of the bound that a search may use up: what is written is then run by other code, which rounds
some ties another way."""
GROWS = 4.0
"""How many times a result's rounding the output's error is where most of that result is cancelled."""


@dataclass(frozen=True)
class KeptOperation:
    """An operation whose result stays in float32."""

    name: str
    line: str
    text: str
    kind: str
    """``overflow``, ``underflow``, ``cancellation`` or ``accumulation``."""
    why: str
    without: float
    """Error if all the others are kept and this one is not."""
    bytes: int
    """What it takes while it runs, for one image: its result and the weights read with it, widened."""
    time: float
    """Share of the program's time in float32, here, that it and what reads it take."""


@dataclass(frozen=True)
class Kept:
    """The operations of a program that stay in float32, and what it then computes."""

    wide: dict[int, str]
    """The operations whose results are in float32, those that only move such results among them: their
    numbers among those of the small type, and what each is called in its framework."""
    operations: tuple[KeptOperation, ...]
    candidates: int
    """How many operations round."""
    low: float
    """Error with nothing kept."""
    high: float
    """Error with everything kept."""
    error: float
    outputs: tuple[np.ndarray, ...]
    runs: int
    seconds: float
    losses: dict[str, float] = field(default_factory=dict)
    """Of int8, the error with one operation alone in 8 bits, of each; on one image."""

    def to_dict(self) -> dict[str, Any]:
        """Return what a description says of it, as JSON values."""
        told = ("candidates", "low", "error", "runs", *(["losses"] if self.losses else []))
        return {
            **{each: getattr(self, each) for each in told},
            "operations": [*map(asdict, self.operations)],
        }

    def to_text(self) -> Iterator[str]:
        """Yield the operations, those of one line and cause together."""
        size, share = (sum(getattr(e, name) for e in self.operations) for name in ("bytes", "time"))
        yield (
            f"keeps {len(self.operations)} of {self.candidates} operations in float32: +{size:,} bytes"
            f" for an image while it runs, in {share:.0%} of the time; with none it is {self.low:.1e}"
        )
        if self.losses:
            worst = sorted(self.losses.items(), key=lambda each: -each[1])[:WORST]
            told = ", ".join(f"{name} {loss:.1e}" for name, loss in worst)
            yield f"  alone in 8 bits, the worst of {len(self.losses)}: {told}"
        rows: dict[tuple[str, str, str], list[KeptOperation]] = {}
        for each in self.operations:
            kind = each.name.split(".")[-1 - each.name.split(".")[-1].isdigit()]
            rows.setdefault((each.line, kind, each.kind), []).append(each)
        for (line, kind, _), same in rows.items():
            first, last = same[0], same[-1]
            names = first.name if len(same) == 1 else f"{first.name} to {last.name}, {len(same)} times"
            least, most = min(e.without for e in same), max(e.without for e in same)
            without = number(least) if least == most else f"{number(least)} to {number(most)}"
            worst = max(same, key=lambda e: e.without if math.isfinite(e.without) else math.inf)
            size, share = sum(e.bytes for e in same), sum(e.time for e in same)
            yield f"  {line}  {first.text}"
            yield f"    {kind}  {names}"
            yield f"    {worst.why}; {without} without it; +{size:,} bytes, {share:.1%} of the time"


class Search:
    """Runs of a program with some operations kept, each compared with the run with all of them kept."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.started = time.perf_counter()
        self.exact, self.rounding = graph.profile()
        self.runs = 1
        self._known: dict[frozenset[int], float] = {}

    def error(self, kept: Collection[int]) -> float:
        """Return the largest relative distance of an output."""
        key = frozenset(kept)
        if key not in self._known:
            self.runs += 1
            pairs = zip(self.graph.run(key), self.exact, strict=True)
            self._known[key] = max(relative_error(each, exact) for each, exact in pairs)
        return self._known[key]

    @property
    def overflow(self) -> tuple[Any, Rounding] | None:
        """The first operation whose result the type does not hold, and that result; None if there is
        none."""
        found = (i for i, each in self.rounding.items() if each.overflows)
        first = next(found, None)
        return None if first is None else (self.graph.steps[first], self.rounding[first])

    @cached_property
    def losses(self) -> dict[int, float]:
        """The error with all operations kept but one, of each."""
        every = frozenset(self.graph.candidates)
        return {each: self.error(every - {each}) for each in self.graph.candidates}

    def find(self, bound: float, first: Search) -> set[int]:
        """Return operations that, kept, bring the error within a bound, and of which none can be left
        out; all of them if even that does not.

        Args:
            first: runs of the program on one image, where most of the search is done.
        """
        if self.error(()) <= bound:
            return set()
        if self.error(self.graph.candidates) > bound:
            return set(self.graph.candidates)
        found = {i for i, each in self.rounding.items() if each.overflows}
        for runs in (first, self):
            if self.error(found) > bound:
                found = runs.add_to(found, bound)
        before = None
        while before != found:  # a second time, for errors may cancel
            before = set(found)
            for each in sorted(found, reverse=True):  # from behind, the runs begin late
                if self.error(found - {each}) <= bound:
                    found.remove(each)
        return found

    def add_to(self, found: set[int], bound: float) -> set[int]:
        """Return some operations with those besides that bring the error within a bound: of int8 those
        that cost most by themselves."""
        if self.graph.dtype == "int8":
            worst = sorted(self.losses, key=self.losses.__getitem__, reverse=True)
            count = bisect_left(range(len(worst)), True, key=lambda n: self.error(worst[:n]) <= bound)
            return set(worst[:count])
        lines = {i: self.graph.steps[i].line for i in self.graph.candidates if i not in found}
        return found.union(smallest(lines, lambda some: self.error(found.union(some)) <= bound))

    def kept(self, found: Collection[int]) -> Kept:
        """Describe what is kept."""
        graph = self.graph
        error, outputs = self.error(found), tuple(graph.run(found))
        graph.profile()  # once more, for what each takes when all is warm
        small = [i for i, each in enumerate(graph.steps) if each.small]
        wide = graph.wide(found)
        return Kept(
            wide={n: graph.called(i) for n, i in enumerate(small) if i in wide},
            operations=tuple(self._described(i, set(found), error) for i in sorted(found)),
            candidates=len(graph.candidates),
            low=self.error(()),
            high=self.error(graph.candidates),
            error=error,
            outputs=outputs,
            runs=self.runs,
            seconds=time.perf_counter() - self.started,
        )

    def _described(self, index: int, found: set[int], error: float) -> KeptOperation:
        graph, step, rounding = self.graph, self.graph.steps[index], self.rounding[index]
        without = self.error(found - {index})
        kind, why = self._reason(rounding, without, error)
        readers = [i for i, each in enumerate(graph.steps) if index in each.inputs and each.small]
        reads = {i for each in (index, *readers) for i in (each, *graph.steps[each].inputs)}
        own = {index, *readers}  # and what transposes their weights
        weights = sum(graph.steps[i].weights for i in reads if i in own or not graph.steps[i].inputs)
        spent = sum(graph.seconds[i] for i in (index, *readers)) / sum(graph.seconds)
        size = 2 * (rounding.numbers // graph.images + weights)
        return KeptOperation(step.name, step.line, step.text, kind, why, without, size, spent)

    def _reason(self, rounding: Rounding, without: float, error: float) -> tuple[str, str]:
        dtype, largest = self.graph.dtype, self.graph.largest
        if dtype == "int8":
            return "loss", f"loss: 8 bits cost its result {rounding.loss:.1e}"
        if rounding.overflows:
            return "overflow", f"overflow: {rounding.largest:.2g}, and {dtype} ends at {largest:.5g}"
        if rounding.loss > self.graph.epsilon:
            return "underflow", f"underflow: {dtype} loses {rounding.loss:.1e} of it"
        grown = math.sqrt(max(without**2 - error**2, 0.0)) / rounding.loss if rounding.loss else 0.0
        if grown > GROWS:
            return (
                "cancellation",
                f"cancellation: what follows makes its rounding {grown:.0f} times as large",
            )
        return (
            "accumulation",
            f"accumulation: its rounding of {rounding.loss:.1e} adds up with the others'",
        )


def search(
    graph_of: Callable[[np.ndarray], Graph], images: np.ndarray, names: Sequence[str], bound: float
) -> Kept:
    """Find what of a program must stay in float32, or keep what has these names.

    Args:
        graph_of: returns the program as it runs on some images.
        names: `AUTO`, or names as `Graph.named` takes them.
        bound: the largest relative error of an output.
    """
    runs, first = Search(graph_of(images)), Search(graph_of(images[:1]))
    kept = runs.kept(runs.find(MARGIN * bound, first) if AUTO in names else runs.graph.named(names))
    if runs.graph.dtype != "int8":
        return kept
    return replace(kept, losses={runs.graph.steps[i].name: loss for i, loss in first.losses.items()})
