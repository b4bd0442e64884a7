"""Where two programs part: the smallest region behind which everything meets again.

Of every unmet value of B, and of every value that an unmet operation reads, it is tried whether one of
A's in its place makes everything behind it meet. The pair with the fewest operations before it is the
fault's end; fed with A's value, B goes on to the next fault. One found later that lies in front of a
place had made that place larger than its own fault is: it is looked for again, the other repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from parity.measure.nearness import LEAST
from parity.verifier.operations.ends import pairs_of
from parity.verifier.operations.layouts import arrangements
from parity.verifier.operations.meeting import Index, is_weak
from parity.verifier.operations.origin import origin
from parity.verifier.operations.pairing import Outputs, Pairs
from parity.verifier.operations.program import Operation, Program
from parity.verifier.operations.region import Found, before_of, distance
from parity.verifier.operations.round import Round
from parity.verifier.operations.stages import stages
from parity.verifier.operations.trials import Repair, Trial

ORDER_ROOM = 12
"""Operations by which a better repair may be larger, where one mends an order alone: another order here
and the order back further on may be one operation along another axis between the two."""
ROOM = 1
LARGE = 16
"""Operations of a place from which on values of B that meet, a little before it, are tried, too."""
SAME = LEAST.norm
"""Relative distance up to which A's value in the place of B's changes nothing."""
WORK = 400_000
"""Operations run in trials for the end of one fault, as `Round.work` counts them; about 20 seconds of
one processor. What is found hangs on no clock."""
MOST = 32
"""Repairs that are made one after the other."""


@dataclass(frozen=True)
class _Step:
    """A place, and how it was found."""

    before: Program
    """B, not yet fed with A's value there."""
    repair: Repair
    found: Found
    outputs: Outputs
    """Those in front of which it was found."""


class Search:
    """Two programs, B fed with more and more of A's values."""

    def __init__(self, a: Program, b: Program, pairs: Pairs) -> None:
        self.a, self.b = a, b
        self.outputs = Outputs(a, b, pairs)
        self.index = Index(a)
        self.repairs = 0
        """How many were made one after the other."""

    def unequal(self, b: Program | None = None) -> Pairs:
        """The pairs of outputs that differ."""
        return self.outputs.unequal(self.a, b or self.b)

    def places(self) -> list[Found]:
        """The places where B parts from A, in B's order, each repaired before the next is looked for.

        Of several training steps, those of the first come first.
        """
        steps: list[_Step] = []
        ends: list[Found] = []
        updates = [*stages(self.a, self.b, self.index)] if self.unequal() else []
        for outputs in [Outputs(self.a, self.b, pairs) for pairs in updates]:
            ends += self._stage(steps, outputs)
            self.b = self._level(outputs)
        ends += self._stage(steps, self.outputs)
        return [*sorted((step.found for step in steps), key=lambda found: found.b.end), *ends]

    def round(self, b: Program | None = None, outputs: Outputs | None = None) -> Round | None:
        """B as it is now, or another, beside A; None if all outputs are equal, or all that are given."""
        b, outputs = b or self.b, outputs or self.outputs
        unequal = outputs.unequal(self.a, b)
        return Round(self.a, b, self.index, outputs, unequal) if unequal else None

    def _stage(self, steps: list[_Step], outputs: Outputs) -> list[Found]:
        """Add the places in front of some outputs; where no end is found, that is returned.

        What is wrong with the update of one parameter is so with that of others: all are repaired at
        once.

        Args:
            steps: the places so far.
            outputs: what the places are in front of.
        """
        best: Repair | None = None
        while self.repairs < MOST and (now := self.round(outputs=outputs)):
            self.repairs += 1
            best = best and _alike(now, best)
            best = best or _of_an_update(now) or _best(now)
            if best is None:
                return [now.open_end()]
            found = now.found(best)
            steps[:] = [*self._behind(found, steps), _Step(self.b, best, found, outputs)]
            self.b = best.fed
            for each in _others(now, best):
                steps.append(_Step(now.b, each, now.found(each), outputs))
                self.b = each.fed
        return []

    def _level(self, outputs: Outputs) -> Program:
        """B with A's values where outputs stand that do not meet: what is left of a difference, or is
        too small to be one, is not carried on."""
        a, b = self.a, self.b
        left = [
            (x, y) for x, y in outputs.pairs if a.operations[x] not in self.index.meets(b.operations[y])
        ]
        given = {}
        for x, y in left:
            own = b.values([y])[y]
            ways = outputs.ways((x, y), a.values([x])[x])
            given[y] = min(ways, key=lambda way, own=own: distance(way, own))
        return replace(b.fed(given, {}), repaired=frozenset()) if given or b.repaired else b

    def _behind(self, front: Found, steps: list[_Step]) -> list[_Step]:
        """The places, those that have a fault in front of them looked for again without it."""
        front = origin(front, self.index) if steps else front
        if not front.closed:
            return steps
        return [each for step in steps if (each := self._smaller(front, step)) is not None]

    def _smaller(self, front: Found, step: _Step) -> _Step | None:
        """A place as it is with another repaired: itself if that one does not lead there, None if that
        one was all that was wrong."""
        b, y = step.before, front.b.end
        if y >= len(b) or step.repair.trial.y not in b.behind({y}):
            return step
        b = Trial(front.a.end, y, front.value, tuple(front.b.readers), front.twins).feed(b)
        inside = {*step.found.b.operations, *step.found.b.readers}
        now = self.round(b, step.outputs)
        if now is None or not inside & now.reach_b:
            return None
        best = _best(now, among=inside)
        if best is None or best.size >= step.repair.size:
            return step
        return _Step(b, best, now.found(best), step.outputs)


