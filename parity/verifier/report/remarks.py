"""Remarks on the sides of a comparison, besides the places where they part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.measure.shown import first_three
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.packed import holds_some

FAR = 1e7
"""Largest number that an input of a model has in earnest: a whole number of 16 bits, and some."""


def remarks(a: Program, b: Program, pairs: Sequence[tuple[int, int]] = ()) -> tuple[str, ...]:
    """Return the remarks on each side, as "A: ...".

    Args:
        pairs: outputs that are compared with each other although their names or shapes may differ.
    """
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
        notes += _far(side) if side is a and pairs else []
        notes += _unlike(a, b, pairs) if side is b else []
        lines += [f"{side.name}: {note}" for note in dict.fromkeys(notes)]
    return tuple(lines)


def unloaded(a: Program, b: Program) -> list[str]:
    """Say that no parameter of B holds A's numbers: then all differs, whatever the two compute."""
    of_a, of_b = (
        [op for op in side.operations if op.kind == "parameter" and op.size > 1 and not is_weak(op)]
        for side in (a, b)
    )
    index = Index(a, {op.index for op in of_a})
    if not of_a or not of_b or any(index.find(op.mark) for op in of_b if op.mark is not None):
        return []
    numbers = np.sort(np.concatenate([np.ravel(a.cache[op.index]) for op in of_a]))
    if any(holds_some(numbers, b.cache[op.index]) for op in of_b):  # packed, split or stacked
        return []
    none = f"none of its {len(of_b)} parameters holds numbers of A's"
    return [f"{b.name}: {none}; carry the weights over first"]


def _far(side: Program) -> list[str]:
    """Say which inputs are so large that activations are flat, where no difference of theirs shows."""
    lines = []
    for op in side.operations:
        if (
            op.kind == "input"
            and op.size
            and (most := np.abs(_numbers(side, op.index)).max(initial=0)) > FAR
        ):
            name = op.label or "an input"
            lines.append(
                f"{name} reaches {most:.0e}, where activations are flat and other ones look the same;"
                " give inputs as they come"
            )
    return lines


def _unlike(a: Program, b: Program, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """Say which outputs are compared with those of another name, or of axes that are split otherwise."""
    names, shapes = [], []
    for x, y in pairs:
        mine, theirs = a.path(x), b.path(y)
        if mine != theirs and _has_key(mine) and _has_key(theirs):
            names.append(f"{theirs} with A's {mine}")
        of_a, of_b = (
            tuple(n for n in side.operations[i].shape if n != 1) for side, i in ((a, x), (b, y))
        )
        if sorted(of_a) != sorted(of_b) and a.operations[x].size == b.operations[y].size:
            of_a, of_b = a.operations[x].shape, b.operations[y].shape
            shapes.append(f"{theirs or 'its output'} {list(of_b)} with A's {list(of_a)}")
    kinds = ((names, "of other names"), (shapes, "of other shapes"))
    return [f"outputs {kind} are compared: {first_three(each)}" for each, kind in kinds if each]


def _has_key(path: str) -> bool:
    """Return whether a path has a name, and not only places in tuples."""
    return any(not part.isdigit() for part in path.split(".") if part)


def _numbers(side: Program, index: int) -> np.ndarray:
    """Return a value of floating point numbers; an empty array for any other."""
    value = side.values([index])[index]
    floating = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    return value if floating else np.zeros(0)


def all_missing(a: Program, b: Program, pair: tuple[int, int]) -> bool:
    """Return whether two outputs hold nothing but NaN, so that nothing can be said of them."""
    both = _numbers(a, pair[0]), _numbers(b, pair[1])
    return all(each.size and np.isnan(each).all() for each in both)
