"""Whole numbers by which rows are read, such as relative positions, that B has in another order.

Values meet in any order, so tables that are read by a transposed index meet, and what is computed from
them does not. Where several tables are read by one index, none of them alone explains B. The index is
exchanged for A's, for all that read it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.shown import first_three
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import arrangements
from parity.verifier.search.round import Round
from parity.verifier.search.trials import Repair, Trial

FEWEST = 4
"""Fewest numbers of an index that is exchanged."""
LARGEST = 1 << 18
MOST_STEPS = 64
"""Most operations between an index and the first that does not meet."""
MOST_TRIALS = 24
_READERS = frozenset(["gather", "index_select", "take"])


def of_an_index(now: Round) -> Repair | None:
    """Return the repair that exchanges one index of B, after which what is computed from the rows read
    by it is A's; the first index if there are several."""
    candidates = [y for y in _indices(now.b) if y not in now.unmet_b]
    of_a = _by_numbers(now.a) if candidates else {}
    tried = 0
    for y in candidates:
        own = _whole(now.b, y)
        held = of_a.get(_numbers(own), [])
        if not held or any(np.array_equal(value.ravel(), own.ravel()) for _, value in held):
            continue
        if _is_written(now.b, y) and len(_readers(now.b, y)) < 2:
            continue  # the one value whose rows it reads says as much
        shown = tuple(now.readers[y]) if now.b.operations[y].source is None else ()
        first = _first_unmet(now, y)
        now.look_up([y])
        repairs = []
        for x, value in held if first else ():
            for arrangement in arrangements(value, own.shape):
                tried += 1
                if tried > MOST_TRIALS or np.array_equal(arrangement, own):
                    continue
                value = arrangement.astype(own.dtype)
                if _mends(now, y, value, first):
                    repairs.append(now.repair(Trial(x, y, value, shown), 0))
        found = [each for each in repairs if each is not None]
        if found:
            return min(found, key=lambda each: each.rank)
    return None


def read_by(program: Program, index: int) -> str:
    """Say which values have their rows read by a value; empty where none have."""
    tables = [program.maker(op.inputs[0]) for op in _readers(program, index)]
    names = [each.label if each.run is None else str(each.source or each.name) for each in tables]
    return first_three([*dict.fromkeys(filter(None, names))])


def _readers(program: Program, index: int) -> list[Operation]:
    """Return the operations that read rows by a value, or by what is computed from it."""
    if not _is_whole(program.operations[index]):
        return []
    behind = {index, *program.behind({index})}
    return [
        op for op in program.operations[index:]
        if op.name in _READERS and op.index in behind and behind.intersection(op.inputs[1:])
    ]  # fmt: skip


def _indices(program: Program) -> list[int]:
    """Return the whole numbers by which rows are read, and those that they are computed from."""
    indices: set[int] = set()
    for op in reversed(program.operations):
        read = op.inputs[1:] if op.name in _READERS else op.inputs if op.index in indices else ()
        indices.update(i for i in read if _is_whole(program.operations[i]))
    return sorted(
        i for i in indices
        if FEWEST <= program.operations[i].size <= LARGEST and program.operations[i].kind != "input"
    )  # fmt: skip


def _is_written(program: Program, index: int) -> bool:
    """Return whether a value is a constant, moved or converted."""
    made = program.maker(index)
    while made.name == "convert":
        made = program.maker(made.inputs[0])
    return made.kind == "constant"


def _is_whole(op: Operation) -> bool:
    return op.mark is not None and op.dtype[:3] in ("int", "uin")


def _whole(program: Program, index: int) -> np.ndarray:
    return np.asarray(program.values([index])[index])


def _numbers(value: np.ndarray) -> bytes:
    return np.sort(value, axis=None).astype(np.int64).tobytes()


def _by_numbers(a: Program) -> dict[bytes, list[tuple[int, np.ndarray]]]:
    """Return the indices of A by their numbers, the same in the same order once."""
    found: dict[bytes, list[tuple[int, np.ndarray]]] = {}
    for x in _indices(a):
        value = _whole(a, x)
        held = found.setdefault(_numbers(value), [])
        if not any(np.array_equal(each, value) for _, each in held):
            held.append((x, value))
    return found


def _first_unmet(now: Round, y: int) -> list[int]:
    """Return the first operations behind an index that do not meet."""
    return [*dict.fromkeys(_unmet_behind(now, y))]


def _unmet_behind(now: Round, y: int) -> Iterator[int]:
    stack, seen = [y], {y}
    while stack and len(seen) < MOST_STEPS:
        for reader in now.readers[stack.pop()]:
            if reader in now.unmet_b:
                yield reader
            elif reader not in seen:
                stack.append(reader)
            seen.add(reader)


def _mends(now: Round, y: int, value: np.ndarray, first: list[int]) -> bool:
    """Return whether operations that did not meet do so with another value of an index: one at least,
    and all that read nothing else that does not meet."""
    try:
        results = now.b.values(first, {y: value})
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return False  # other numbers may be out of range
    met = {each for each, result in results.items() if _meets(now, each, result)}
    beside = (
        any(i in now.unmet_b and i not in first for i in now.b.operations[each].inputs)
        for each in first if each not in met
    )  # fmt: skip
    return bool(met) and all(beside)


def _meets(now: Round, index: int, result: np.ndarray) -> bool:
    if index in now.roots:
        return now.equals_output(index, result)
    return bool(now.index.meets(now.b.operations[index], fingerprint(result)))
