"""Matching by probing: modules that computed the same hold leaves that correspond, whatever the values.

Two traces of the same batch show the input and output of each module. If two modules agree in both, or
are the only ones with the same output, their leaves are paired by size and, if several have the same
size, by how close the values are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import ml_dtypes
import numpy as np

from parity.measure.traces.format import Event
from parity.measure.traces.reader import Trace
from parity.verifier.match.arrange import guesses
from parity.verifier.match.fingerprint import bits, common_type
from parity.verifier.match.leaves import Leaves, modules_above
from parity.verifier.match.links import Arrangement, Link, Matched
from parity.verifier.match.statistics import Statistics

CLOSE = 0.01
"""Largest distance, relative to the norm, of two leaves that are paired by their values."""


class _Call(NamedTuple):
    """First input and first output of a module."""

    given: Event
    gave: Event


def probe(matched: Matched, trace_a: Trace, trace_b: Trace, a: Leaves, b: Leaves) -> Matched:
    """Add partners for leaves without one, from what the modules around them computed."""
    calls = [_calls(trace) for trace in (trace_a, trace_b)]
    links = list(matched.links)
    for same_input in (True, False):
        open_a = _open(a, {link.a for link in links})
        open_b = _open(b, {link.b for link in links})
        paired = _paired(calls, open_a, open_b, (trace_a, trace_b), same_input=same_input)
        for ours, theirs in paired:
            taken_a, taken_b = ({link.a for link in links}, {link.b for link in links})
            left = [name for name in open_a if ours in modules_above(name) and name not in taken_a]
            right = [name for name in open_b if theirs in modules_above(name) and name not in taken_b]
            what = "were given the same and gave the same" if same_input else "gave the same"
            for x, y in _by_size(a, b, left, right):
                turned = _turned(a, x, trace_a, calls[0][ours]), _turned(b, y, trace_b, calls[1][theirs])
                links.append(_link(a, b, x, y, turned, f"{ours} and {theirs} {what}"))
    links += _of_models(calls, (trace_a, trace_b), a, b, links)
    order = {name: index for index, name in enumerate(matched.a)}
    links.sort(key=lambda link: (order[link.a], link.part_a is not None and link.part_a.start, link.b))
    found_a, found_b = {link.a for link in links}, {link.b for link in links}
    return replace(
        matched,
        links=tuple(links),
        ambiguous=_without(matched.ambiguous, found_a, found_b),
        ambiguous_b=_without(matched.ambiguous_b, found_b, found_a),
    )


def _of_models(
    calls: Sequence[dict[str, _Call]],
    traces: tuple[Trace, Trace],
    a: Leaves,
    b: Leaves,
    links: Sequence[Link],
) -> list[Link]:
    """Pair leaves that are in no pair of modules, such as a class token, if the whole models agree; only
    by closeness, because the models have so many leaves."""
    if not all("" in each for each in calls):
        return []
    ours, theirs = (_seen(trace, each[""]) for trace, each in zip(traces, calls, strict=True))
    if not all(_close(x, y) for x, y in zip(ours, theirs, strict=True)):
        return []
    left, right = _open(a, {link.a for link in links}), _open(b, {link.b for link in links})
    why = "the models were given the same and gave the same"
    near = [
        (x, y)
        for x in left
        for y in right
        if a.size(x) == b.size(y) and _nearest(a, x, b, y)[1] <= CLOSE
    ]
    return [_link(a, b, x, y, (None, None), why) for x, y in _mutual(near)]


def _mutual(near: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs whose leaves are near no other leaf."""
    return [
        (x, y)
        for x, y in near
        if sum(x == first for first, _ in near) == sum(y == second for _, second in near) == 1
    ]


def _without(candidates, names: set[str], of: set[str]) -> dict[str, tuple[str, ...]]:
    left = {name: tuple(each for each in c if each not in of) for name, c in candidates.items()}
    return {name: c for name, c in left.items() if name not in names and c}


def _calls(trace: Trace) -> dict[str, _Call]:
    """Return the first call of each module that has an input and an output, in the first step."""
    given: dict[str, Event] = {}
    gave: dict[str, Event] = {}
    for event in trace.of("forward", next(iter(trace.steps), None)):
        if not event.call:
            (given if event.port.startswith("in") else gave).setdefault(event.path, event)
    return {path: _Call(given[path], gave[path]) for path in given if path in gave}


