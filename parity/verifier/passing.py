"""Lines at which one program alone stops gradients, found by recording it with gradients that pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product

from parity.measure.shown import first_three
from parity.verifier.causes.slopes import DETACHED, NOT_DETACHED
from parity.verifier.programs.backward import GRADIENT
from parity.verifier.programs.fingerprint import same
from parity.verifier.programs.operation import Operation, Source
from parity.verifier.programs.program import Program
from parity.verifier.programs.stops import Stop, Where
from parity.verifier.report.comparison import Place, PlaceSide
from parity.verifier.report.formula import Letters
from parity.verifier.report.sides import Line
from parity.verifier.search.exchange import upstream
from parity.verifier.search.nearness import measure
from parity.verifier.search.pairing import Outputs, Paired
from parity.verifier.search.region import Region, computing_with
from parity.verifier.search.rounding import align

MOST_LINES = 8
"""Most lines of a program that are tried, each alone; the program is recorded once for each."""
MOST_TOGETHER = 6
"""Most pairs of lines, one of each program, that are tried together."""
NEAR = 200
"""Operations before a sum among which its value is looked for."""
_Pairing = Callable[[Program, Program], Paired]
_Errors = dict[str, float]
"""Relative errors of the outputs that differ, by their paths in A."""
_Opened = tuple[tuple[Where, ...], tuple[Where, ...]]
"""The lines of A, and those of B, at which gradients pass."""


@dataclass(frozen=True)
class Recordings:
    """Two programs that stop gradients, and how to record them with gradients that pass."""

    stops: tuple[Mapping[Where, Stop], Mapping[Where, Stop]]
    """The lines of each program at which gradients stop."""
    again: Callable[[int, Collection[Where]], Program]
    """Records A (0) or B (1) with gradients that pass at some lines."""


@dataclass(frozen=True)
class Found:
    """A line that makes outputs equal if gradients pass it."""

    side: int
    """Whose line it is: 0 for A, 1 for B."""
    where: Where
    stop: Stop
    pair: tuple[Program, Program]
    """Both programs as they were recorded first."""
    errors: _Errors
    """Of the outputs that it makes equal."""


def with_gradients_that_pass(
    a: Program, b: Program, pair: _Pairing, recordings: Recordings
) -> tuple[Program, Program, list[Found]]:
    """Return the programs with gradients that pass where the other's do, and what stopped them.

    A line is found if, with gradients that pass there, fewer outputs differ, and none that did not.
    """
    if not any(recordings.stops):
        return a, b, []
    stops = tuple(
        {where: each for where, each in mine.items() if not _only_redirects(program, where, each)}
        for program, mine in zip((a, b), recordings.stops, strict=True)
    )
    found: list[Found] = []
    programs, opened = (a, b), ((), ())
    errors = _unequal(a, b, pair)
    while errors:
        for lines in _choices(stops[0], stops[1], opened):
            now: _Opened = tuple((*opened[k], *lines[k]) for k in (0, 1))  # type: ignore[assignment]
            try:
                both = tuple(recordings.again(k, now[k]) if lines[k] else programs[k] for k in (0, 1))
            except Exception:  # what is detached for NumPy, for instance, must be
                continue
            left = _unequal(both[0], both[1], pair)
            if left.keys() < errors.keys():
                gone = {path: error for path, error in errors.items() if path not in left}
                found += [
                    Found(k, each, stops[k][each], (a, b), gone) for k in (0, 1) for each in lines[k]
                ]
                programs, opened, errors = both, now, left
                break
        else:
            break
    return programs[0], programs[1], found


def _choices(
    stops_a: Collection[Where], stops_b: Collection[Where], opened: _Opened
) -> Iterator[_Opened]:
    """Yield lines to try: each of B's, each of A's, then one of each."""
    of_a, of_b = (
        list(islice((each for each in mine if each not in opened[k]), MOST_LINES))
        for k, mine in enumerate((stops_a, stops_b))
    )
    yield from (((), (each,)) for each in of_b)
    yield from (((each,), ()) for each in of_a)
    yield from islice((((x,), (y,)) for x, y in product(of_a, of_b)), MOST_TOGETHER)


def _only_redirects(program: Program, where: Where, stop: Stop) -> bool:
    """Return whether a gradient stops only to be another one: y + (x - stop_gradient(x)) is y, with the
    gradients of both."""
    readers = program.consumers()
    for op in _stopped(program, where, stop):
        for i in computing_with(program, op.index, readers):
            reader = program.operations[i]
            if reader.name not in ("add", "sub", "rsub") or reader.mark is None:
                continue
            operands = [program.operations[each] for each in reader.inputs]
            if reader.number == 0:
                return True
            if any(each.number == 0 for each in operands):  # what is added is nothing, as yet
                continue
            before = (program.operations[each] for each in upstream(Region(program, i, []), i, NEAR))
            mark, line = reader.mark, (reader.name, reader.source)
            # a checkpoint computes the same line again
            others = (o for o in before if o.size == reader.size and (o.name, o.source) != line)
            if any(o.mark is not None and same(o.mark, mark, o.near) for o in others):
                return True
    return False


def _unequal(a: Program, b: Program, pair: _Pairing) -> _Errors:
    """Return the errors of the outputs that differ."""
    a, b = copy_program(a), copy_program(b)  # to which pairing adds
    a, b, _ = align(a, b)
    measure(a)
    measure(b)
    pairs = pair(a, b).pairs
    outputs = Outputs(a, b, pairs)
    return {
        a.path(x): outputs.error((x, y), a.values([x])[x], b.values([y])[y])
        for x, y in outputs.unequal(a, b)
    }


def copy_program(program: Program) -> Program:
    """Return a program to which operations may be added."""
    return replace(
        program,
        operations=list(program.operations),
        outputs=list(program.outputs),
        cache=dict(program.cache),
    )


def place_of(found: Found, letters: Letters) -> Place:
    """Describe a line at which gradients stop as a place."""
    program, other = found.pair[found.side], found.pair[1 - found.side]
    source = Source(*found.where, found.stop.function)
    stopped = next(iter(_stopped(program, found.where, found.stop)), None)
    mine, theirs = PlaceSide(found.stop.word, _lines(source)), PlaceSide("", ())
    if stopped is not None:
        before = program.operations[stopped.inputs[0]] if stopped.inputs else stopped
        text = f"{found.stop.word}({letters.name(program, before)})"
        mine = replace(mine, formula=text, module=stopped.module)
        theirs = _counterpart(other, before, letters)
    a, b = (mine, theirs) if found.side == 0 else (theirs, mine)
    cause, said = (
        (NOT_DETACHED, "a gradient passes where A's does not")
        if found.side == 0
        else (DETACHED, "no gradient passes where A's does")
    )
    paths = [path for several in found.errors for path in several.split(", ")]
    paths.sort(key=lambda path: "argument " in path)  # inputs say less than parameters
    names = first_three([each.removeprefix(f"{GRADIENT}.").removeprefix("params.") for each in paths])
    message = f"{said}; without it, what A has for {names} is the same"
    return Place("operations", a, b, max(found.errors.values()), 0.0, message, cause)


def _stopped(program: Program, where: Where, stop: Stop) -> list[Operation]:
    """Return the operations at which a line stops gradients, as far as they are recorded."""
    found = []
    for op in program.operations:
        at = (op.source.file, op.source.line) if op.source is not None else None
        unknown = at is None and where[0].startswith("<")
        if op.name == stop.word and (at == where or unknown):
            found.append(op)
    return found


def _counterpart(program: Program, value: Operation, letters: Letters) -> PlaceSide:
    """Describe the value of one program that holds the numbers of one of the other's: the line that
    makes it, or the first that reads it."""
    if value.mark is None:
        return PlaceSide("", ())
    mark = value.mark
    equal = (op for op in program.operations if op.mark is not None and same(op.mark, mark, op.near))
    op = next((op for op in equal if op.kind != "constant" and op.size == value.size), None)
    if op is None:
        return PlaceSide("", ())
    readers = (each.source for each in program.operations if op.index in each.inputs)
    source = op.source or next(filter(None, readers), None)
    return PlaceSide(letters.name(program, op), _lines(source), op.module)


def _lines(source: Source | None) -> tuple[Line, ...]:
    """Return a line to be shown; none where it cannot be read."""
    if source is None or not source.text:
        return ()
    return (Line(source.file, source.line, source.function, source.text),)
