"""Parameters of other names: those of B that hold the same numbers, whatever they are called, packed or
split, and however they are laid out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from parity.measure.error import relative_error, wide
from parity.measure.nearness import MOST as FARTHEST
from parity.measure.tolerance import epsilon
from parity.measure.traces import Event, Site, Trace
from parity.verifier.recordings.judge import GRAINS, compare
from parity.verifier.recordings.pairs import (
    Counterpart,
    Counterparts,
    EventPair,
    Traces,
    gathered,
    pairs_of,
    read_pair,
)

SHARED = 1 / 8
"""Share of the smaller parameter's numbers that the other must have for the two to belong together; the
sets must then agree as a whole."""


def counterparts(traces: Traces) -> Counterparts:
    """Find for each parameter of A without a partner where its numbers are in B.

    Numbers that are equal, such as the zeros of biases, are told apart by their gradients.
    """
    step_a, step_b = traces.a.steps[0], traces.b.steps[0]
    pairs = list(pairs_of(traces, {}, "parameters", step_a, step_b))
    rest_a = _rest(traces.a, step_a, {pair.a.site for pair in pairs})
    rest_b = _rest(traces.b, step_b, {pair.b.site for pair in pairs})
    partners = dict(_transposed(traces, pairs)) | dict(_renamed(traces, rest_a, rest_b))
    partners |= dict(_beside(partners, rest_a, rest_b))
    taken = {name for each in partners.values() for name in each.names}
    rest_a = [each for each in rest_a if each.path not in partners and each.spacing is None]
    rest_b = [each for each in rest_b if each.path not in taken and each.spacing is None]
    for group_a, group_b in _groups(traces, rest_a, rest_b):
        partners |= _elements(traces, group_a, group_b)
    return partners


def _transposed(traces: Traces, pairs: list[EventPair]) -> Iterator[tuple[str, Counterpart]]:
    """Yield the parameters that lie the other way under the same name and shape, as the square matrix of
    a layer of one's own may, if the forward passes are the same all the same."""
    turned = []
    for pair in pairs:
        a, b = (wide(each) for each in read_pair(traces.a, traces.b, pair))
        if pair.a.spacing or pair.b.spacing or not 2 <= a.ndim <= 4 or np.array_equal(a, b):
            continue
        places = np.arange(b.size).reshape(b.shape)
        for axes in itertools.permutations(range(b.ndim)):
            if b.transpose(axes).shape == a.shape and np.array_equal(b.transpose(axes), a):
                turned.append((pair.a.path, Counterpart((pair.b.path,), places.transpose(axes).ravel())))
                break
    if turned:
        forward = compare(traces, {}, "forward", traces.a.steps[0], traces.b.steps[0])
        yield from turned if forward.judged and forward.passed else ()


def _rest(trace: Trace, step: int, paired: set[Site]) -> list[Event]:
    return [each for each in trace.of("parameters", step) if each.site not in paired]


def _renamed(
    traces: Traces, rest_a: list[Event], rest_b: list[Event]
) -> Iterator[tuple[str, Counterpart]]:
    """Yield the parameters of A that one parameter of B alone equals, in the same layout."""
    for a in rest_a:
        same = [b for b in rest_b if _equal(traces, a, b)]
        if len(same) == 1 and sum(_equal(traces, other, same[0]) for other in rest_a) == 1:
            yield a.path, Counterpart((same[0].path,), None)


def _beside(
    partners: Counterparts, rest_a: list[Event], rest_b: list[Event]
) -> Iterator[tuple[str, Counterpart]]:
    """Yield the parameters of A, such as biases of zeros, that stand beside one whose partner is known,
    and have the name and shape of one beside that."""
    modules = {_module(a): _module(each.names[0]) for a, each in partners.items() if each.index is None}
    taken = {name for each in partners.values() for name in each.names}
    shapes = {b.path: b.shape for b in rest_b if b.path not in taken}
    for a in rest_a:
        name = f"{modules.get(_module(a.path))}.{a.path.rpartition('.')[2]}"
        if a.path not in partners and shapes.get(name) == a.shape:
            yield a.path, Counterpart((name,), None)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _equal(traces: Traces, a: Event, b: Event) -> bool:
    if (a.size, a.spacing) != (b.size, b.spacing) or _without_ones(a) != _without_ones(b):
        return False
    return np.array_equal(np.ravel(traces.a.read(a)), np.ravel(traces.b.read(b)))


def _without_ones(event: Event) -> tuple[int, ...]:
    return tuple(length for length in event.shape if length != 1)


def _groups(
    traces: Traces, rest_a: list[Event], rest_b: list[Event]
) -> Iterator[tuple[list[Event], list[Event]]]:
    """Yield sets of unpaired parameters that share numbers: stacked over layers here, packed there."""
    values_a = {each.path: np.unique(traces.a.read(each)) for each in rest_a}
    values_b = {each.path: np.unique(traces.b.read(each)) for each in rest_b}
    linked: dict[str, set[str]] = {a: set() for a in values_a}
    for a, mine in values_a.items():
        for b, theirs in values_b.items():
            small, large = sorted((mine, theirs), key=len)
            if np.isin(small, large).mean() >= SHARED:
                linked[a].add(b)
    while linked:
        a, partners = next(iter(linked.items()))
        group_a, group_b = {a}, set(partners)
        while more := {x for x, ys in linked.items() if ys & group_b} - group_a:
            group_a |= more
            group_b |= {y for x in more for y in linked[x]}
        for each in group_a:
            linked.pop(each)
        if group_b:
            yield [e for e in rest_a if e.path in group_a], [e for e in rest_b if e.path in group_b]


def _elements(traces: Traces, mine: list[Event], theirs: list[Event]) -> dict[str, Counterpart]:
    """Find the place in B of every number of a set of parameters; nothing if the sets differ."""
    values_a, values_b = _row(traces.a, mine), _row(traces.b, theirs)
    if values_a.size != values_b.size:
        return {}
    coarser = min(values_a.dtype, values_b.dtype, key=lambda each: each.itemsize)
    order_a = np.lexsort([*_gradients(traces.a, mine), values_a.astype(coarser)])
    order_b = np.lexsort([*_gradients(traces.b, theirs), values_b.astype(coarser)])
    if relative_error(values_b[order_b], values_a[order_a]) > max(FARTHEST.norm, np.finfo(coarser).eps):
        return {}
    index = np.empty(values_a.size, dtype=np.int64)
    index[order_a] = order_b
    names = tuple(each.path for each in theirs)
    cuts = np.cumsum([each.size for each in mine])[:-1]
    return {
        each.path: Counterpart(names, own) for each, own in zip(mine, np.split(index, cuts), strict=True)
    }


def _row(trace: Trace, events: Sequence[Event]) -> np.ndarray:
    return gathered([trace.read(each) for each in events], None, None)


def _gradients(trace: Trace, parameters: list[Event]) -> Iterator[np.ndarray]:
    """Yield the gradients of some parameters, of the last step first; zeros where there are none."""
    for step in reversed(trace.steps):
        sites = [Site(step, "gradients", each.path) for each in parameters]
        rows = [
            np.ravel(trace.read(trace[site])).astype(np.float64)
            if site in trace
            else np.zeros(each.size)
            for site, each in zip(sites, parameters, strict=True)
        ]
        row = np.concatenate(rows)
        least = GRAINS * max(epsilon(e.dtype) for e in parameters) * np.abs(row).max(initial=0.0)
        yield np.where(np.abs(row) <= least, 0.0, row)
