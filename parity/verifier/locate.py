"""Comparing two programs: recording both, and finding the places where they part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.measure.nearness import CERTAIN, LEAST
from parity.measure.shown import first_three
from parity.measure.verdict import Verdict
from parity.verifier.causes.collectives import collective_faults
from parity.verifier.causes.layers import rows_or_layers_in_another_order
from parity.verifier.causes.loaded import parameters_of_others
from parity.verifier.causes.norms import moved_norms
from parity.verifier.causes.resampled import other_resampling
from parity.verifier.causes.residual_order import branches_in_another_order
from parity.verifier.causes.rounded_parameters import rounded_parameters
from parity.verifier.causes.tables import tables_with_other_numbers
from parity.verifier.causes.unused import unused_parameters
from parity.verifier.passing import Found, Recordings, copy_program, place_of, with_gradients_that_pass
from parity.verifier.place import place_at, place_of_cause, unlike
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from parity.verifier.programs.threads import one_thread
from parity.verifier.report.comparison import Comparison, Counts, Place
from parity.verifier.report.formula import Letters
from parity.verifier.report.modules import modules_of
from parity.verifier.report.remarks import all_missing, remarks, unloaded
from parity.verifier.report.together import together
from parity.verifier.search.digits import loses_digits, lost_digits
from parity.verifier.search.inputs import check_inputs
from parity.verifier.search.meeting import Index, is_chaos, is_noise, is_weak, meet
from parity.verifier.search.nearness import measure
from parity.verifier.search.pairing import Paired, Pairs, pair_outputs
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap
from parity.verifier.search.rounding import align, limit_of_tables

_TABLE = "a table that one program holds in float32"
Pairing = Callable[[Program, Program], Paired]
"""Finds the outputs that are compared."""
OnPlace = Callable[[Place], object]
"""Is told of the first place while others are looked for."""


def compare(a: Any, b: Any, *, gradients: bool = False) -> Comparison:
    """Compare two programs: whether they compute the same function, and where they part.

    Both run once in float64, each on its own inputs. See `sides.record` for what a side may be,
    and for `gradients`.

    Raises:
        InputError: a side cannot be run, or the two were given inputs of other sizes.
    """
    started = time.perf_counter()
    of_a = record(a, "A", gradients=gradients)
    return compare_programs(of_a, record(b, "B", gradients=gradients), started)


def compare_programs(
    a: Program,
    b: Program,
    started: float | None = None,
    *,
    pair: Pairing | None = None,
    on_place: OnPlace | None = None,
    recordings: Recordings | None = None,
    stopped: Sequence[Found] = (),
) -> Comparison:
    """Compare programs that are recorded already.

    Args:
        a: the reference.
        b: the other program.
        started: when the recording began; None is now.
        pair: finds which outputs belong together.
        on_place: called with the first place while others are looked for.
        recordings: how to record them with gradients that pass where they stop.
        stopped: the lines where gradients stopped, if they pass there in what is given.
    """
    started = time.perf_counter() if started is None else started
    given = (
        (copy_program(a), copy_program(b)) if recordings is not None and any(recordings.stops) else None
    )
    a, b, aligned = align(a, b)
    exact = a, b
    a, b, coarse = rounded_parameters(a, b)
    measure(a)
    measure(b)
    paired = (pair or pair_outputs)(a, b)
    pairs = paired.pairs
    promised = paired.left_out if a.promises_more and pairs and pair is None else []  # not by B
    left_out = [*paired.left_out, *_without_numbers(a, b)]
    if pair is None:
        chaos = (a.path(x) or "output" for x, _ in pairs if is_chaos(a, x))
        left_out += [f"A's {each}, which is nothing but round-off" for each in chaos]
    check_inputs(a, b, pairs)
    missing = [pair for pair in pairs if all_missing(a, b, pair)]
    left_out += [f"A's and B's {a.path(x) or 'output'}, which are all NaN" for x, _ in missing]
    pairs = [pair for pair in pairs if pair not in missing]
    unstable = loses_digits(a, b, pairs)
    if unstable:  # B's sensitivity is the fault, and forgives nothing but what is zero in theory
        for op in b.operations:
            op.near, op.grain = LEAST, op.grain if is_noise(op) else 0.0
    search = Search(a, b, pairs, on_place and _first_to(on_place, a))
    if given is not None and recordings is not None and search.unequal():
        a, b, stopped = with_gradients_that_pass(*given, pair or pair_outputs, recordings)
        if stopped:
            return compare_programs(a, b, started, pair=pair, on_place=on_place, stopped=stopped)
        a, b = search.a, search.b
    met = meet(b.operations, search.index)
    counts = _counts(a, b, paired._replace(pairs=pairs, left_out=left_out), met, pair is not None)
    letters = Letters(search.index)
    runs = ((a, b), exact) if coarse else ((a, b),)
    error = max(_farthest(search, *run, pairs) for run in runs)
    faults = [place_of(each, letters) for each in stopped]
    error = max([error, *(each.error for each in faults)])
    faults += [place_of_cause("parameter", gap, said, letters) for gap, said in coarse]
    notes: list[Place] = []
    with one_thread(a, b):
        for gap, cause, message in collective_faults(search):
            faults.append(place_of_cause("operations", gap, (cause, message), letters))
        for gap, explanation in rows_or_layers_in_another_order(search):
            faults.append(place_of_cause("order", gap, explanation, letters))
        for gap, explanation in parameters_of_others(search):
            faults.append(place_of_cause("parameter", gap, explanation, letters))
        for gap, explanation in (*unused_parameters(search), *branches_in_another_order(search)):
            faults.append(place_of_cause("operations", gap, explanation, letters))
        for gap, explanation in (*tables_with_other_numbers(search), *other_resampling(search)):
            faults.append(place_of_cause("operations", gap, explanation, letters))
        for gap, others, explanation in moved_norms(search):
            faults.append(place_of_cause("operations", gap, explanation, letters, others))
        for gap, message in lost_digits(search) if unstable else ():
            faults.append(place_of_cause("digits", gap, ("", message), letters))
        for gap in search.places():
            place = place_at(gap, letters, search.index)
            if place.kind == "rounding":
                notes.append(place)
            else:
                faults.append(place)
    only_open = bool(faults) and all(place.kind == "open" for place in faults)
    tables = limit_of_tables(a, b, search.outputs) if only_open else 0.0
    if tables:
        notes += [replace(p, kind="rounding", error=error, limit=tables, message=_TABLE) for p in faults]
        faults = []
    for outputs in search.outputs.unlike:
        place = unlike(search, outputs, letters)
        faults += [place] if place.cause or not faults else []
    then = meet(search.b.operations, search.index) if faults else met
    parted = [module for place in faults for module in (place.b.module, *place.modules)]
    left = not tables and search.unequal() if not faults else True
    lacking = any(e.startswith("A") and e not in promised for e in left_out)  # B may return more than A
    vague = bool(notes) and error > CERTAIN  # there may be more in it than rounding
    verdict: Verdict = (
        "DIFFERENT" if faults or left else "INCOMPLETE" if lacking or not pairs
        else "UNCERTIFIED" if vague else "EQUAL"
    )  # fmt: skip
    said = remarks(a, b, pairs if pair is None else ())
    said += tuple(unloaded(a, b)) if faults and pair is None else ()
    return Comparison(
        verdict, error, counts, tuple(together(faults)), tuple(together(notes)), aligned,
        _types(a, b), said, letters.described(),
        modules_of(a, b, met, search.b, then, parted),
        time.perf_counter() - started,
        f"{search.repairs} repairs, more remain; mend these and compare again" if search.stopped else "",
    )  # fmt: skip


def _farthest(search: Search, a: Program, b: Program, pairs: Pairs) -> float:
    """Return the largest distance of two outputs, of those that the programs have: gradients that were
    brought into one layout are more."""
    return max(
        (
            search.outputs.error((x, y), a.values([x])[x], b.values([y])[y])
            for x, y in pairs
            if x < len(a) and y < len(b)
        ),
        default=np.inf if not pairs else 0.0,
    )


def _first_to(on_place: OnPlace, a: Program) -> Callable[[Gap], None]:
    """Return a function that tells of the first place that rounding does not explain, once."""
    index, told = Index(a), []

    def tell(gap: Gap) -> None:
        if not told and (place := place_at(gap, Letters(index), index)).kind != "rounding":
            told.append(place)
            on_place(place)

    return tell


def _without_numbers(a: Program, b: Program) -> list[str]:
    """Name the outputs that hold no numbers, those that both sides have once."""
    of_a, of_b = a.without_numbers, b.without_numbers
    both = [f"A's and B's {each}" for each in of_a if each in of_b]
    alone = [f"A's {each}" for each in of_a if each not in of_b]
    return [*both, *alone, *(f"B's {each}" for each in of_b if each not in of_a)]


def _types(a: Program, b: Program) -> tuple[str, ...]:
    """Return where one program asks for a number type that the other never does."""
    requests = []
    for mine, theirs in ((a, b), (b, a)):
        for name in dict.fromkeys(mine.narrowed.values()):
            if name not in theirs.narrowed.values():
                at = [str(line) for line, asked in mine.narrowed.items() if asked == name]
                requests.append(f"{mine.name} asks for {name} at {first_three(at, 'more lines')}")
    return tuple(requests)


def _counts(a: Program, b: Program, paired: Paired, met: dict[int, list[int]], backward: bool) -> Counts:
    pairs = paired.pairs
    comparable = [op for op in b.operations if op.run is not None and not is_weak(op) and op.size]
    ends = {y for _, y in pairs}
    used = ends.union(*(b.operations[i].inputs for i in b.upstream(ends)))
    leaves = [op for op in b.operations if op.kind == "parameter"]
    of_a, of_b = (_unseen(each, backward) for each in (a, b))
    return Counts(
        outputs=len(pairs),
        elements=sum(b.operations[y].size for _, y in pairs),
        outputs_left_out=tuple(paired.left_out),
        operations_a=sum(op.run is not None for op in a.operations),
        operations_b=sum(op.run is not None for op in b.operations),
        met=sum(op.index in met for op in comparable),
        comparable=len(comparable),
        inputs=sum(op.kind == "input" for op in b.operations),
        parameters=len(leaves),
        unused=tuple(op.label for op in leaves if op.index not in used),
        tally=paired.tally,
        zero_in_theory=paired.zero,
        unread=paired.unread,
        unmoved=sum(_is_zero(a, x) and _is_zero(b, y) for x, y in pairs),
        unseen=sum(x in of_a and y in of_b for x, y in pairs),
    )


def _unseen(program: Program, backward: bool) -> set[int]:
    """Return the outputs in which no difference could show: zeros, and gradients to which no parameter
    and no input leads but past zeros."""
    seen: set[int] = set()
    for op in program.operations:
        begins = not backward or op.kind in ("parameter", "input")
        if op.number != 0 and (begins or not seen.isdisjoint(op.inputs)):
            seen.add(op.index)
    return {index for _, index in program.outputs} - seen


def _is_zero(program: Program, output: int) -> bool:
    op = program.operations[output]
    return op.number == 0 and op.size > 0