def _of_an_update(now: Round) -> Repair | None:
    """The repair of an output that parts from A by what is computed of it element by element alone, as a
    parameter does whose gradient is right; looked for there alone."""
    for y, x in now.roots.items():
        if not _is_of_update(now, y):
            continue
        of_a, of_b = before_of(now.a, x, now.reach_a), before_of(now.b, y, now.reach_b)
        best = _best(now, _with_inputs(now.b, of_b), _with_inputs(now.a, of_a))
        if best is not None:
            return best
    return None


def _others(now: Round, first: Repair) -> list[Repair]:
    """Repairs of the outputs that are computed as the one that is repaired first is, element by element
    from there on: between the same lines, and of as many operations. B is fed with all of them."""
    program, trials = now.b, [first.trial]
    behind = now.b.behind(first.trial.places)
    if first.trial.readers or not any(_is_of_update(now, y) for y in behind & now.roots.keys()):
        return []
    of_a, of_b = now.a.operations[first.trial.x], program.operations[first.trial.y]
    for y, x in now.roots.items():
        if y in behind or not _is_of_update(now, y):
            continue
        ends = [
            [each for each in ends if each[0] in among and _is_again(of.operations[each[0]], op)]
            for of, ends, among, op in (
                (now.a, now.ends_a, set(before_of(now.a, x, now.reach_a)), of_a),
                (program, now.ends_b, set(before_of(program, y, now.reach_b)), of_b),
            )
        ]
        tried = _trials(now, ends[1], set(), ends[0]) if all(ends) else ()
        trial = next((t for size, t in tried if size == first.size and now.closes(t)), None)
        trials += [trial] if trial is not None else []
    given = {i: trial.at(program, i) for trial in trials for i in trial.places}
    fed = program.fed(given, {}) if len(trials) > 1 else first.fed
    return [
        replace(first, trial=each, own=now.window[each.y], fed=fed, order=False) for each in trials[1:]
    ]


def _is_of_update(now: Round, y: int) -> bool:
    """Whether an output parts from A by what is computed of it element by element alone."""
    size, operations = now.b.operations[y].size, now.b.operations
    return size > 1 and all(
        operations[i].size in (1, size) and operations[i].name not in ("matmul", "conv")
        for i in before_of(now.b, y, now.reach_b)
    )


