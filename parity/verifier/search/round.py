"""A round of the search: B as patched so far, beside A; what does not meet, and what mends it."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Any

import numpy as np

from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.program import Program, RunPlan
from parity.verifier.search.constants import constants_of
from parity.verifier.search.ends import ends_of, spread, window_of
from parity.verifier.search.frontier import false_meetings
from parity.verifier.search.meeting import Index, add_movers, is_weak, meet, neutral, noise, repeated
from parity.verifier.search.pairing import Outputs, Pairs
from parity.verifier.search.region import Gap, Region, before_of, first, recurrent, stack_of
from parity.verifier.search.trials import Repair, Siblings, Trial, wipes

DEPTH = 14
"""Operations downstream of a patched value within which all must meet again."""
SURE = 3
"""Operations in a row that must meet downstream of a patched value."""
LARGE = 4096
"""Numbers that take as long as running an operation does."""
NEARBY = 4
"""Operations by which a value may lie before the first that do not meet and still repair B: always for
A's values, for B's where the place is large without."""


def _read(program: Program, end: int, among: set[int]) -> set[int]:
    """Return the values outside of `among` from which a value is computed; the value itself if there
    are none."""
    inside = before_of(program, end, among)
    return {i for each in inside for i in program.operations[each].inputs} - set(inside) or {end}


def _says_little(value: np.ndarray) -> bool:
    """Return whether a value is one number many times over, or nothing but signs: other values are so by
    chance."""
    if value.size < 2 or value.dtype.kind != "f":
        return False
    return bool((value == value.flat[0]).all() or np.isin(value, (-1.0, 0.0, 1.0)).all())


class Round:
    """The state of the search until B is patched with the next value."""

    def __init__(self, a: Program, b: Program, index: Index, outputs: Outputs, unequal: Pairs) -> None:
        self.a, self.b, self.index, self.outputs = a, b, index, outputs
        met, noisy = meet(b.operations, index), noise(b)
        self.lookalikes = false_meetings(a, b, met, {y for _, y in unequal}, noisy)
        for each in self.lookalikes:
            del met[each]
        met_b = set(met) | noisy
        met_a = {each for partners in met.values() for each in partners} | noise(a)
        self.roots_a = {x for x, _ in unequal}
        self.roots = {y: x for x, y in unequal}
        self.unmet_a = a.upstream(self.roots_a, met_a - self.roots_a)
        self.neutral = neutral(a, b, met, self.unmet_a)
        met_b -= add_movers(b, self.neutral | repeated(a, b, met))
        self.unmet_b = b.upstream(self.roots, met_b - set(self.roots))
        self.live = b.upstream(self.roots)
        self.readers = b.consumers()
        self.readers_a = a.consumers()
        self.recurrent = recurrent(b, self.readers)
        self.constants = constants_of(b) - b.repaired - b.behind(b.repaired)
        self.ends_a = ends_of(a, self.unmet_a, self.roots_a, NEARBY)
        self.ends_b = [*spread(b, self.unmet_b), *ends_of(b, self.unmet_b, set(self.roots))]
        self.siblings = Siblings(b, self.readers, self.unmet_b | {index for index, _ in self.ends_b})
        self.window = b.values(sorted(window_of(b, self.ends_b)))
        self.work = 0
        """Operations that trials have run; a large one counts as several, `LARGE` numbers each."""
        self._follow: dict[int, tuple[set[int], set[int]]] = {}
        self._before: dict[int, set[int]] = {}
        self._plans: dict[
            tuple[tuple[int, ...], tuple[int, ...]], list[tuple[list[tuple[int, int]], RunPlan]]
        ] = {}
        """How the outputs downstream of a trial's places are computed: the nearest, and the others."""
        self._downstream: dict[tuple[int, bool], set[int]] = {}

    def before_b(self) -> list[tuple[int, int]]:
        """List the values of B that meet, up to `NEARBY` operations before those that do not."""
        known = {y for y, _ in self.ends_b}
        near = ends_of(self.b, self.unmet_b, set(self.roots), NEARBY)
        ends = [(y, size) for y, size in near if y not in known]
        self.look_up(y for y, _ in ends)
        return ends

    def trials(self, x: int, y: int, value: np.ndarray) -> list[Trial]:
        """List the ways to patch B with a value of A's in place of one of B's.

        A value that does not meet is replaced. One that does is read by mistake: by those of its
        consumers that do not meet; or by all, if B lacks A's value: what they compute may meet another
        of A's by chance, as the normalised input of a block that another block normalises alike.
        """
        if y in self.unmet_b:
            siblings = self.siblings.of(y)
            together = [Trial(x, y, value, (), siblings)] if siblings else []
            return [*together, Trial(x, y, value, ())]
        if self.neutral and self.neutral.issuperset(self.reading((y,), self.unmet_b) or (-1,)):
            return []  # what is added to it is wrong
        trials: dict[tuple[int, ...], Trial] = {}
        for among in (self.unmet_b, self.live) if x in self.unmet_a else (self.unmet_b,):
            siblings = tuple(each for each in self.siblings.of(y) if self.reading((each,), among))
            for others in (siblings, ()) if siblings else ((),):
                readers = self.reading((y, *others), among)
                trials.setdefault(readers, Trial(x, y, value, readers, others))
        trials.pop((), None)
        return list(trials.values())

    def is_behind_another(self, y: int) -> bool:
        """Return whether a parameter of B that meets, or one layer's of a stack, is read beside others
        alone that do not, and that it does not lead to: what reads it is wrong without it, and meets
        once that is repaired. Of many layers, each would else be tried in the place of every other one
        of its shape."""
        if y in self.unmet_b or stack_of(self.b, y).kind != "parameter":
            return False
        behind = self.downstream(y, self.unmet_b)
        return all(
            any(i in self.unmet_b and i not in behind for i in self.b.operations[reader].inputs)
            for reader in self.reading((y,), self.unmet_b)
        )

    def reading(self, values: Collection[int], among: set[int]) -> tuple[int, ...]:
        """Return the operations of a set that read any of some values."""
        readers = (r for each in values for r in self.readers[each] if r in among)
        return tuple(dict.fromkeys(readers))

    def closes(self, trial: Trial) -> bool:
        """Return whether everything downstream of a value of B meets once it is patched with A's value.

        A value may meet by chance, such as x / 2 in both forms of GELU; then what reads it does not. So
        `SURE` operations in a row must meet, and one of them must read something else, such as a
        parameter, unless A's value is B's in another order: two blocks may normalise alike what they
        then weight differently. After `SURE` of them, an operation that reads something else computed
        may differ by another fault: its other operand is neither upstream nor downstream of B's value,
        and may be wrong itself.

        What B computes from A's value must meet what A computes from it: x + a - a is not a + x. To meet
        that value itself says nothing, as for the old state of a cell, mixed with itself. A repeated
        value of A does not close if B has it back by a mean over equal numbers: B's mean is passed over.

        Where the consumers of the value meet, but much downstream does not, the rest may be written
        otherwise, as a hand-made backward pass is: then all outputs downstream must be equal.
        """
        if wipes(trial, self.a, self.b, self.readers_a, self.readers):
            return False
        y, (equal, follows) = trial.y, self.follows(trial.x)
        among = (
            self.live if trial.readers and not self.unmet_b.issuperset(trial.readers) else self.unmet_b
        )
        downstream, before = self.downstream(y, among), self.before(y)
        for sibling in trial.siblings:
            downstream = downstream | self.downstream(sibling, among)
            before = before | self.before(sibling)
        known: dict[int, Any] = {each: trial.at(self.b, each) for each in trial.places}
        row: dict[int, int] = dict.fromkeys(trial.places, 0)
        """How many operations in a row have met, and whether one of them read something else."""
        order = self.a.operations[trial.x] in self.index.meets(self.b.operations[y])
        beside: dict[int, bool] = dict.fromkeys(trial.places, order)
        again: dict[int, bool] = dict.fromkeys(trial.places, False)
        """Whether one of them read what every step of a loop reads."""
        queue: list[int] = []
        seen: set[int] = set()

        def follow(readers: Collection[int]) -> None:
            for reader in readers:
                if reader in among and reader not in seen:
                    seen.add(reader)
                    heapq.heappush(queue, reader)

        if not trial.readers and y in self.roots and not self.equals_output(y, trial.value):
            return False
        follow(trial.readers or [r for each in trial.places for r in self.readers[each]])
        misses, at_once = 0, 0
        spread_out = self.a.operations[trial.x].size < trial.value.size
        while queue:
            index = heapq.heappop(queue)
            op = self.b.operations[index]
            inputs = op.inputs
            if any(i not in known and i in downstream for i in inputs):
                continue  # it also reads what lies further behind
            self.look_up(i for i in inputs if i not in known)
            operands = {i: known[i] if i in known else self.window[i] for i in inputs}
            try:
                result = self.b.apply(op, operands, {})
            except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
                return False  # what is fed may be no operand, such as an index out of range
            known[index] = result
            self.work += 1 + op.size // LARGE
            if index in self.roots and not self.equals_output(index, result):
                return False
            may_meet = isinstance(result, np.ndarray) and self.index.may_have(result)
            mark = fingerprint(result) if may_meet else None
            partners = {e.index for e in self.index.meets(op, mark)} if may_meet else set()
            if partners & follows:
                if spread_out and partners <= equal and result.size < trial.value.size:
                    return False
                counts = not op.is_layout and not partners <= equal and not _says_little(result)
                row[index] = min(row[i] for i in inputs if i in row) + counts
                beside[index] = any(beside.get(i, self.tells(i)) for i in inputs)
                again[index] = any(again.get(i, self.recurs(i)) for i in inputs)
                if row[index] < SURE or not beside[index]:
                    follow(self.readers[index])
                continue
            other = [i for i in op.inputs if i not in known and i not in before and self.is_computed(i)]
            fed = [i for i in op.inputs if i in row]
            blamed = any(i in self.unmet_b for i in other) or not any(again[i] for i in fed)
            if other and blamed and all(row[i] >= SURE for i in fed):
                continue
            row[index], beside[index], again[index] = 0, order, False
            misses += not op.is_layout
            at_once += any(i in trial.places for i in inputs)
            if misses > DEPTH:
                return not at_once and self.mends(trial, downstream)
            follow(self.readers[index])
        return True

    def mends(self, trial: Trial, downstream: Collection[int]) -> bool:
        """Return whether patching a value makes all outputs downstream of it A's."""
        given, edges = trial.patches(self.b)
        key = trial.places, trial.readers
        if key not in self._plans:
            ends = sorted((y, x) for x, y in self.outputs.pairs if y in downstream)
            parts = ends[:1], ends[1:]  # the nearest alone: most trials fail there
            self._plans[key] = [
                (some, self.b.plan([y for y, _ in some], given, edges)) for some in parts
            ]
        for some, plan in self._plans[key]:
            values = self.b.run(plan, [y for y, _ in some], given, edges)
            of_a = self.a.values([x for _, x in some])
            if not all(self.outputs.equal((x, y), of_a[x], values[y]) for y, x in some):
                return False
        return True

    def look_up(self, indices: Any) -> None:
        """Add values of B to the window, those that no trial has read before."""
        missing = [i for i in indices if i not in self.window]
        if missing:
            self.window.update(self.b.values(missing))

    def tells(self, index: int) -> bool:
        """Whether a value tells where in a program it is read: a parameter does, and a constant that is
        read once, as a gain that a function finds outside; what is made of constants does not."""
        made = self.b.maker(index)
        if made.kind == "constant":
            return len(self.readers[made.index]) == 1 and not is_weak(made)
        return index not in self.constants and not self.recurs(index)

    def recurs(self, index: int) -> bool:
        """Whether a value is a parameter that one line reads again and again, as a cell in time does."""
        return self.b.maker(index).index in self.recurrent

    def follows(self, x: int) -> tuple[set[int], set[int]]:
        """Return the values of A with the numbers of one, and these with all that depends on them."""
        if x not in self._follow:
            equal = {x, *(each.index for each in self.index.meets(self.a.operations[x]))}
            self._follow[x] = equal, equal | self.a.behind(equal)
        return self._follow[x]

    def is_computed(self, index: int) -> bool:
        """Whether a value is more than a parameter, an input or a constant in some layout."""
        made = self.b.maker(index)
        return made.run is not None and bool(made.inputs)

    def before(self, y: int) -> set[int]:
        """Return the operations of B that lead to a value."""
        if y not in self._before:
            self._before[y] = set(before_of(self.b, y, set(range(len(self.b)))))
        return self._before[y]

    def downstream(self, y: int, among: set[int]) -> set[int]:
        """Return the operations of a set that a value leads to."""
        key = (y, among is self.live)
        if key not in self._downstream:
            behind, stack = set(), [y]
            while stack:
                for reader in self.readers[stack.pop()]:
                    if reader in among and reader not in behind:
                        behind.add(reader)
                        stack.append(reader)
            self._downstream[key] = behind
        return self._downstream[key]

    def equals_output(self, index: int, value: Any) -> bool:
        """Return whether a value equals A's counterpart of an output of B."""
        x = self.roots[index]
        return self.outputs.equal((x, index), self.a.values([x])[x], value)

    def repair(self, trial: Trial, size: int) -> Repair | None:
        """Return the repair that a trial makes; None if it mends nothing, or B parts right after it."""
        x, y, fed = trial.x, trial.y, trial.feed(self.b)
        self.work += len(fed)
        roots = {each for _, each in self.outputs.unequal(self.a, fed)}
        partners, noisy = meet(fed.operations, self.index), noise(fed)
        as_before = self.lookalikes - self.b.behind(set(trial.places))
        partners = {i: several for i, several in partners.items() if i not in as_before}
        for each in false_meetings(self.a, fed, partners, roots, noisy):
            del partners[each]
        after = fed.upstream(roots, (set(partners) | noisy) - roots)
        if len(after) >= len(self.unmet_b):
            return None  # it mends nothing: a norm yields the same of a value and of that value centred
        explains = any(each in self.unmet_a for some in partners.values() for each in some)
        if not explains and len(roots) == len(self.roots):
            return None  # B computes once more what it has: with a rate of 0, the step before
        for each in trial.readers or [r for r in self.readers[y] if r in self.unmet_b]:
            if each in after and not any(i in after for i in fed.operations[each].inputs):
                return None
        order = not size and self.a.operations[x] in self.index.meets(self.b.operations[y])
        return Repair(trial, self.window[y], fed, size, len(after), order, self.strange(x, y))

    def strange(self, x: int, y: int) -> int:
        """Count the values that B reads before an end and A does not read before its own."""
        of_a = _read(self.a, x, self.unmet_a)
        of_b = [self.b.operations[i] for i in _read(self.b, y, self.unmet_b)]
        return sum(
            not is_weak(op) and not any(each.index in of_a for each in self.index.meets(op))
            for op in of_b
        )

    def gap(self, repair: Repair) -> Gap:
        """Return the gap that a repair closes."""
        trial = repair.trial
        x, y = trial.x, trial.y
        region_a = Region(self.a, x, before_of(self.a, x, self.unmet_a))
        if x not in self.unmet_a:
            region_a.readers = [r for r in self.a.consumers()[x] if r in self.unmet_a]
        region_b = Region(self.b, y, before_of(self.b, y, self.unmet_b), list(trial.readers))
        fed, siblings = repair.fed, trial.siblings
        return Gap(region_a, region_b, trial.value, repair.own, repaired=fed, siblings=siblings)

    def open_end(self) -> Gap:
        """Return a gap with the first operations alone, where no value of A's makes the rest meet."""
        x = (first(self.a, self.unmet_a) or sorted(self.roots_a))[0]
        y = (first(self.b, self.unmet_b) or sorted(self.roots))[0]
        region_a = Region(self.a, x, before_of(self.a, x, self.unmet_a))
        region_b = Region(self.b, y, before_of(self.b, y, self.unmet_b))
        return Gap(region_a, region_b, np.zeros(0), np.zeros(0), closed=False)
