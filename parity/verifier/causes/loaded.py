"""Parameters that a loader gave to other layers, or under other names, again and again: the second
block's weights in the third as well, each block's two biases exchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from parity.measure.shown import alike
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.layers import lists_of_layers
from parity.verifier.causes.loops import first_use
from parity.verifier.programs.operation import Operation
from parity.verifier.search.elsewhere import in_its_layout
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region

FEWEST = 2
"""Fewest parameters that must be given away alike: one alone is found by the search."""
MOST_GROUPS = 12
"""Most groups of parameters of which each is left out in turn, to see whether it is wrong itself."""

MOST_SAID = 4
"""Most parameters, or groups of them, that a place names."""


class _Wrong(NamedTuple):
    """A parameter of B that holds another of A's than the one that belongs there."""

    y: int
    x: int
    """A's parameter that belongs there."""
    value: np.ndarray
    """That one's, in B's layout."""
    own: str
    held: str
    wanted: str
    """Labels of B's parameter, and of A's that it holds and that it should."""


_Key = tuple[str, ...]
_Groups = dict[_Key, list[_Wrong]]


def parameters_of_others(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield the groups of B's parameters that hold others of A's than belong there; B is then patched.

    What belongs there is A's parameter of the same name, or the one of the same layer, counted by use. A
    group consists of the parameters of one layer, or of one name in several layers. All are exchanged
    at once, which must leave less of B apart from A; and more without any group.
    """
    now = search.round()
    if now is None:
        return
    groups = {key: some for key, some in _groups(search).items() if len(some) >= FEWEST}
    if not groups or _left(search, groups) >= len(now.unmet_b):
        return
    while len(groups) > 1 and len(groups) <= MOST_GROUPS:
        left = _left(search, groups)
        vain = next((key for key in groups if _left(search, groups, but=key) <= left), None)
        if vain is None:
            break
        del groups[vain]
    for place in _together(groups):
        first = min(place, key=lambda each: first_use(search.b, each.y, search.b.consumers()))
        fed = search.b.fed({each.y: each.value for each in place}, {})
        gap = Gap(
            Region(search.a, first.x, [], [first_use(search.a, first.x, search.a.consumers())]),
            Region(search.b, first.y, [], [first_use(search.b, first.y, search.b.consumers())]),
            first.value, np.asarray(search.b.cache[first.y]), repaired=fed,
        )  # fmt: skip
        message = _said(search, place)
        search.b = fed
        yield gap, ("", message)


def _left(search: Search, groups: _Groups, but: _Key | None = None) -> int:
    """Return how much of B is apart from A once some groups are exchanged."""
    given = {each.y: each.value for key, some in groups.items() if key != but for each in some}
    left = search.round(search.b.fed(given, {}))
    return 0 if left is None else len(left.unmet_b)


def _groups(search: Search) -> _Groups:
    """Return B's parameters that hold others of A's: those of a layer that all are another layer's, or
    of one name that all are of another name."""
    leaves = Index(search.a, {op.index for op in search.a.operations if op.kind == "parameter"})
    readers = search.b.consumers()
    by_use = _by_use(search, leaves)
    named = {op.label: op for op in leaves.operations}
    groups: _Groups = {}
    for op in search.b.operations:
        if op.kind != "parameter" or not readers[op.index] or op.mark is None or is_weak(op):
            continue
        held = [each for each in leaves.find(op.mark) if each.size == op.size]
        wanted = _of_the_name(op.label, named) or by_use.get(op.index)
        if not held or wanted is None or wanted in held:
            continue
        value = in_its_layout(search.a, search.b, held[0], wanted, op)
        if value is not None:
            each = _Wrong(op.index, wanted.index, value, op.label, held[0].label, wanted.label)
            groups.setdefault(_key(each), []).append(each)
    return groups


def _of_the_name(label: str, named: dict[str, Operation]) -> Operation | None:
    """Return A's parameter of a name, whatever the tree is called that B's is in."""
    while label not in named:
        _, dot, label = label.partition(".")
        if not dot:
            return None
    return named[label] if "." in label else None


def _by_use(search: Search, leaves: Index) -> dict[int, Operation]:
    """Return, for B's parameters of lists of layers, A's of the same layer, both by use: of lists
    that hold nothing but parameters of one list of A's, as long as they are."""
    readers_a = search.a.consumers()
    lists = [columns for _, columns in lists_of_layers(search.a, readers_a)]
    of_a = [set(column) for columns in lists for column in columns.values()]
    orders = [column for columns in lists for column in columns.values()]
    found: dict[int, Operation] = {}
    for _, columns in lists_of_layers(search.b, search.b.consumers()):
        for column in columns.values():
            held = [
                {each.index for each in leaves.find(op.mark)} if op.mark is not None else set()
                for op in (search.b.operations[i] for i in column)
            ]
            same = [
                order
                for order, all_of in zip(orders, of_a, strict=True)
                if len(order) == len(column) and all(each & all_of for each in held)
            ]
            if len(same) == 1:
                wanted = map(search.a.operations.__getitem__, same[0])
                found.update(zip(column, wanted, strict=True))
    return found


def _key(each: _Wrong) -> _Key:
    """Return what the parameters of a group have in common: their layer, and that which they hold, or
    their name in each layer."""
    split = _split(each)
    if split is not None:
        return "layer", split[0], split[2], split[3]
    own, held, wanted = (re.sub(r"\d+", "#", text) for text in (each.own, each.held, each.wanted))
    return "name", own, held, wanted


def _split(each: _Wrong) -> tuple[str, str, str, str] | None:
    """Return the layer of B's, the rest of the name there, and the two layers of A's; None where A's two
    names differ in more than the number of a layer."""
    numbers = [[*re.finditer(r"\d+", text)] for text in (each.held, each.wanted, each.own)]
    if len(numbers[0]) != len(numbers[1]):
        return None
    apart = [k for k, (m, n) in enumerate(zip(*numbers[:2], strict=True)) if m[0] != n[0]]
    if len(apart) != 1 or len(numbers[2]) <= apart[0]:
        return None
    held, wanted, own = (some[apart[0]].end() for some in numbers)
    if each.held[held:] != each.wanted[wanted:]:
        return None
    return each.own[:own], each.own[own:], each.held[:held], each.wanted[:wanted]


def _together(groups: _Groups) -> Iterator[list[_Wrong]]:
    """Yield the groups of each place: all layers, and two names that have each other's parameters."""
    layers = [each for key, some in groups.items() if key[0] == "layer" for each in some]
    if layers:
        yield layers
    names = {key: some for key, some in groups.items() if key[0] == "name"}
    while names:
        key, some = next(iter(names.items()))
        del names[key]
        others = [other for other in names if key[2:] == (other[3], other[2])]
        yield some + [each for other in others for each in names.pop(other)]


def _said(search: Search, place: Sequence[_Wrong]) -> str:
    """Say what each group holds: whole layers as such."""
    layers: dict[tuple[str, ...], list[_Wrong]] = {}
    texts: list[str] = []
    for each in place:
        split = _split(each)
        if split is None:
            texts.append(f"{each.own} holds A's {each.held} instead of {each.wanted}")
        else:
            layers.setdefault((split[0], *split[2:]), []).append(each)
    readers = search.b.consumers()
    leaves = [op for op in search.b.operations if op.kind == "parameter" and readers[op.index]]
    for (own, held, wanted), some in layers.items():
        of_layer = [op for op in leaves if op.label.startswith(f"{own}.") and not is_weak(op)]
        if {op.index for op in of_layer} == {each.y for each in some}:
            texts.append(f"{own}.* holds A's {held}.* instead of {wanted}.*")
        else:
            texts += (f"{each.own} holds A's {each.held} instead of {each.wanted}" for each in some)
    said = list(alike(texts))
    more = f"; {len(said) - MOST_SAID} more such" if len(said) > MOST_SAID else ""
    return "; ".join(said[:MOST_SAID]) + more