def _with_inputs(program: Program, operations: list[int]) -> set[int]:
    return {*operations, *(i for each in operations for i in program.operations[each].inputs)}


def _best(now: Round, among: set[int] | None = None, of_a: set[int] | None = None) -> Repair | None:
    """The repair that leaves the least of B apart from A, among the smallest; of some values of B alone,
    or of any, and by some of A's alone, or by any."""
    until = now.work + WORK
    best: Repair | None = None
    tried: set[tuple[int, ...]] = set()
    ends = [each for each in now.ends_b if among is None or each[0] in among]
    ends_a = [each for each in now.ends_a if of_a is None or each[0] in of_a]
    for size, trial in _trials(now, ends, tried, ends_a):
        if best is not None:
            room = ORDER_ROOM if best.order and best.left else ROOM
            if not best.left or size > best.size + room:
                break
        best = _better(now, trial, size, best)
        if now.work > until:
            break
    if among is None and (best is None or best.size > LARGE):
        for size, trial in _trials(now, now.before_b(), tried):
            if (best is not None and size >= best.size) or now.work > until:
                break
            best = _better(now, trial, size, best)
    return best


def _alike(now: Round, last: Repair) -> Repair | None:
    """The repair of another parameter, or of another layer, that is the last one again: between the same
    lines, and of as many operations."""
    before_a, before_b = now.a.operations[last.trial.x], now.b.operations[last.trial.y]
    ends_a = [each for each in now.ends_a if _is_again(now.a.operations[each[0]], before_a)]
    ends_b = [each for each in now.ends_b if _is_again(now.b.operations[each[0]], before_b)]
    for size, trial in _trials(now, ends_b, set(), ends_a) if ends_a and ends_b else ():
        if size == last.size and (found := _better(now, trial, size, None)) is not None:
            return found
    return None


def _is_again(op: Operation, before: Operation) -> bool:
    return op.index != before.index and (op.name, op.source) == (before.name, before.source)


def _better(now: Round, trial: Trial, size: int, best: Repair | None) -> Repair | None:
    """The repair that a trial is, or the best so far."""
    own = now.window[trial.y]
    if not now.closes(trial) or distance(trial.value, own) <= SAME:
        return best
    repair = now.repair(trial, size)
    if repair is None or (best is not None and best.rank <= repair.rank):
        return best
    return repair


def _trials(
    now: Round,
    ends_b: list[tuple[int, int]],
    tried: set[tuple[int, ...]],
    ends_a: list[tuple[int, int]] | None = None,
) -> Iterator[tuple[int, Trial]]:
    """A's values in every order that B's may have, those with few operations before them first.

    The same numbers in the same place are tried once: A has them in several layouts.
    """
    ends_a = now.ends_a if ends_a is None else ends_a
    values = now.a.values([each for each, _ in ends_a])
    for size_a, size_b, x, y in pairs_of(now.a, now.b, ends_a, ends_b):
        value, own = values[x], now.window.get(y)
        if own is None or not isinstance(value, np.ndarray):
            continue
        if value.size == 1 and is_weak(now.a.operations[x]) and not is_weak(now.b.operations[y]):
            continue  # a one in the place of a norm undoes the division by it, and mends nothing
        if 1 < value.size < own.size and (value == value.flat[0]).all():
            continue  # a number does not stand for many
        for way in arrangements(value, np.shape(own)):
            if np.array_equal(way, own, equal_nan=way.dtype.kind in "fc"):
                continue
            numbers = hash(way.tobytes()), x if is_weak(now.a.operations[x]) else -1
            for trial in now.trials(x, y, way):
                key = (y, hash(trial.readers), len(trial.twins), *numbers)
                if key not in tried:
                    tried.add(key)
                    yield size_a + size_b, trial
