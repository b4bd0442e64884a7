"""The comparison of two programs: forward and, where the forward passes are the same, backward."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.verifier.locate import OnPlace, compare_programs
from parity.verifier.passing import Recordings
from parity.verifier.programs.backward import NOTHING, Weights, cotangent
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.mistakes import message_of, warnings_of_what_works
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.programs.remote import Away, record_side, record_side_gradients
from parity.verifier.programs.shared import return_freed_memory, sharing
from parity.verifier.programs.sides import GivenSide, taken_apart
from parity.verifier.programs.stops import Where, stops
from parity.verifier.report.compared import Compared, InType
from parity.verifier.report.comparison import Comparison
from parity.verifier.search.pairing import Outputs, pair_outputs
from parity.verifier.search.weights import pair_gradients
from vit_config.errors import USER_ERRORS, OwnFaultError
from vit_config.waiting import Plan, Stage, nobody

RECORDING, FORWARD = "recording the operations of both", "comparing the forward passes"
BACKWARD, GRADIENTS = "recording the backward passes", "comparing the gradients"
SHARES = {RECORDING: 2.0, FORWARD: 1.1, BACKWARD: 5.4, GRADIENTS: 5.7}
"""Seconds that each phase took on one core, of two programs of a ViT-Ti/16 that are the same."""
FEWEST = 3
"""Fewest parameters of a program that is taken for a training step if it returns one array for each."""

ROUNDED = "the forward passes are the same but for what rounding explains"
"""Reason why gradients are not compared if rounding explains a place of the forward pass."""


def compare(
    a: Any,
    b: Any,
    *,
    names: tuple[str, str] = ("A", "B"),
    gradients: bool = False,
    backward: bool = True,
    dtype: str | None = None,
    on_stage: Stage = nobody,
    on_place: OnPlace | None = None,
) -> Compared:
    """Find whether two programs compute the same function and the same gradients, and where they differ.

    Args:
        a: the reference; see `programs.sides.record` for what a side may be, or `remote.Away`.
        b: the program to compare with A, in the same form.
        names: the user's names of the two sides.
        gradients: whether the programs run backward themselves, as a training step does.
        backward: whether to differentiate programs that do not run backward themselves, by all
            parameters and inputs.
        dtype: float32, bfloat16 or float16: if the two are not DIFFERENT, also run both in this type.
        on_stage: called with the name of each phase as it begins, and the share of the time that it and
            all others are expected to take; large models take minutes.
        on_place: called with the first place while others are looked for.

    Raises:
        InputError: a side cannot be run, or the two were given inputs of other sizes.
    """
    planned = SHARES if backward and not gradients else dict([*SHARES.items()][:2])
    own_type = f"running both in {dtype}"
    begin = Plan(on_stage, planned | ({} if dtype is None else {own_type: SHARES[RECORDING]})).begin
    compared, given = _in_float64(a, b, names, gradients, backward, begin, on_place)
    if dtype is None or compared.verdict == "DIFFERENT" or gradients:
        return compared
    begin(own_type)
    return replace(compared, in_type=in_type(given, dtype))


def _in_float64(
    a: Any,
    b: Any,
    names: tuple[str, str],
    gradients: bool,
    backward: bool,
    begin: Callable[[str], None],
    on_place: OnPlace | None,
) -> tuple[Compared, list[GivenSide | Away]]:
    started = time.perf_counter()
    return_freed_memory()
    begin(RECORDING)
    named = zip((a, b), names, strict=True)
    given = [s if isinstance(s, Away) else taken_apart(s, name) for s, name in named]

    def run(side: int) -> Program:
        return record_side(given[side], "AB"[side], gradients=gradients)

    if gradients:
        of_a, of_b, recordings = _with_stops(run)
    else:
        of_a = run(0)
        with sharing(of_a):
            of_b, recordings = run(1), None
    begin(FORWARD)
    forward = compare_programs(of_a, of_b, started, on_place=on_place, recordings=recordings)
    on = (f"{program.name}'s {each}" for program in (of_a, of_b) for each in program.trained)
    compared = Compared(*names, forward, trained=tuple(on))
    if forward.verdict == "DIFFERENT" or not backward or gradients or _is_step(of_a) or _is_step(of_b):
        return compared, given
    why = next(
        (each.forward_only for each in given if isinstance(each, GivenSide) and each.forward_only), ""
    )
    if why:
        return replace(compared, no_backward=why), given
    if forward.notes:  # the rounding would reach every gradient and hide faults there
        return replace(compared, no_backward=ROUNDED, gradients_left_out=True), given
    begin(BACKWARD)
    weights, cut = _weights(of_a, of_b), _cut_off(of_a, of_b)
    compared = replace(compared, forward=replace(forward, remarks=(*forward.remarks, *cut)))
    del of_a, of_b
    return_freed_memory()

    def backward_of(side: int) -> Program:
        with warnings_of_what_works():
            return record_side_gradients(given[side], weights[side], "AB"[side])

    try:
        first, second, recordings = _with_stops(backward_of)
    except OwnFaultError:
        raise
    except Exception as error:  # a program that cannot be differentiated was still compared forward
        name = "" if isinstance(error, USER_ERRORS) else f"{type(error).__name__}: "
        why = f"{name}{message_of(error)}"
        return replace(compared, no_backward=why, gradients_left_out=NOTHING not in why), given
    begin(GRADIENTS)
    then = compare_programs(first, second, pair=pair_gradients, on_place=on_place, recordings=recordings)
    if not then.counts.outputs:
        why = "no parameter and no input of A is one of B's"
        return replace(compared, no_backward=why, gradients_left_out=True), given
    return replace(compared, backward=replace(then, backward=True)), given


def _with_stops(run: Callable[[int], Program]) -> tuple[Program, Program, Recordings]:
    """Record A (0) and B (1), and note at which lines gradients stop."""

    def again(side: int, opened: Collection[Where]) -> Program:
        with stops(opened):
            return run(side)

    with stops() as of_a:
        first = run(0)
    return_freed_memory()
    with stops() as of_b, sharing(first):
        second = run(1)
    return_freed_memory()
    return first, second, Recordings((of_a, of_b), again)


def _weights(a: Program, b: Program) -> tuple[Weights, Weights]:
    """Draw the weights of the outputs whose sum is differentiated: the same for both outputs of a pair,
    each in its own layout."""
    pairs = pair_outputs(a, b).pairs
    outputs = Outputs(a, b, pairs)
    places = [{index: k for k, (_, index) in reversed([*enumerate(p.outputs)])} for p in (a, b)]
    weights: tuple[list[Any], list[Any]] = [], []
    for x, y in pairs:
        of_a, of_b = np.asarray(a.values([x])[x]), np.asarray(b.values([y])[y])
        change = outputs.nearest((x, y), of_a, of_b)
        if x in a.cut_off or y in b.cut_off:
            continue
        if of_a.dtype.kind == of_b.dtype.kind == "f" and change is not None and of_a.size:
            drawn = cotangent(of_a.shape)
            weights[0].append((places[0][x], drawn))
            weights[1].append((places[1][y], np.ascontiguousarray(change.of(drawn))))
    return weights


def _cut_off(a: Program, b: Program) -> list[str]:
    """Say which outputs one side alone returns as no tensors, so that they have no gradients."""
    said = "as no tensor, through which no gradient flows"
    lines = []
    for x, y in pair_outputs(a, b).pairs:
        if (x in a.cut_off) != (y in b.cut_off):
            side, index = (a, x) if x in a.cut_off else (b, y)
            lines.append(f"{side.name}: returns {side.path(index) or 'its output'} {said}")
    return lines


def _is_step(program: Program) -> bool:
    """Return whether a program returns an array of each parameter's shape, as a training step does."""
    held = Counter(op.shape for op in program.operations if op.kind == "parameter" and op.size > 1)
    returned = Counter(program.operations[index].shape for _, index in program.outputs)
    return held.total() >= FEWEST and not held - returned


