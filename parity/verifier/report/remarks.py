"""Remarks on the sides of a comparison, besides the places where they part."""

from __future__ import annotations

import numpy as np

from parity.measure.shown import first_three
from parity.verifier.programs.program import Program


def remarks(a: Program, b: Program) -> tuple[str, ...]:
    """Return the remarks on each side, as "A: ..."."""
    lines = []
    for side in (a, b):
        notes = list(side.notes)
        if side.draws:
            notes.append(
                f"draws random numbers at {first_three(list(side.draws), 'more lines')}; give what it"
                " draws as an input, so that both sides have the same"
            )
        for path, index in side.outputs:
            missing = int(np.isnan(_numbers(side, index)).sum())
            if missing:
                size = side.operations[index].size
                notes.append(f"{path or 'its output'} has {missing} NaN among {size} numbers")
        lines += [f"{side.name}: {note}" for note in dict.fromkeys(notes)]
    return tuple(lines)


def _numbers(side: Program, index: int) -> np.ndarray:
    """Return a value of floating point numbers; an empty array for any other."""
    value = side.values([index])[index]
    floating = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    return value if floating else np.zeros(0)


def all_missing(a: Program, b: Program, pair: tuple[int, int]) -> bool:
    """Return whether two outputs hold nothing but NaN, so that nothing can be said of them."""
    both = _numbers(a, pair[0]), _numbers(b, pair[1])
    return all(each.size and np.isnan(each).all() for each in both)
