"""Matching the values that a compiled program hands out with the places they were traced at.

A compiled program hands out its values in no particular order, and as often as they are computed:
once for each iteration of a loop, for each call of a function that was compiled once, and again in
the backward pass for values that were not kept. The order of tracing, and how often each value
arrived, determine the order of the forward pass.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from parity.measure.site import Stage, Where
from parity.measure.traces.pool import Pooled
from parity.measure.traces.stream import FileTensor


@dataclass
class Traced:
    """One traced value of a program."""

    stage: Stage
    run: int
    """Number of the call of the whole model in which it was traced."""
    spots: list[tuple[Where, int]]
    """Where the value is seen, each with its place in the order of tracing."""
    replayed: bool = False
    """Whether the backward pass computes the value again, as it was not kept."""
    arrived: list[tuple[int, FileTensor | Pooled]] = field(default_factory=list)
    """When the value arrived in the running step, and what arrived."""


class _Seen(NamedTuple):
    """One value at one spot, sorted by its place in the forward pass."""

    began: int
    """When the execution that the value belongs to began."""
    loop: int
    """Place at which the value's loop begins."""
    iteration: int
    order: int
    where: Where
    source: Traced
    clock: int


class Arrivals:
    """The values that arrived in one step; used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: list[Traced] = []
        self._clock = 0
        self._plan: _Plan | None = None

    def add(self, source: Traced, value: FileTensor | Pooled) -> None:
        """Note that a value was computed."""
        with self._lock:
            if not source.arrived:
                self._sources.append(source)
            source.arrived.append((self._clock, value))
            self._clock += 1

    def settle(self) -> Iterator[tuple[Stage, Where, FileTensor | Pooled]]:
        """Yield and forget what arrived, each stage in the order of the forward pass, calls numbered."""
        with self._lock:
            sources, self._sources, self._clock = self._sources, [], 0
        if self._plan is None or not self._plan.fits(sources):
            self._plan = _Plan(sources)
        known = {clock: value for source in sources for clock, value in source.arrived}
        for stage, where, source, clock in self._plan.rows:
            yield stage, where, source.arrived[0][1] if self._plan.once else known[clock]
        for source in sources:
            source.arrived = []


_Row = tuple[Stage, Where, Traced, int]
"""Where a value was seen, its source, and when it arrived."""


class _Plan:
    """The rows of one step, reused in the next step if each source has one value."""

    def __init__(self, sources: Sequence[Traced]) -> None:
        self.rows = list(_settled(sources))
        self.once = _arrived_once(sources)
        self._sources = {id(source) for source in sources}

    def fits(self, sources: Sequence[Traced]) -> bool:
        """Return whether the sources that have arrived now yield the same rows."""
        same = len(sources) == len(self._sources) and self.once and _arrived_once(sources)
        return same and self._sources.issuperset(map(id, sources))


def _arrived_once(sources: Sequence[Traced]) -> bool:
    """Return whether each source has one value, and each stage one run: no order has to be found."""
    runs = {(source.stage, source.run) for source in sources}
    alone = len(runs) == len({stage for stage, _ in runs})
    return alone and all(len(source.arrived) == 1 for source in sources)


def _settled(sources: Sequence[Traced]) -> Iterator[_Row]:
    by_stage: dict[Stage, list[Traced]] = defaultdict(list)
    for source in sources:
        by_stage[source.stage].append(source)
    runs = {source.run for source in by_stage["backward"]}
    numbers: dict[tuple[int, Where, int], int] = {}
    loops: dict[tuple[int, int], int] = {}
    for stage in sorted(by_stage, key=lambda stage: stage == "backward"):  # named like the forward pass
        seen = _in_order(by_stage[stage], runs, loops)
        calls: Counter[str] = Counter()
        for run, each in seen:
            call = run, each.where._replace(port=""), each.iteration
            if call not in numbers:
                numbers[call] = calls[each.where.path]
                calls[each.where.path] += 1
            yield stage, each.where._replace(call=numbers[call]), each.source, each.clock


def _in_order(
    sources: Iterable[Traced], differentiated: set[int], loops: dict[tuple[int, int], int]
) -> list[tuple[int, _Seen]]:
    """Return the values of one stage in order, each with the run it was traced in."""
    runs: dict[int, list[Traced]] = defaultdict(list)
    for source in sources:
        runs[source.run].append(source)
    seen = []
    for run, members in runs.items():
        members.sort(key=lambda source: source.spots[0][1])
        backward = members[0].stage == "backward"
        replays = run in differentiated and not backward
        arrived = [_without_replays(s, members) if replays else s.arrived for s in members]
        executions = min(len(values) for values in arrived)
        if not backward:
            _find_loops(run, members, arrived, loops)
        began: dict[int, int] = {}
        rows: list[tuple[int, int, Where, int, Traced, int]] = []
        for source, values in zip(members, arrived, strict=True):
            each = len(values) // executions
            for i, (clock, _) in enumerate(values):
                execution = min(i // each, executions - 1)
                began[execution] = min(clock, began.get(execution, clock))
                # a loop is differentiated from its last iteration to its first
                iteration = execution * each + each - 1 - i % each if backward else i
                rows += [(execution, iteration, *spot, source, clock) for spot in source.spots]
        for execution, iteration, where, order, source, clock in rows:
            loop = loops.get((run, order), order)
            row = _Seen(began[execution], loop, iteration, order, where, source, clock)
            seen.append((run, row))
    return sorted(seen, key=lambda pair: pair[1][:4])


def _find_loops(
    run: int,
    members: list[Traced],
    arrived: list[list[tuple[int, FileTensor | Pooled]]],
    loops: dict[tuple[int, int], int],
) -> None:
    """Note where the loop of each place begins: neighbours that arrived equally often share a loop."""
    count, start = 0, 0
    for source, values in zip(members, arrived, strict=True):
        for _, order in source.spots:
            if len(values) != count:
                count, start = len(values), order
            loops[run, order] = start


def _without_replays(source: Traced, members: list[Traced]) -> list[tuple[int, FileTensor | Pooled]]:
    """Return only what arrived in the forward pass: the first half of each execution."""
    values = source.arrived
    if not source.replayed:
        return values
    counts = [len(each.arrived) // (2 if each.replayed else 1) for each in members]
    executions = max(min(counts), 1)
    each = len(values) // executions
    return values if each % 2 else [value for i, value in enumerate(values) if i % each < each // 2]
