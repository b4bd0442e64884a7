"""Convolutions of B with another padding, stride or dilation than A's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.jaxprs.equations import bind
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.windows import WINDOW, Window
from parity.verifier.search.exchange import closer_moved, computing, is_a, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

_NAMES = ("padding", "stride", "dilation")
_OF_JAX = {"padding": "padding", "stride": "window_strides", "dilation": "rhs_dilation"}
_OF_TORCH = {"stride": 3, "padding": 4, "dilation": 5}
"""Positions among the arguments of `aten.convolution`."""
MOST = 4
"""Most convolutions of a region that are tried."""


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find the fewest arguments of a convolution of B's that, exchanged for those of one of A's, give
    A's value."""
    of_a, of_b = (
        [op for op in computing(region) if WINDOW in op.extra][:MOST] for region in (gap.a, gap.b)
    )
    for b in of_b:
        for a in of_a:
            theirs, own = a.extra[WINDOW], b.extra[WINDOW]
            for names in _unlike(theirs, own):
                changed = _with(b, {name: getattr(theirs, name) for name in names})
                if changed is not None and _is_all(gap, a, b, changed):
                    texts = (", ".join(f"{n} {w.argument(n)}" for n in names) for w in (own, theirs))
                    held, wanted = (
                        texts if len(names) > 1 else (own.argument(*names), theirs.argument(*names))
                    )
                    return " and ".join(names), f"{held} where A has {wanted}"
    return None


def _is_all(gap: Gap, a: Operation, b: Operation, changed: Operation) -> bool:
    """Return whether a convolution with other arguments gives A's value: that of the place, or, where it
    makes so many numbers that what B reshapes them to no longer fits, that of A's convolution."""
    if a.size == b.size:
        return is_a(gap, rerun(gap.b, {b.index: changed}))
    value = rerun(Region(gap.b.program, b.index, [b.index]), {b.index: changed})
    return closer_moved(np.asarray(gap.a.program.values([a.index])[a.index]), value, 1.0)


def _unlike(a: Window, b: Window) -> Iterator[tuple[str, ...]]:
    """Yield the arguments that differ, one at a time, then two."""
    names = [name for name in _NAMES if getattr(a, name) != getattr(b, name)]
    for count in (1, 2):
        yield from combinations(names, count)


def _with(op: Operation, changed: dict[str, Any]) -> Operation | None:
    """Return a convolution with other arguments; None where it runs on several devices."""
    if isinstance(op.run, partial) and op.run.func is bind:
        primitive, params = op.run.args
        own = params | {_OF_JAX[name]: value for name, value in changed.items()}
        return replace(op, run=partial(bind, primitive, own))
    call = op.run
    if not hasattr(call, "structure"):
        return None
    from torch.utils._pytree import tree_flatten, tree_unflatten

    args, kwargs = tree_unflatten(call.fixed, call.structure)  # type: ignore[union-attr]
    args, before = list(args), ()
    for name, value in changed.items():
        if name == "padding":
            one_sided = any(low != high for low, high in value)  # which torch leaves to another operator
            before = value if one_sided else ()
            value = [0 if one_sided else low for low, _ in value]
        args[_OF_TORCH[name]] = list(value) if isinstance(value, (list, tuple)) else value
    flat, structure = tree_flatten((tuple(args), kwargs))
    run = replace(call, fixed=flat, structure=structure)  # type: ignore[type-var]
    return replace(op, run=partial(_padded, run, before) if before else run)


def _padded(run: Callable[[Sequence[Any]], Any], sizes: Sequence[Any], operands: Sequence[Any]) -> Any:
    """Run a convolution on its input padded with zeros along the last axes."""
    x, *rest = operands
    return run([np.pad(x, [(0, 0), (0, 0), *sizes]), *rest])


CAUSES = (
    Cause(
        "padding",
        "A convolution of B is padded otherwise.",
        judge,
        "conv(x, k, (1,), [(1, 1)], rhs_dilation=None)",
        "conv(x, k, (1,), [(0, 2)], rhs_dilation=None)",
    ),
    Cause(
        "stride",
        "A convolution of B has another stride.",
        judge,
        "conv(x, k, (2,), [(0, 0)], rhs_dilation=None)",
        "conv(x, k, (3,), [(0, 0)], rhs_dilation=None)",
    ),
    Cause(
        "dilation",
        "A convolution of B has another dilation.",
        judge,
        "conv(x, k, (4,), [(0, 0)], rhs_dilation=(2,))",
        "conv(x, k, (4,), [(0, 0)], rhs_dilation=(1,))",
    ),
    Cause(
        "padding and stride",
        "A convolution of B has another padding and another stride.",
        judge,
        "conv(x, k, (2,), [(0, 1)], rhs_dilation=None)",
        "conv(x, k, (3,), [(2, 2)], rhs_dilation=None)",
    ),
    Cause(
        "padding and dilation",
        "A convolution of B has another padding and another dilation.",
        judge,
        "conv(x, k, (1,), [(1, 1)], rhs_dilation=(1,))",
        "conv(x, k, (1,), [(2, 2)], rhs_dilation=(2,))",
    ),
    Cause(
        "stride and dilation",
        "A convolution of B has another stride and another dilation.",
        judge,
        "conv(x, k, (1,), [(0, 0)], rhs_dilation=(2,))",
        "conv(x, k, (2,), [(0, 0)], rhs_dilation=(1,))",
    ),
)
