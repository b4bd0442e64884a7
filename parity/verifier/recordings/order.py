"""Pairing of modules by their kinds, shapes and parameters, in the order of their calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from parity.measure.traces import Event, Trace
from parity.verifier.recordings.calls import ModuleCall, Ports, kind_of, main_pair, read_pair

_Parameters = dict[tuple[int, ...], list[float]]


def by_order(
    a: Trace, b: Trace, left: Ports, right: Ports, *, values: bool
) -> dict[ModuleCall, ModuleCall]:
    """Return the best pairing that keeps the order of calls: a weighted longest common subsequence."""
    # modules that do nothing outside training may stand anywhere, and tell nothing
    rows = [call for call in left if kind_of(a, call.path) != "identity"]
    columns = [call for call in right if kind_of(b, call.path) != "identity"]
    own = _own_parameters(a), _own_parameters(b)
    below = _parameters_below(a), _parameters_below(b)
    scores = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            score = _likeness(a, b, row, column, left[row], right[column], own)
            score *= _ratio(below[0][row.path], below[1][column.path])
            if score and values:
                score += _correlation(a, b, left[row], right[column])
            scores[i, j] = score
    best = np.zeros((len(rows) + 1, len(columns) + 1))
    for i in range(len(rows)):
        for j in range(len(columns)):
            taken = best[i, j] + scores[i, j] if scores[i, j] else -1.0
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], taken)
    partners: dict[ModuleCall, ModuleCall] = {}
    i, j = len(rows), len(columns)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            partners[rows[i]] = columns[j]
    return {call: partners[call] for call in rows if call in partners}


def _likeness(
    a: Trace,
    b: Trace,
    row: ModuleCall,
    column: ModuleCall,
    mine: Mapping[str, Event],
    theirs: Mapping[str, Event],
    parameters: tuple[dict[str, _Parameters], dict[str, _Parameters]],
) -> float:
    """Return how much two calls look like the same computation; 0 if they cannot be the same."""
    kind = kind_of(a, row.path)
    if kind != kind_of(b, column.path) or not main_pair("out", mine, theirs):
        return 0.0
    own, other = parameters[0].get(row.path, {}), parameters[1].get(column.path, {})
    if kind != "other" and bool(own) != bool(other):
        return 0.0
    score = 1.0 + (own.keys() == other.keys()) + bool(main_pair("in", mine, theirs))
    score += 0.5 * (row.path.rpartition(".")[2] == column.path.rpartition(".")[2])
    score += 4.0 * bool(own and own == other)  # a port has its original's weights
    return score + (0.5 if (row.path == "") == (column.path == "") else -0.75)


def _correlation(a: Trace, b: Trace, mine: Mapping[str, Event], theirs: Mapping[str, Event]) -> float:
    pair = main_pair("out", mine, theirs)
    if pair is None:
        return 0.0
    x, y = (each.astype(np.float64).reshape(-1) for each in read_pair(a, b, pair))
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return 4.0 * abs(float(x @ y)) / size if size and np.isfinite(size) else 0.0


def _own_parameters(trace: Trace) -> dict[str, _Parameters]:
    """Return for each module the shapes of its own parameters, each with the norms of its values."""
    parameters: dict[str, _Parameters] = defaultdict(dict)
    for event in trace.of("parameters", min(trace.steps, default=0)):
        value = float(np.linalg.norm(trace.read(event).astype(np.float64)))
        module = event.path.rpartition(".")[0]
        parameters[module].setdefault(event.shape, []).append(float(f"{value:.6g}"))
    return parameters


def _parameters_below(trace: Trace) -> Counter[str]:
    """Return for each module the size of its parameters and of those of all modules below it."""
    sizes: Counter[str] = Counter()
    for event in trace.of("parameters", min(trace.steps, default=0)):
        module = event.path.rpartition(".")[0]
        sizes[module] += event.size
        while module:
            module = module.rpartition(".")[0]
            sizes[module] += event.size
    return sizes


def _ratio(a: int, b: int) -> float:
    """Return the likeness of two sizes: 1 if equal, 0 if one is more than twice the other."""
    ratio = min(a, b) / max(a, b) if a or b else 1.0
    return ratio if ratio >= 0.5 else 0.0