FACTOR = 16.0
"""How many times farther from its own float64 run one side may be than the other; measured on equal
pairs, in float32 and bfloat16: 5 at most."""


def in_type(given: Sequence[GivenSide | Away], dtype: str) -> InType:
    """Run two programs in a type, and compare each with its own float64 run."""
    runs = [
        (record_side(each, name), record_side(each, name, dtype=dtype))
        for each, name in zip(given, "AB", strict=True)
    ]
    errors = [_error(wide, narrow) for wide, narrow in runs]
    finite = (each for each in errors if np.isfinite(each))  # an infinite one excuses none
    least = max(
        min(finite, default=0.0), float(np.finfo(np.float32).eps) if dtype == "float32" else 2.0**-11
    )
    worst = int(np.argmax(errors))
    if errors[worst] <= FACTOR * least:
        return InType(dtype, (errors[0], errors[1]), None)
    comparison = _against_itself(*runs[worst])
    return InType(dtype, (errors[0], errors[1]), comparison, "AB"[worst])


def _error(wide: Program, narrow: Program) -> float:
    """Return the largest relative distance of an output that the framework computed in the type from the
    same output in float64."""
    pairs = zip(wide.outputs, narrow.ran, strict=True)
    errors = [distance(np.asarray(wide.values([i])[i], np.float64), ran) for (_, i), ran in pairs]
    return max(errors, default=0.0)


def _against_itself(wide: Program, narrow: Program) -> Comparison:
    """Compare the two recordings of one side, both fed with the leaves of the smaller type."""
    given = {op.label: value for op, value in _leaves(narrow) if op.label}
    replayed = narrow.fed({op.index: value for op, value in _leaves(narrow)}, {})
    same = {
        op.index: given[op.label]
        for op, _ in _leaves(wide)
        if op.kind != "constant" and op.label in given and given[op.label].shape == op.shape
    }
    return compare_programs(wide.fed(same, {}), replayed)


def _leaves(program: Program) -> list[tuple[Operation, np.ndarray]]:
    """Return the leaves of floating-point numbers with their values in float64."""
    leaves = []
    for op in program.operations:
        value = program.cache.get(op.index)
        if op.run is None and isinstance(value, np.ndarray) and value.dtype.kind in "fV":
            leaves.append((op, value.astype(np.float64)))
    return leaves
