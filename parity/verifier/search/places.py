"""The places where two programs part: small regions downstream of which everything meets again.

Every value of B that does not meet, and every value that such an operation reads, is patched with values
of A, to see whether everything downstream then meets. The pair with the fewest operations before it is
the end of the fault; patched with A's value, B goes on to the next fault. A fault that is found later
but lies upstream of a place had made that place too large: the place is looked for again, with the
other fault repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from parity.measure.nearness import LEAST
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.elsewhere import same_elsewhere
from parity.verifier.search.ends import pairs_of
from parity.verifier.search.indices import of_an_index
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.origin import origin
from parity.verifier.search.pairing import Outputs, Pairs
from parity.verifier.search.region import Gap, before_of
from parity.verifier.search.round import Round
from parity.verifier.search.stages import stages
from parity.verifier.search.trials import Repair, Trial

ORDER_ROOM = 12
"""Operations by which a better repair may be larger than one that mends an order alone: an order that
changes here and back further on may be one operation along another axis between the two."""
ROOM = 1
LARGE = 16
"""Size of a place, in operations, from which values of B that meet shortly before it are tried, too."""
SAME = LEAST.norm
"""Relative distance up to which patching B with A's value changes nothing."""
WORK = 400_000
"""Operations run in trials for the end of one fault, as `Round.work` counts them, so that what is found
hangs on no clock. The outputs that a trial computes to see whether it mends them are not counted."""
MOST, MOST_WORK = 32, 2 * WORK
"""Most repairs that are made one after the other, and most operations run for all of them: where each
gradient is repaired by itself, of what only its own forward pass does wrongly."""


@dataclass(frozen=True)
class _Step:
    """A place, and how it was found."""

    before: Program
    """B, not yet patched with A's value there."""
    repair: Repair
    gap: Gap
    outputs: Outputs
    """The outputs upstream of which it was found."""


