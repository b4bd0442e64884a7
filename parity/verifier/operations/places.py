"""Where two programs part: the smallest region behind which everything meets again.

Of every unmet value of B, and of every value that an unmet operation reads, it is tried whether one of
A's in its place makes everything behind it meet. The pair with the fewest operations before it is the
fault's end; fed with A's value, B goes on to the next fault.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.verifier.operations.ends import ends_of, pairs_of, window_of
from parity.verifier.operations.fingerprint import fingerprint
from parity.verifier.operations.layouts import arrangements
from parity.verifier.operations.meeting import Index, meet, noise, reach
from parity.verifier.operations.program import Program
from parity.verifier.operations.region import Found, Region, before_of, distance, first

DEPTH = 14
"""Operations behind a fed value within which all must meet again."""
SURE = 3
"""Operations in a row that must meet behind a fed value."""
NEARBY = 4
"""Operations before the first of A's that do not meet, whose values may repair B, too."""
ORDER_ROOM = 12
"""Operations."""
SECONDS = 20.0
"""Of processor time, for the end of one fault."""
EQUAL = 1e-9
"""Relative distance of outputs, in the norm, up to which they are the same; programs in float64 stay
near 1e-14."""


@dataclass
class _Candidate:
    x: int
    y: int
    value: np.ndarray
    own: np.ndarray
    fed: Program
    readers: list[int]
    size: int
    reach: int
    """How much of B still parts from A."""
    order: bool = False
    """Whether nothing is computed between: the same numbers in another order."""

    @property
    def room(self) -> int:
        """How many more operations a better candidate may have: another order here and the order back
        further on may be one operation along another axis between the two."""
        return ORDER_ROOM if self.order and self.reach else 1

    @property
    def rank(self) -> tuple[int, int]:
        return self.reach, self.size


