"""Heads in another order than that in which queries, keys and values were cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option
from parity.verifier.diagnose.catalogue.heads import split

IN_ORDER = Option(
    "heads in order",
    None,
    torch="y.transpose(1, 2).reshape(B, N, h * d), the heads as q, k and v were cut into them",
    jax="y.reshape(B, N, h * d), the heads as q, k and v were cut into them",
)
ARRANGEMENT = Aspect("arrangement", "heads-order", (IN_ORDER,))
"""In which order the heads come out; the value is that order, or None."""

_CUTTING = ("heads", "packing", "order", "rotation", "turned")  # aspects that make other heads
_NEAR = 1e-4  # of the result's square: how far heads may be off to be tried


def arranged(y: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Heads (B, h, ...) in another order."""
    return y if order is None else y[:, order]


def with_fitted_order(
    computation: Computation, result: np.ndarray, tokens: int
) -> Iterator[Computation]:
    """The same with the order of heads that explains the result, matched head by head.

    All else is ordinary, or departs in one aspect of how heads are cut and turned.
    """
    for base in _bases(computation):
        value, heads = computation.value(base), base["heads"].value
        if value is None or value.shape != result.shape:
            continue
        order = _order(_heads_first(value, heads, tokens), _heads_first(result, heads, tokens))
        if order is not None:
            options = (IN_ORDER, Option(_label(order), order))
            aspects = (
                replace(a, options=options if a.name == ARRANGEMENT.name else (base[a.name],))
                for a in computation.aspects
            )
            unusual = sum(base[a.name] is not a.options[0] for a in computation.aspects)
            yield replace(computation, aspects=tuple(aspects), departures=1, unusual=unusual)


def _bases(computation: Computation) -> Iterator[Mapping[str, Option]]:
    ordinary = {aspect.name: aspect.options[0] for aspect in computation.aspects}
    yield ordinary
    for aspect in computation.aspects:
        if aspect.name in _CUTTING:
            yield from (ordinary | {aspect.name: option} for option in aspect.options[1:])


def _heads_first(x: np.ndarray, heads: int, tokens: int) -> np.ndarray:
    """(B, T, h d), (B, T, h, d) or (B, h, T, ...) to (h, numbers)."""
    if x.ndim == 3:
        x = split(x, heads)
    elif x.shape[2] != tokens:
        x = x.transpose(0, 2, 1, 3)
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def _order(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray | None:
    """Which of my heads (h, n) each of theirs is, each of mine once; None for their own order."""
    far = (mine**2).sum(1)[:, None] + (theirs**2).sum(1) - 2.0 * mine @ theirs.T
    order = np.full(len(far), -1)
    for j in range(len(far)):
        free = [i for i in range(len(far)) if i not in order]
        order[j] = min(free, key=lambda i: far[i, j])
    if (order == np.arange(len(order))).all():
        return None
    rest = float(((mine[order] - theirs) ** 2).sum())
    return order if rest <= _NEAR * float((theirs**2).sum()) else None


def _label(order: np.ndarray) -> str:
    said = ", ".join(map(str, order))
    if (order == np.arange(len(order))[::-1]).all():
        return f"heads in reverse order, {said}"
    return f"heads in the order {said}"
