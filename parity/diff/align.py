"""Which module of one trace is which of another, and so which tensors are to be compared."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from parity.traces import Event, Trace
from vit_config import ConfigError, InputError, MissingFileError

How = Literal["auto", "name", "order", "values"]
HOW: tuple[How, ...] = get_args(How)
"""By the same names; by kinds, shapes and the order of calls; by that and by how alike the values are;
or by names where most modules have the same, else by order."""

KINDS = {
    "norm": r"norm",
    "linear": r"linear|dense",
    "conv": r"conv",
    "activation": r"gelu|relu|silu|swish|activation|^act$|tanh|softmax|sigmoid",
    "identity": r"identity|drop",
}
"""What a class is, told by its name; all else holds other modules."""


class Pair(NamedTuple):
    """Two events that see what should be the same tensor."""

    a: Event
    b: Event
    axes: tuple[int, ...] | None
    """The transposition from the layout of `b` to that of `a`; None where they are the same."""


class Call(NamedTuple):
    """One call of one module."""

    path: str
    call: int


@dataclass(frozen=True)
class Alignment:
    """The pairs of modules and of events."""

    modules: Mapping[Call, Call]
    """From each aligned call in A to its partner in B."""
    pairs: tuple[Pair, ...]
    """Events of the forward stage, in the order of A."""
    only_a: tuple[str, ...]
    """Modules of A without a partner."""
    only_b: tuple[str, ...]

    @cached_property
    def by_a(self) -> dict[tuple[str, str, int], Pair]:
        """Pairs by path, port and call in A."""
        return {(p.a.path, p.a.port, p.a.call): p for p in self.pairs}

    @cached_property
    def by_b(self) -> dict[tuple[str, str, int], Pair]:
        """Pairs by path, port and call in B."""
        return {(p.b.path, p.b.port, p.b.call): p for p in self.pairs}

    def path_in_b(self, path: str) -> str | None:
        """The partner of a module of A."""
        found = self.modules.get(Call(path, 0))
        return found.path if found else None


def align(a: Trace, b: Trace, how: How | Path = "auto", step: int | None = None) -> Alignment:
    """Pair the modules of two traces, and their inputs and outputs.

    Args:
        how: see `HOW`; or a JSON file {module of A: module of B}.
        step: which step's calls; the first of A by default.

    Raises:
        ConfigError, MissingFileError: a map that cannot be read or names unknown modules.
        InputError: nothing corresponds.
    """
    step = min(a.steps, default=0) if step is None else step
    left, right = _calls(a, step), _calls(b, step)
    if isinstance(how, Path):
        partners = _by_map(how, left, right)
    else:
        partners = _by_name(left, right)
        if how != "name" and (how != "auto" or len(partners) < 0.5 * min(len(left), len(right))):
            partners = _by_order(a, b, left, right, values=how == "values")
    pairs = tuple(_event_pairs(left, right, partners))
    if not pairs and (left or right):
        raise InputError(
            f"{a.path} and {b.path}: no module of one corresponds to one of the other; give a map"
            " of their"
            " names with --map FILE"
        )
    taken = set(partners.values())
    order = {event.site: i for i, event in enumerate(a.events)}
    return Alignment(
        partners,
        tuple(sorted(pairs, key=lambda pair: order[pair.a.site])),
        tuple(dict.fromkeys(call.path for call in left if call not in partners)),
        tuple(dict.fromkeys(call.path for call in right if call not in taken)),
    )


def layout_between(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | Literal["same"] | None:
    """How an array of shape `b` becomes one of shape `a`; None if it cannot.

    Feature maps may be channels-first on one side and channels-last on the other.
    """
    if tuple(a) == tuple(b):
        return "same"
    if len(a) == len(b) == 4:
        for axes in ((0, 3, 1, 2), (0, 2, 3, 1)):
            if tuple(b[i] for i in axes) == tuple(a):
                return axes
    return None


def kind_of(trace: Trace, path: str) -> str:
    """What a module is: a key of `KINDS`, or ``other``."""
    name = trace.modules[path].name.lower() if path in trace.modules else ""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other")


_Ports = dict[Call, dict[str, Event]]
_Parameters = dict[tuple[int, ...], list[float]]


def _calls(trace: Trace, step: int) -> _Ports:
    """Every call with the events at its ports, in the order in which calls end."""
    ports: dict[Call, dict[str, Event]] = defaultdict(dict)
    ends: dict[Call, int] = {}
    for order, event in enumerate(trace.of("forward", step)):
        call = Call(event.path, event.call)
        ports[call][event.port] = event
        ends[call] = order
    return {call: ports[call] for call in sorted(ports, key=lambda call: ends[call])}


def _by_name(left: _Ports, right: _Ports) -> dict[Call, Call]:
    return {call: call for call in left if call in right}


def _by_map(path: Path, left: _Ports, right: _Ports) -> dict[Call, Call]:
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give a JSON object of A's module names to B's")
    try:
        content = json.loads(path.read_text())
        names = {str(a): str(b) for a, b in content.items()}
    except (ValueError, AttributeError):
        raise ConfigError(f"{path}: expected a JSON object of A's module names to B's") from None
    for side, known, used in (("A", left, names), ("B", right, names.values())):
        paths = {call.path for call in known}
        if unknown := [name for name in used if name not in paths]:
            raise ConfigError(
                f"{path}: {', '.join(map(repr, unknown))}: no module of {side} that was called is"
                " called so"
            )
    return {
        call: partner
        for call in left
        if call.path in names and (partner := Call(names[call.path], call.call)) in right
    }


def _by_order(a: Trace, b: Trace, left: _Ports, right: _Ports, *, values: bool) -> dict[Call, Call]:
    """The best pairing that keeps the order of calls: a longest common subsequence with weights."""
    # what does nothing outside of training is found wherever somebody put it, and says nothing
    rows = [call for call in left if kind_of(a, call.path) != "identity"]
    columns = [call for call in right if kind_of(b, call.path) != "identity"]
    own = _own_parameters(a), _own_parameters(b)
    scores = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            score = _alike(a, b, row, column, left[row], right[column], own)
            if score and values:
                score += _correlation(a, b, left[row], right[column])
            scores[i, j] = score
    best = np.zeros((len(rows) + 1, len(columns) + 1))
    for i in range(len(rows)):
        for j in range(len(columns)):
            taken = best[i, j] + scores[i, j] if scores[i, j] else -1.0
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], taken)
    partners: dict[Call, Call] = {}
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


def _alike(
    a: Trace,
    b: Trace,
    row: Call,
    column: Call,
    mine: Mapping[str, Event],
    theirs: Mapping[str, Event],
    parameters: tuple[dict[str, _Parameters], dict[str, _Parameters]],
) -> float:
    """How much two calls look like the same computation; 0 if they cannot be."""
    kind = kind_of(a, row.path)
    if kind != kind_of(b, column.path) or not _main_pair("out", mine, theirs):
        return 0.0
    own, other = parameters[0].get(row.path, {}), parameters[1].get(column.path, {})
    if kind != "other" and bool(own) != bool(other):
        return 0.0
    score = 1.0 + (own.keys() == other.keys()) + bool(_main_pair("in", mine, theirs))
    score += 0.5 * (row.path.rpartition(".")[2] == column.path.rpartition(".")[2])
    score += 4.0 * bool(own and own == other)  # a port has its original's weights
    return score + (0.5 if (row.path == "") == (column.path == "") else -0.75)


def _correlation(a: Trace, b: Trace, mine: Mapping[str, Event], theirs: Mapping[str, Event]) -> float:
    pair = _main_pair("out", mine, theirs)
    if pair is None or pair.a.statistics or pair.b.statistics:
        return 0.0
    x = a.read(pair.a).astype(np.float64).reshape(-1)
    y = b.read(pair.b).astype(np.float64)
    y = (y if pair.axes is None else y.transpose(pair.axes)).reshape(-1)
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return 4.0 * abs(float(x @ y)) / size if size and np.isfinite(size) else 0.0


def _own_parameters(trace: Trace) -> dict[str, _Parameters]:
    """By module: the shapes of its own parameters, each with a number that its values alone decide."""
    found: dict[str, _Parameters] = defaultdict(dict)
    for event in trace.of("parameters", min(trace.steps, default=0)):
        value = float(np.linalg.norm(trace.read(event).astype(np.float64)))
        module = event.path.rpartition(".")[0]
        found[module].setdefault(event.shape, []).append(float(f"{value:.6g}"))
    return found


def _event_pairs(left: _Ports, right: _Ports, partners: Mapping[Call, Call]) -> Iterator[Pair]:
    for call, partner in partners.items():
        mine, theirs = left[call], right[partner]
        found = [pair for port in mine if port in theirs and (pair := _pair(mine[port], theirs[port]))]
        ports = {pair.a.port.partition("[")[0].partition(".")[0] for pair in found}
        for side in ("in", "out"):
            if side not in ports and (main := _main_pair(side, mine, theirs)):
                found.append(main)
        yield from found


def _main_pair(side: str, mine: Mapping[str, Event], theirs: Mapping[str, Event]) -> Pair | None:
    """The first tensor of that side in A with the first in B that can be the same."""
    first = next((event for port, event in mine.items() if re.match(rf"{side}\b", port)), None)
    if first is None:
        return None
    candidates = (event for port, event in theirs.items() if re.match(rf"{side}\b", port))
    return next((pair for event in candidates if (pair := _pair(first, event))), None)


def _pair(a: Event, b: Event) -> Pair | None:
    axes = layout_between(a.shape, b.shape)
    if axes is None:
        return None
    return Pair(a, b, None if axes == "same" else axes)
