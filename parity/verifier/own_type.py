"""Two programs run in a smaller type: how far each is from its own float64 run, and where it is another
function in that type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.measure.verdict import Verdict
from parity.verifier.operations import Comparison, compare_programs
from parity.verifier.operations.program import Operation, Program
from parity.verifier.operations.region import distance
from parity.verifier.operations.sides import Given
from parity.verifier.remote import Away, recorded

FACTOR = 16.0
"""How many times farther from its own float64 run one side may be than the other; measured on equal
pairs, in float32 and bfloat16: 5 at most."""


@dataclass(frozen=True)
class InType:
    """Result of running two programs, equal in float64, in a smaller type."""

    dtype: str
    errors: tuple[float, float]
    """Largest relative distance of an output from the same output in float64, for A and for B."""
    apart: Comparison | None
    """Comparison of the side that is too far off with its own float64 run; None if neither side is."""
    side: str = ""

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two in this type."""
        return "DIFFERENT" if self.side else "EQUAL"

    def to_text(self) -> list[str]:
        """Return the result as lines of text."""
        a, b = self.errors
        lines = [f"in {self.dtype}: A is {a:.2g} from itself in float64, B {b:.2g}"]
        if self.apart is not None and self.apart.places:
            lines += ["", f"{self.side} in float64 (A) and in {self.dtype} (B):"]
            lines += self.apart.places_to_text()
        elif self.side:
            lines += [
                f"{self.side} is the same function in both types, and loses digits on these numbers"
            ]
        return lines


def in_type(given: Sequence[Given | Away], dtype: str) -> InType:
    """Run two programs in a type, and compare each with its own float64 run."""
    runs = [
        (recorded(each, name), recorded(each, name, dtype=dtype))
        for each, name in zip(given, "AB", strict=True)
    ]
    errors = [_error(wide, narrow) for wide, narrow in runs]
    least = max(min(errors), float(np.finfo(np.float32).eps) if dtype == "float32" else 2.0**-11)
    worst = int(np.argmax(errors))
    if errors[worst] <= FACTOR * least:
        return InType(dtype, (errors[0], errors[1]), None)
    found = _against_itself(*runs[worst])
    return InType(dtype, (errors[0], errors[1]), found, "AB"[worst])


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
    found = []
    for op in program.operations:
        value = program.kept.get(op.index)
        if op.run is None and isinstance(value, np.ndarray) and value.dtype.kind in "fV":
            found.append((op, value.astype(np.float64)))
    return found
