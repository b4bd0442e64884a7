"""A check that two programs were given the same inputs, as far as shapes tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index
from vit_config import InputError


def check_inputs(a: Program, b: Program, pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse programs that were given inputs of other sizes, such as batches of 3 and of 2.

    An input has a partner if any value of the other program has the same numbers, repeated or not, or
    if one of its inputs has as many elements, in any layout. Inputs without partners pass if one side
    has more of them, or if the two have other numbers of axes: masks and tables may be made outside of
    one program and inside of the other, and in many forms.

    Args:
        pairs: the outputs that are compared; if these have equal sizes, an input may be repeated along
            an axis.

    Raises:
        InputError: inputs differ; the message names them and both shapes.
    """
    in_a, in_b = Index(a), Index(b)
    own_a, own_b = _without_partner(a, in_b), _without_partner(b, in_a)
    sizes = {op.size for op in own_a} & {op.size for op in own_b}
    rest_a, rest_b = ([op for op in own if op.size not in sizes] for own in (own_a, own_b))
    if len(rest_a) != len(rest_b):
        return
    fits = all(a.operations[x].size == b.operations[y].size for x, y in pairs)
    unequal = [
        f"{x.label} {list(x.shape)} in {a.name}, {y.label} {list(y.shape)} in {b.name}"
        for x, y in zip(rest_a, rest_b, strict=True)
        if len(x.shape) == len(y.shape) and not (fits and _broadcast(x.shape, y.shape))
    ]
    if unequal:
        raise InputError(f"not the same inputs: {'; '.join(unequal)}; give both sides the same ones")


def _without_partner(program: Program, index: Index) -> list[Operation]:
    """Return the inputs whose numbers no value of the other program has."""
    leaves = (op for op in program.operations if op.kind == "input" and op.shape)
    return [op for op in leaves if not index.meets(op)]


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether one of two shapes is the other with axes repeated."""
    try:
        return np.broadcast_shapes(a, b) in (a, b)
    except ValueError:
        return False
