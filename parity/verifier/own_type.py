"""Two programs run in a smaller type, each compared with its own float64 run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.verifier.locate import compare_programs
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.programs.remote import Away, record_side
from parity.verifier.programs.sides import GivenSide
from parity.verifier.report.comparison import Comparison
from parity.verifier.report.in_type import InType

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