class Search:
    """Two programs, B patched with more and more of A's values."""

    def __init__(
        self, a: Program, b: Program, pairs: Pairs, on_gap: Callable[[Gap], object] | None = None
    ) -> None:
        """Begin; `on_gap` is told of a place as soon as it is known that there are others."""
        self.a, self.b, self._on_gap = a, b, on_gap
        self.outputs = Outputs(a, b, pairs)
        self.index = Index(a)
        self.repairs = 0
        """How many were made one after the other."""
        self.work = 0
        """Operations that were run for them."""
        self.stopped = False
        """Whether outputs still differ after `MOST` of them, or after `MOST_WORK`."""

    def unequal(self, b: Program | None = None) -> Pairs:
        """Return the pairs of outputs that differ."""
        return self.outputs.unequal(self.a, b or self.b)

    def places(self) -> list[Gap]:
        """Return the places where B parts from A, in B's order, each repaired before the next is found.

        Of several training steps, those of the first come first.
        """
        steps: list[_Step] = []
        ends: list[Gap] = []
        updates = [*stages(self.a, self.b, self.index)] if self.unequal() else []
        for outputs in [Outputs(self.a, self.b, pairs) for pairs in updates]:
            ends += self._stage(steps, outputs)
            self.b = self._level(outputs)
        ends += self._stage(steps, self.outputs)
        gaps = sorted((step.gap for step in steps), key=lambda gap: gap.b.end)
        return [*(gap for gap in gaps if not _is_of_a_sibling(gap, gaps)), *ends]

    def round(self, b: Program | None = None, outputs: Outputs | None = None) -> Round | None:
        """Return a round of B as it is now, or of `b`; None if the outputs, all or given, are equal."""
        b, outputs = b or self.b, outputs or self.outputs
        unequal = outputs.unequal(self.a, b)
        return Round(self.a, b, self.index, outputs, unequal) if unequal else None

    def _stage(self, steps: list[_Step], outputs: Outputs) -> list[Gap]:
        """Add the places upstream of some outputs to `steps`; return a place for which no end is found.

        What is wrong with the update of one parameter is wrong with others: all are repaired at once.

        Args:
            steps: the places so far.
            outputs: the outputs upstream of which to look.
        """
        known: list[Repair] = []
        while now := self.round(outputs=outputs):
            if self.repairs >= MOST or self.work > MOST_WORK:
                self.stopped = True
                break
            if self._on_gap is not None and steps:
                self._on_gap(steps[-1].gap)
            self.repairs += 1
            # what was repaired last comes again; of what was before, parameters alone
            before = [e for e in known[:-1] if now.b.maker(e.trial.y).kind == "parameter"]
            again = filter(None, (_repeated(now, each) for each in reversed([*before, *known[-1:]])))
            best = next(again, None) or _of_an_update(now) or of_an_index(now) or _best(now)
            self.work += now.work
            if best is None:
                return [now.open_end()]
            known = [*(each for each in known if not _is_same(now, each, best)), best]
            gap = now.gap(best)
            steps[:] = [*self._behind(gap, steps), _Step(self.b, best, gap, outputs)]
            self.b = best.fed
            for each in _others(now, best) or same_elsewhere(now, best):
                steps.append(_Step(now.b, each, now.gap(each), outputs))
                self.b = each.fed
        return []

    def _level(self, outputs: Outputs) -> Program:
        """Return B patched with A's values at the outputs that do not meet: the rest of a difference, or
        one too small to count, is not carried on."""
        a, b = self.a, self.b
        left = [
            (x, y) for x, y in outputs.pairs if a.operations[x] not in self.index.meets(b.operations[y])
        ]
        given = {}
        for x, y in left:
            own = b.values([y])[y]
            layouts = outputs.arrangements((x, y), a.values([x])[x])
            given[y] = min(layouts, key=lambda each, own=own: distance(each, own))
        return replace(b.fed(given, {}), repaired=frozenset()) if given or b.repaired else b

    def _behind(self, front: Gap, steps: list[_Step]) -> list[_Step]:
        """Return the places, looking again for those that have a fault upstream, with it repaired."""
        front = origin(front, self.index) if steps else front
        if not front.closed:
            return steps
        return [each for step in steps if (each := self._smaller(front, step)) is not None]

    def _smaller(self, front: Gap, step: _Step) -> _Step | None:
        """Look for a place again with another repaired: return it unchanged if that one does not lead to
        it, None if that one was all that was wrong."""
        b, y = step.before, front.b.end
        if y >= len(b) or step.repair.trial.y not in b.behind({y}):
            return step
        b = Trial(front.a.end, y, front.value_a, tuple(front.b.readers), front.siblings).feed(b)
        inside = {*step.gap.b.operations, *step.gap.b.readers}
        now = self.round(b, step.outputs)
        if now is None or not inside & now.unmet_b:
            return None
        best = _best(now, among=inside)
        if best is None or best.size >= step.repair.size:
            return step
        return _Step(b, best, now.gap(best), step.outputs)


def _is_of_a_sibling(gap: Gap, gaps: list[Gap]) -> bool:
    """Return whether a place is where an earlier one has a sibling, which was repaired with the value of
    the first of them, and is now given its own."""
    end = gap.b.program.operations[gap.b.end]
    if gap.b.end not in gap.b.program.repaired or gap.b.operations:
        return False
    firsts = (
        each.b.program.operations[each.b.end] for each in gaps if each.siblings and each is not gap
    )
    return any((op.name, op.source) == (end.name, end.source) for op in firsts)


def _of_an_update(now: Round) -> Repair | None:
    """Return the repair of an output that parts from A by element-wise operations alone, as a parameter
    does whose gradient is right; it is looked for among these alone."""
    for y, x in now.roots.items():
        if not _is_of_update(now, y):
            continue
        of_a, of_b = before_of(now.a, x, now.unmet_a), before_of(now.b, y, now.unmet_b)
        best = _best(now, _with_inputs(now.b, of_b), _with_inputs(now.a, of_a))
        if best is not None:
            return best
    return None


