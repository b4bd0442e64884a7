"""Holding an operation to itself: run again on what it read, it must yield what was recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.measure.nearness import LEAST
from parity.measure.nudge import nudge_numbers
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import distance, fingerprint, fingerprint_distances
from parity.verifier.programs.operation import DRAWN, Operation
from parity.verifier.programs.program import Program
from vit_config.errors import REPORT, OwnFaultError

NUDGE = 1
"""Seed."""


def check_again(program: Program, op: Operation) -> None:
    """Run an operation again on what it read, and hold it to what was recorded.

    How far apart they may be is measured: it runs once more, on nudged operands.

    Raises:
        OwnFaultError: it is farther away than that.
    """
    if any(DRAWN in program.operations[i].extra for i in (op.index, *op.inputs)):
        return
    assert op.mark is not None
    needed = [i for i in op.inputs if program.operations[i].mark is None]  # several results at once
    read = [i for each in needed for i in program.operations[each].inputs] + op.inputs
    exact = program.values(dict.fromkeys(read))
    before = program.cache.get(op.index)

    def run(values: dict[int, Any]) -> Any:
        values = dict(values)
        for each in needed:
            values[each] = program.apply(program.operations[each], values, {})
        return program.apply(op, values, {})

    def apart(one: Any, mark: np.ndarray, other: Any) -> float:
        if isinstance(one, np.ndarray):
            return distance(one, np.asarray(other))
        return fingerprint_distances(mark, fingerprint(other))[0]

    again = run(exact)
    if apart(before, op.mark, again) <= LEAST.norm:
        return
    nudges = {i: nudge_numbers(v, NUDGE, str(i)) if is_floating(v) else v for i, v in exact.items()}
    limit = max(LEAST.norm, FACTOR * apart(again, op.mark, run(nudges)))
    by = apart(before, op.mark, again)
    if not by <= limit:
        where = f" at {op.source}" if op.source else ""
        raise OwnFaultError(
            f"{program.name}: its {op.name}{where}, run again on what it read, is {by:.1e} away from"
            f" what was recorded, of which rounding explains {limit:.1e}. {REPORT}"
        )


def is_floating(value: Any) -> bool:
    """Return whether a value is an array of float64, which can be nudged."""
    return isinstance(value, np.ndarray) and value.dtype == np.float64
