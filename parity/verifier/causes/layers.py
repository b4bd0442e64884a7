"""Layers with parameters of their own that were loaded in another order: names sorted as strings, a list
turned round, two exchanged; and parameters that were stacked in another order, as of experts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from parity.measure.shown import first_few
from parity.verifier.causes.cause import Explanation
from parity.verifier.causes.loops import first_use, loops_in_another_order
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import Index, is_weak
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region

MOST_ROWS = 256
_Columns = dict[str, list[int]]
"""The parameters of a list of layers, by their name in a layer; each in the order of the layers' use."""


def rows_or_layers_in_another_order(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Report the rows or layers that B runs in another order than A, once for all of them."""
    yield from loops_in_another_order(search)
    yield from layers_in_another_order(search)
    yield from stacks_in_another_order(search)


def layers_in_another_order(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield each list of layers of B's that holds the parameters of A's layers in another order; B is
    then patched with A's.

    No single exchange shows it: each layer has the parameters of another. All are exchanged at once,
    which must leave less of B apart from A.
    """
    now = search.round()
    if now is None:
        return
    of_a, of_b = search.a.consumers(), search.b.consumers()
    every: dict[tuple[int, ...], dict[str, list[list[int]]]] = {}
    for name, columns in lists_of_layers(search.b, of_b):
        orders = {suffix: _order(search, column, of_a) for suffix, column in columns.items()}
        for order in dict.fromkeys(each for each in orders.values() if each):
            alone = {order, None} == {*orders.values(), None}  # then what tells nothing has it, too
            every.setdefault(order, {})[name] = [
                columns[key]
                for key in sorted(orders, key=lambda key: orders[key] is None)
                if orders[key] == order or (alone and orders[key] is None)
            ]
    for order, lists in every.items():
        # the weights of one list may be applied between those of another
        for names in dict.fromkeys([tuple(lists), *((name,) for name in lists)]):
            some = [column for name in names for column in lists[name]]
            values = search.b.values([i for column in some for i in column])
            given = {
                i: values[column[j]]
                for column in some
                for i, j in zip(column, order, strict=True)
                if i != column[j] and i not in search.b.repaired
            }
            fed = search.b.fed(given, {})
            left = search.round(fed) if given else now
            if left is not None and (len(order) == 2 or len(left.unmet_b) >= len(now.unmet_b)):
                continue
            column = some[0]
            first = next(n for n, i in enumerate(order) if i != n)
            wanted = search.index.meets(search.b.operations[column[order[first]]])[0].index
            y = column[first]
            gap = Gap(
                Region(search.a, wanted, [], [first_use(search.a, wanted, of_a)]),
                Region(search.b, y, [], [first_use(search.b, y, of_b)]),
                given[y], values[y], repaired=fed,
            )  # fmt: skip
            search.b, now = fed, left
            yield gap, _explain(" and ".join(names), order)
            if now is None:
                return


def stacks_in_another_order(search: Search) -> Iterator[tuple[Gap, Explanation]]:
    """Yield stacked parameters of B's whose rows are A's parameters, such as those of experts, in
    another order than their names count; B is then patched with A's order."""
    now = search.round()
    if now is None:
        return
    readers = search.b.consumers()
    leaves = Index(search.a, {op.index for op in search.a.operations if op.kind == "parameter"})
    stacks = [op for op in search.b.operations if op.kind == "parameter" and readers[op.index]]
    held = {op.index: row for op in stacks if (row := _rows(search.b, op, leaves)) is not None}
    for order in dict.fromkeys(order for order, _ in held.values()):
        some = [i for i, (own, _) in held.items() if own == order]
        given = {i: search.b.cache[i][list(np.argsort(order))] for i in some}
        fed = search.b.fed(given, {})
        left = search.round(fed)
        if order == tuple(sorted(order)) or (left is not None and len(left.unmet_b) >= len(now.unmet_b)):
            continue
        y, wanted = some[0], held[some[0]][1]
        gap = Gap(
            Region(search.a, wanted, [], [first_use(search.a, wanted, search.a.consumers())]),
            Region(search.b, y, [], [first_use(search.b, y, readers)]),
            given[y], search.b.cache[y], repaired=fed,
        )  # fmt: skip
        names = ", ".join(search.b.operations[i].label for i in some[:3])
        message = f"the {len(order)} rows of {names} are A's {', '.join(map(str, order[:12]))}"
        search.b = fed
        yield gap, ("permuted", message)
        return


def _rows(b: Program, op: Operation, leaves: Index) -> tuple[tuple[int, ...], int] | None:
    """Return which of A's parameters, as their names count, the rows of a stacked one are, and the first
    row's; None where it is no stack of such parameters."""
    if len(op.shape) < 2 or not op.size or not 1 < op.shape[0] <= MOST_ROWS:
        return None
    lists: dict[tuple[str, str], dict[int, int]] = {}
    """The parameter of each row by its number; by the name around that number."""
    for row in b.cache[op.index]:
        for each in leaves.find(fingerprint(row)) if row.min() < row.max() else ():
            for number in re.finditer(r"\d+", each.label if each.size == row.size else ""):
                around = each.label[: number.start()], each.label[number.end() :]
                lists.setdefault(around, {}).setdefault(int(number[0]), each.index)
    whole = next((each for each in lists.values() if len(each) == op.shape[0]), None)
    if whole is None:
        return None
    ranks = {number: rank for rank, number in enumerate(sorted(whole))}
    return tuple(ranks[number] for number in whole), next(iter(whole.values()))


def _explain(name: str, order: tuple[int, ...]) -> Explanation:
    held = np.argsort(order).tolist()
    count, apart = len(held), [n for n, i in enumerate(held) if n != i]
    if held == list(range(count))[::-1]:
        return "reversed", f"the {count} layers {name} hold the parameters of A's layers backwards"
    if len(apart) == 2:
        pair = f"layers {apart[0]} and {apart[1]} of the {count} {name}"
        return "permuted", f"{pair} have each other's parameters"
    message = f"the {count} layers {name} hold the parameters of A's layers {first_few(held, 12)}"
    return "permuted", message


def lists_of_layers(
    program: Program, readers: Sequence[Sequence[int]]
) -> Iterator[tuple[str, _Columns]]:
    """Yield the lists of layers that parameters' names have: the name before the number, and what all
    layers have. Those with most parameters come first."""
    lists: dict[str, dict[str, dict[int, int]]] = {}
    for op in program.operations:
        if op.kind == "parameter" and readers[op.index]:
            for each in re.finditer(r"\d+", op.label):
                columns = lists.setdefault(op.label[: each.start()], {})
                columns.setdefault(op.label[each.end() :], {})[int(each[0])] = op.index
    for name, columns in sorted(lists.items(), key=lambda each: -sum(map(len, each[1].values()))):
        count = max(map(len, columns.values()))
        whole = {
            suffix: sorted(column.values(), key=lambda i: first_use(program, i, readers))
            for suffix, column in columns.items()
            if len(column) == count > 1
            and len({program.operations[i].shape for i in column.values()}) == 1
        }
        parts = count == 2 and name[-1:].isalpha()  # norm1 and norm2 are no two layers
        if whole and not parts:
            yield name.rstrip("._"), whole


def _order(
    search: Search, column: list[int], readers: Sequence[Sequence[int]]
) -> tuple[int, ...] | None:
    """Return, for each layer of B's, the one that holds what A's layer there has; nothing if all hold
    that themselves; None if the parameters do not tell."""
    uses = []
    for i in column:
        op = search.b.operations[i]
        partners = [] if is_weak(op) else search.index.meets(op)
        if not partners:
            return None
        uses.append(min(first_use(search.a, each.index, readers) for each in partners))
    order = tuple(map(int, np.argsort(uses)))
    if len(set(uses)) < len(uses):
        return None
    return () if order == tuple(range(len(order))) else order