def _paired(
    calls: Sequence[dict[str, _Call]],
    open_a: Sequence[str],
    open_b: Sequence[str],
    traces: tuple[Trace, Trace],
    *,
    same_input: bool,
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of modules around open leaves that computed the same, the innermost first."""
    modules = [
        sorted({m for name in names for m in modules_above(name) if m in each}, key=lambda m: -len(m))
        for names, each in ((open_a, calls[0]), (open_b, calls[1]))
    ]
    seen = [
        {m: _seen(trace, each[m]) for m in own}
        for trace, each, own in zip(traces, calls, modules, strict=True)
    ]

    def same(x: str, y: str) -> bool:
        (given, gave), (given_b, gave_b) = seen[0][x], seen[1][y]
        return _close(gave, gave_b) and (not same_input or _close(given, given_b))

    def innermost(names: list[str]) -> list[str]:
        return [n for n in names if not any(other.startswith((f"{n}.", f"{n}/")) for other in names)]

    for x in modules[0]:
        partners = innermost([y for y in modules[1] if same(x, y)])
        if len(partners) == 1:
            rivals = innermost([other for other in modules[0] if same(other, partners[0])])
            if rivals == [x]:
                yield x, partners[0]


def _seen(trace: Trace, call: _Call) -> tuple[tuple[Event, Statistics], tuple[Event, Statistics]]:
    given, gave = ((event, Statistics.of(trace.read(event))) for event in (call.given, call.gave))
    return given, gave


def _close(one: tuple[Event, Statistics], other: tuple[Event, Statistics]) -> bool:
    """Return whether two arrays seem the same up to rounding and the order of their axes."""
    if one[0].size != other[0].size or "float" not in one[0].dtype or "float" not in other[0].dtype:
        return False
    # rounding adds up over a forward pass, so half of the type's digits are compared
    limit = math.sqrt(max(float(ml_dtypes.finfo(each[0].dtype).eps) for each in (one, other)))
    x, y = one[1], other[1]
    scale = max(abs(x.smallest), abs(x.largest), 1e-30)
    spread = (x.mean - y.mean, x.smallest - y.smallest, x.largest - y.largest)
    return abs(x.norm - y.norm) <= limit * max(x.norm, 1e-30) and all(
        abs(d) <= limit * scale for d in spread
    )


def _open(leaves: Leaves, taken: set[str]) -> list[str]:
    return [name for name in leaves.prints if name not in taken]


def _by_size(a: Leaves, b: Leaves, left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of leaves of two modules: the only ones of their size, or those near no others."""
    for size in sorted({a.size(name) for name in left}):
        ours = [name for name in left if a.size(name) == size]
        theirs = [name for name in right if b.size(name) == size]
        if len(ours) == len(theirs) == 1:
            yield ours[0], theirs[0]
            continue
        near = [(x, y) for x in ours for y in theirs if _nearest(a, x, b, y)[1] <= CLOSE]
        yield from _mutual(near)


def _nearest(a: Leaves, x: str, b: Leaves, y: str) -> tuple[Arrangement, float]:
    """Return the arrangement in which two leaves differ least, and the relative difference."""
    ours, theirs = a.load(x).astype(np.float64), b.load(y).astype(np.float64)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Arrangement(""), math.inf
    norm = float(np.linalg.norm(ours)) or 1.0
    found = [
        (float(np.linalg.norm(each.apply(theirs) - ours)) / norm, index, each)
        for index, each in enumerate(guesses(ours.shape, theirs.shape, x))
    ]
    distance, _, arrangement = min(found, default=(math.inf, 0, Arrangement("")))
    return arrangement, distance


def _link(
    a: Leaves, b: Leaves, x: str, y: str, turned: tuple[bool | None, bool | None], why: str
) -> Link:
    arrangement, distance = _nearest(a, x, b, y)
    kind = common_type(a.types[x], b.types[y])
    if kind is not None and distance <= CLOSE:
        equal = np.array_equal(bits(arrangement.apply(b.load(y)), kind), bits(a.load(x), kind))
        if equal:
            return Link(x, None, y, None, kind, arrangement, "by probing", why)
        return Link(x, None, y, None, None, arrangement, "by probing", f"{why}; {distance:.1e} apart")
    allowed = guesses(a.shapes[x], b.shapes[y], x)
    if None not in turned:
        allowed = [each for each in allowed if each.permuted == (turned[0] != turned[1])]
    elif len([length for length in a.shapes[x] if length > 1]) < 2:
        allowed = allowed[:1]
    arrangement = allowed[0] if len(allowed) == 1 else Arrangement("")
    return Link(x, None, y, None, None, arrangement, "by probing", why)


def _turned(leaves: Leaves, name: str, trace: Trace, call: _Call) -> bool | None:
    """Return whether a matrix is (inputs, outputs) and not (outputs, inputs), by which of the two turns
    its module's input into its output, up to a bias; None if neither does."""
    shape = leaves.shapes[name]
    events = (call.given, call.gave)
    if len(shape) != 2 or any(event.spacing or not event.shape for event in events):
        return None
    x, y = (trace.read(event).astype(np.float64) for event in events)
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    matrix = leaves.load(name).astype(np.float64)
    if not all(np.isfinite(each).all() for each in (x, y, matrix)):
        return None
    turns: tuple[tuple[bool, Callable[[], np.ndarray]], ...] = (
        (False, lambda: matrix.T),
        (True, lambda: matrix),
    )
    for turned, make in turns:
        each = make()
        if each.shape != (x.shape[1], y.shape[1]) or len(x) != len(y) or len(x) < 2:
            continue
        bias = y - x @ each
        if np.abs(bias - bias[0]).max() <= 1e-3 * np.abs(y).max():
            return turned
    return None