def _others(now: Round, first: Repair) -> list[Repair]:
    """Return repairs of the outputs that are computed, element by element, as the one repaired first:
    between the same lines, and of as many operations. B is patched with all of them."""
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
                (now.a, now.ends_a, set(before_of(now.a, x, now.unmet_a)), of_a),
                (program, now.ends_b, set(before_of(program, y, now.unmet_b)), of_b),
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
    """Return whether an output parts from A by element-wise operations alone."""
    size, operations = now.b.operations[y].size, now.b.operations
    return size > 1 and all(
        operations[i].size in (1, size) and operations[i].name not in ("matmul", "conv")
        for i in before_of(now.b, y, now.unmet_b)
    )


def _with_inputs(program: Program, operations: list[int]) -> set[int]:
    return {*operations, *(i for each in operations for i in program.operations[each].inputs)}


def _best(now: Round, among: set[int] | None = None, of_a: set[int] | None = None) -> Repair | None:
    """Return the repair that leaves the least of B apart from A, among the smallest; `among` limits the
    values of B that are tried, `of_a` those of A."""
    until = now.work + WORK
    best: Repair | None = None
    tried: set[tuple[int, ...]] = set()
    ends = [each for each in now.ends_b if among is None or each[0] in among]
    ends_a = [each for each in now.ends_a if of_a is None or each[0] in of_a]
    behind = {y for y, _ in ends if now.is_behind_another(y)}
    for some in ([e for e in ends if e[0] not in behind], [e for e in ends if e[0] in behind]):
        if best is not None and best.size <= LARGE:
            break
        for size, trial in _trials(now, some, tried, ends_a):
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


def _repeated(now: Round, last: Repair) -> Repair | None:
    """Return the last repair, repeated for another parameter or layer: between the same lines, and of
    as many operations."""
    before_a, before_b = now.a.operations[last.trial.x], now.b.operations[last.trial.y]
    ends_a = [each for each in now.ends_a if _is_again(now.a.operations[each[0]], before_a)]
    ends_b = [
        each
        for each in now.ends_b
        if _is_again(now.b.operations[each[0]], before_b) and not now.is_behind_another(each[0])
    ]
    for size, trial in _trials(now, ends_b, set(), ends_a) if ends_a and ends_b else ():
        if size == last.size and (repair := _better(now, trial, size, None)) is not None:
            return repair
    return None


def _is_same(now: Round, one: Repair, other: Repair) -> bool:
    """Return whether two repairs are one for two layers."""
    ends = [now.b.operations[each.trial.y] for each in (one, other)]
    return one.size == other.size and (ends[0].name, ends[0].source) == (ends[1].name, ends[1].source)


def _is_again(op: Operation, before: Operation) -> bool:
    return op.index != before.index and (op.name, op.source) == (before.name, before.source)


def _better(now: Round, trial: Trial, size: int, best: Repair | None) -> Repair | None:
    """Return the repair that a trial makes, or the best so far if that one is no worse."""
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
    """Yield A's values in every order that B's may have, those with few operations before them first.

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
        few = 1 < value.size < own.size
        if few and ((value == value.flat[0]).all() or now.b.maker(y).kind == "parameter"):
            continue  # a number does not stand for many, nor a vector for a matrix of weights
        for arrangement in arrangements(value, np.shape(own)):
            if np.array_equal(arrangement, own, equal_nan=arrangement.dtype.kind in "fc"):
                continue
            if few and not _is_repeated_too(arrangement, own):
                continue  # one token does not stand for all
            numbers = hash(arrangement.tobytes()), x if is_weak(now.a.operations[x]) else -1
            for trial in now.trials(x, y, arrangement):
                key = (y, hash(trial.readers), len(trial.siblings), *numbers)
                if key not in tried:
                    tried.add(key)
                    yield size_a + size_b, trial


def _is_repeated_too(value: np.ndarray, own: np.ndarray) -> bool:
    """Return whether B's own value is the same along each axis along which a value of A's is."""
    axes = [axis for axis, n in enumerate(value.shape) if n > 1 and _is_same_along(value, axis)]
    return all(_is_same_along(own, axis) for axis in axes)


def _is_same_along(value: np.ndarray, axis: int) -> bool:
    return bool((value == value.take([0], axis)).all())