class Search:
    """Two programs, B fed with more and more of A's values."""

    def __init__(self, a: Program, b: Program, pairs: list[tuple[int, int]]) -> None:
        self.a, self.b, self.pairs = a, b, pairs
        self.index = Index(a)
        self.followers: dict[int, set[int]] = {}

    def unequal(self) -> list[tuple[int, int]]:
        """The pairs of outputs that differ."""
        found = []
        for x, y in self.pairs:
            of_a, of_b = self.a.values([x])[x], self.b.values([y])[y]
            if not self.equal(of_a, of_b):
                found.append((x, y))
        return found

    @staticmethod
    def equal(of_a: Any, of_b: Any) -> bool:
        """Whether two outputs are the same, up to the order of axes where their shapes differ."""
        of_a, of_b = np.asarray(of_a), np.asarray(of_b)
        if of_a.shape == of_b.shape:
            return distance(of_a, of_b) <= EQUAL
        return any(distance(each, of_b) <= EQUAL for each in arrangements(of_a, of_b.shape))

    def places(self, most: int = 32) -> Iterator[Found]:
        """The places where B parts from A, each repaired before the next is looked for."""
        for _ in range(most):
            unequal = self.unequal()
            if not unequal:
                return
            found = self.next(unequal)
            if found is None:
                return
            yield found
            if not found.closed:
                return

    def next(self, unequal: list[tuple[int, int]]) -> Found | None:
        """The next place; B goes on with A's value there."""
        met_b = meet(self.b.operations, self.index)
        met_a = {each for partners in met_b.values() for each in partners}
        met_a |= noise(self.a)
        met = set(met_b) | noise(self.b)
        self.met = met_b
        roots_a, roots_b = {x for x, _ in unequal}, {y for _, y in unequal}
        self.roots = {y: x for x, y in unequal}
        reach_a = reach(self.a, roots_a, met_a - roots_a)
        reach_b = reach(self.b, roots_b, met - roots_b)
        self.reach_b = reach_b
        self.readers = self.b.consumers()
        self.behind: dict[int, set[int]] = {}
        ends_a, ends_b = ends_of(self.a, reach_a, roots_a, NEARBY), ends_of(self.b, reach_b, roots_b)
        self.window = self.b.values(sorted(window_of(self.b, reach_b, ends_b)))
        values_a = self.a.values([each for each, _ in ends_a])
        until = time.process_time() + SECONDS
        best: _Candidate | None = None
        for size_a, size_b, x, y in pairs_of(self.a, self.b, ends_a, ends_b):
            if best is not None and (size_a + size_b > best.size + best.room or best.reach == 0):
                break
            own = self.window.get(y)
            if own is None or not isinstance(values_a[x], np.ndarray):
                continue
            for value in arrangements(values_a[x], np.shape(own)):
                if np.array_equal(value, own, equal_nan=value.dtype.kind in "fc"):
                    continue
                if self.closes(x, y, value):
                    candidate = self.candidate(x, y, value, own, size_a + size_b)
                    if candidate is not None and (best is None or candidate.rank < best.rank):
                        best = candidate
                    break
            if time.process_time() > until:
                break
        if best is None:
            return self.open_end(reach_a, reach_b, roots_a, roots_b)
        return self.found(best, reach_a, reach_b)

    def closes(self, x: int, y: int, value: np.ndarray) -> bool:
        """Whether, with a value of A's in the place of one of B's, everything behind it meets.

        A value that meets by chance (x / 2, in both forms of GELU) is followed by one that does not:
        what reads a meeting value must meet too, `SURE` operations in a row. And what B computes from
        A's value must meet what A computes from it: x + a - a is not a + x.
        """
        downstream, follows = self.downstream(y), self.follows(x)
        known: dict[int, Any] = {y: value}
        row: dict[int, int] = {y: 0}
        queue: list[int] = []
        seen: set[int] = set()

        def follow(index: int) -> None:
            for reader in self.readers[index]:
                if reader in self.reach_b and reader not in seen:
                    seen.add(reader)
                    heapq.heappush(queue, reader)

        if y in self.roots and y in self.reach_b and not self.equals_output(y, value):
            return False
        follow(y)
        unmet = 0
        while queue:
            index = heapq.heappop(queue)
            op = self.b.operations[index]
            if any(i not in known and i in downstream for i in op.inputs):
                continue  # it also reads what lies further behind
            for i in op.inputs:
                if i not in known and i not in self.window:
                    self.window.update(self.b.values([i]))
            operands = {i: known[i] if i in known else self.window[i] for i in op.inputs}
            try:
                result = self.b.apply(op, operands, {})
            except Exception:  # what is fed may be no operand at all, such as an index out of range
                return False
            known[index] = result
            behind = min(row[i] for i in op.inputs if i in row)
            if index in self.roots and not self.equals_output(index, result):
                return False
            partners = self.index.meets(op, fingerprint(result)) if _is_array(result) else []
            if any(each.index in follows for each in partners):
                row[index] = behind + (not op.is_layout)
                if row[index] < SURE:
                    follow(index)
                continue
            row[index] = 0
            unmet += not op.is_layout
            if unmet > DEPTH:
                return False
            follow(index)
        return True

    def follows(self, x: int) -> set[int]:
        """The operations of A that depend on a value or on another with its numbers."""
        if x not in self.followers:
            alike = {x, *(each.index for each in self.index.meets(self.a.operations[x]))}
            self.followers[x] = alike | self.a.behind(alike)
        return self.followers[x]

    def downstream(self, y: int) -> set[int]:
        """The operations of the reach that a value leads to."""
        if y not in self.behind:
            found, stack = set(), [y]
            while stack:
                for reader in self.readers[stack.pop()]:
                    if reader in self.reach_b and reader not in found:
                        found.add(reader)
                        stack.append(reader)
            self.behind[y] = found
        return self.behind[y]

    def equals_output(self, index: int, value: Any) -> bool:
        """Whether a value is what A puts out where B puts out that of an operation."""
        x = self.roots[index]
        return self.equal(self.a.values([x])[x], value)

    def candidate(
        self, x: int, y: int, value: np.ndarray, own: np.ndarray, size: int
    ) -> _Candidate | None:
        """B fed at a pair of ends; None if right behind it B still parts from A."""
        readers = [r for r in self.readers[y] if r in self.reach_b]
        inside = y in self.reach_b
        fed = self.b.fed({y: value}, {}) if inside else self.b.fed({}, {(y, r): value for r in readers})
        outputs = self.a.values([each for each, _ in self.pairs])
        of_b = fed.values([each for _, each in self.pairs])
        roots = {b for a, b in self.pairs if not self.equal(outputs[a], of_b[b])}
        met = set(meet(fed.operations, self.index)) | noise(fed)
        after = reach(fed, roots, met - roots)
        if any(
            each in after and not any(i in after for i in fed.operations[each].inputs)
            for each in readers
        ):
            return None
        order = not size and self.a.operations[x] in self.index.meets(self.b.operations[y])
        return _Candidate(x, y, value, own, fed, [] if inside else readers, size, len(after), order)

    def found(self, best: _Candidate, reach_a: set[int], reach_b: set[int]) -> Found:
        """The place that a candidate closes; B goes on as fed."""
        before, self.b = self.b, best.fed
        region_a = Region(self.a, best.x, before_of(self.a, best.x, reach_a))
        if best.x not in reach_a:
            region_a.readers = [r for r in self.a.consumers()[best.x] if r in reach_a]
        region_b = Region(before, best.y, before_of(before, best.y, reach_b), best.readers)
        return Found(region_a, region_b, best.value, best.own, repaired=best.fed)

    def open_end(
        self, reach_a: set[int], reach_b: set[int], roots_a: set[int], roots_b: set[int]
    ) -> Found | None:
        """The first operations alone, where no value of A's makes the rest meet."""
        if not reach_b:
            return None
        first_b = first(self.b, reach_b)
        first_a = first(self.a, reach_a) or sorted(roots_a)
        x, y = first_a[0], first_b[0]
        nothing = np.zeros(0)
        return Found(
            Region(self.a, x, before_of(self.a, x, reach_a)),
            Region(self.b, y, before_of(self.b, y, reach_b)),
            nothing,
            nothing,
            closed=False,
        )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)
