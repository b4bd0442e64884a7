"""Parameters that hold the right rows in another order, as queries, keys and values in a packed one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_RUNS = 4
"""Most runs of rows that are named one by one."""

_Run = tuple[int, int, int]
"""First row, first row of A's, and how many."""


def row_order(wanted: np.ndarray, held: np.ndarray) -> str:
    """Say which rows of a parameter, or columns, are which of A's; nothing if they are no runs."""
    both, names = (wanted, held), ("rows", "columns") if wanted.ndim == 2 else ("numbers",)
    for axis in range(wanted.ndim):
        order = _order(*(np.moveaxis(e, axis, 0).reshape(e.shape[axis], -1) for e in both))
        if order is not None and (said := _said(order)):
            what = names[axis] if wanted.ndim <= 2 else f"indices of axis {axis}"
            return f"with {what} {said}"
    return ""


def _order(wanted: np.ndarray, held: np.ndarray) -> list[int] | None:
    """Return, for each row, which of the wanted ones it is; None if it is none, or several are."""
    rows = {row.tobytes(): k for k, row in enumerate(np.ascontiguousarray(wanted))}
    order = [rows.get(row.tobytes(), -1) for row in np.ascontiguousarray(held)]
    return order if len({*order} - {-1}) == len(order) else None


def _said(order: Sequence[int]) -> str:
    runs = _runs(order)
    moved = [run for run in runs if run[0] != run[1]]
    if len(moved) == 2 and moved[0][2] == moved[1][2]:
        (first, _, count), (second, _, _) = moved
        return f"{_span(first, count)} and {_span(second, count)} exchanged"
    length = runs[0][2]
    if len({run[2] for run in runs}) == 1 and len(runs) > MOST_RUNS:
        blocks, numbers = [run[1] // length for run in runs], np.arange(len(runs))
        for n in range(2, len(runs)):
            if len(runs) % n == 0 and blocks == numbers.reshape(n, -1).T.ravel().tolist():
                split = [n, len(runs) // n, *([length] if length > 1 else [])]
                return f"split as {split} and its first two axes exchanged"
    if len(moved) > MOST_RUNS:
        return ""
    return ", ".join(f"{_span(own, n)} from {_span(of_a, n)}" for own, of_a, n in moved)


def _runs(order: Sequence[int]) -> list[_Run]:
    runs: list[_Run] = []
    for own, of_a in enumerate(order):
        if runs and of_a == runs[-1][1] + runs[-1][2]:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((own, of_a, 1))
    return runs


def _span(first: int, count: int) -> str:
    return f"{first}:{first + count}" if count > 1 else str(first)
