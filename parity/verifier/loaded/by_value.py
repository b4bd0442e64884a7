"""Parameters that no name leads to, found by their values: equal, joined, split, stacked, copied."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parity.porting.formats.base import Stored
from parity.verifier.loaded.models import Leaf
from parity.verifier.loaded.numbers import CUT, Related, as_set, cast_of, state_of
from parity.verifier.loaded.report import OTHERS
from parity.verifier.loaded.suspect import exchanged
from parity.verifier.match import Matched, match
from parity.verifier.match.fingerprint import common_type
from parity.verifier.match.match_report import relation


class Found(NamedTuple):
    """What a parameter's values tell."""

    related: Related
    of: tuple[str, ...]
    """Tensors of the file."""


ALIKE = "like others"
SUMS = ("a sum", "a term of a sum")
"""States of a class token and of the row of positions that a file adds to it."""
ONLY = "the only one so in the model"
"""Evidence that does not count where names tell: a new bias of zeros, and zeros of another part."""


def find_by_value(
    leaves: Sequence[Leaf], tensors: Mapping[str, Stored], *, same_dialect: bool
) -> tuple[dict[str, Found], set[str], set[str]]:
    """Find the tensors whose numbers parameters hold.

    Args:
        same_dialect: whether most names are the same on both sides; where they are, names decide between
            tensors that hold one value.

    Returns:
        What was found, by the parameter's name; the tensors that were taken; and those of which a part
        was, and another part by nobody.
    """
    stored = {each.name: each.stored for each in leaves if each.stored is not None}
    if not stored or not tensors:
        return {}, set(), set()
    matched = match(stored, tensors)
    rest = set(matched.rest("a"))
    suspects = {} if same_dialect else exchanged(matched)
    found: dict[str, Found] = {}
    taken: set[str] = set()
    for name in stored:
        links = [*matched.of(name)]
        of = tuple(dict.fromkeys(link.b for link in links))
        unknown = next((x.arrangement for x in links if not _is_known(x.arrangement)), None)
        if not links or (same_dialect and any(ONLY in link.why for link in links)):
            continue
        if name in suspects:
            found[name] = Found(Related(False, OTHERS, suspects[name]), of)
        elif name in rest:
            found[name] = Found(Related(False, "FILE's in part only"), of)
        elif unknown is not None:
            words = "; ".join(order.words for order in unknown.orders)
            found[name] = Found(Related(False, "FILE's in another order", words), of)
        elif len(links) > 1:
            found[name] = Found(Related(True, "joined"), of)
        elif (part := links[0].part_b) and part.stop - part.start > 1 and _is_cut(matched, of[0]):
            words = f"{part.text(matched.b[of[0]])} of {of[0]}, whose rest nothing holds"
            found[name] = Found(Related(False, CUT, words), of)
        else:
            cast = cast_of(matched.types_a[name], matched.types_b[of[0]])
            part = links[0].part_b
            one = part is None or part.stop - part.start == 1  # whole, or a slice of a stack
            state = state_of(relation(links[0], matched)) if one else "split"
            found[name] = Found(Related(True, state, "" if cast == "bit for bit" else cast), of)
        taken.update(of)
    for each in matched.sums:
        if each.side == "a":
            found[each.name] = Found(Related(True, SUMS[0], each.words), (each.term, each.table))
            taken.update((each.term, each.table))
        else:
            found |= {
                name: Found(Related(True, SUMS[1]), (each.name,)) for name in (each.term, each.table)
            }
            taken.add(each.name)
    found |= _of_zeros(matched, stored)
    alike = {} if same_dialect else _alike(matched) | _of_one_value(found, matched, stored, tensors)
    found |= alike
    taken |= {name for each in alike.values() for name in each.of}
    return found, taken, {name for name in matched.b if _is_cut(matched, name)}


def _is_known(arrangement: object) -> bool:
    """Return whether libraries have an arrangement: of axes, of q, k and v, or of rotary pairs."""
    orders = getattr(arrangement, "orders", ())
    known = all("interleaved by head" in x.words or "rotary" in x.words for x in orders)
    return bool(getattr(arrangement, "known", False)) and known


def _is_cut(matched: Matched, name: str) -> bool:
    """Return whether a part of a tensor was taken, and another part was not."""
    taken = any(link.b == name and link.part_b is not None for link in matched.links)
    return taken and name in matched.rest("b")


def _alike(matched: Matched) -> dict[str, Found]:
    """Return the parameters that cannot be told apart, as far as the file has as many of them."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, candidates in matched.ambiguous.items():
        groups[tuple(sorted(candidates))].append(name)
    found: dict[str, Found] = {}
    for candidates, names in groups.items():
        enough = len(names) <= len(candidates)
        short = f"one of {len(names)} that are alike, of which FILE has {len(candidates)}"
        related = Related(True, ALIKE) if enough else Related(False, "more than FILE has", short)
        found |= {name: Found(related, candidates) for name in names}
    return found


def _of_zeros(matched: Matched, stored: Mapping[str, Stored]) -> dict[str, Found]:
    """Return the class token that is zero: what the file adds to it is a row of positions, as it is."""
    rows = {
        math.prod(link.part_a.shape(matched.a[link.a])): link.b
        for link in matched.links
        if link.part_a is not None and link.part_a.stop - link.part_a.start == 1
    }
    zeros = [
        name
        for name in matched.rest("a")
        if (size := math.prod(matched.a[name])) in rows
        and matched.a[name][-1] == size
        and not stored[name].load().any()
        and len(matched.a[name]) > 1
    ]
    if len(zeros) != 1:
        return {}
    return {zeros[0]: Found(Related(True, SUMS[1]), (rows[math.prod(matched.a[zeros[0]])],))}


def _of_one_value(
    found: Mapping[str, Found],
    matched: Matched,
    stored: Mapping[str, Stored],
    tensors: Mapping[str, Stored],
) -> dict[str, Found]:
    """Return the parameters that hold one value throughout, such as the norms of an untrained model,
    which nothing else tells, as far as the file has as many such numbers: in a stack, say."""
    ours, theirs = (
        _by_value(side, [name for name in side if name in set(rest) and name not in found])
        for side, rest in ((stored, matched.rest("a")), (tensors, matched.rest("b")))
    )
    alike: dict[str, Found] = {}
    for value, names in ours.items():
        room = {name: math.prod(tensors[name].shape) for name in theirs.get(value, ())}
        for name in sorted(names, key=lambda name: -math.prod(stored[name].shape)):
            size = math.prod(stored[name].shape)
            where = next((n for n, left in room.items() if left >= size and left % size == 0), None)
            if where is None:
                continue
            room[where] -= size
            alike[name] = Found(Related(True, ALIKE), (where,))
    return alike


def _by_value(side: Mapping[str, Stored], names: Sequence[str]) -> dict[float, list[str]]:
    """Return the names of tensors that hold one value throughout, by this value."""
    groups: dict[float, list[str]] = defaultdict(list)
    for name in names:
        array = side[name].load().reshape(-1)
        if array.size and array.dtype.kind not in "iubc" and (array == array[0]).all():
            groups[float(array[0])].append(name)
    return groups


class Copies:
    """Looks for whole tensors of the file by their numbers, whatever names say.

    Args:
        leaves: the parameters that are looked for; those that hold one value throughout are not.
        tensors: all tensors of the file.
    """

    def __init__(self, leaves: Sequence[Leaf], tensors: Mapping[str, Stored]) -> None:
        self._of: dict[str, list[str]] = {}
        wanted: dict[tuple[np.dtype, int, int], list[str]] = defaultdict(list)
        types = {each.dtype for each in tensors.values()}
        for leaf in leaves:
            if leaf.stored is None or leaf.stored.dtype.kind in "iub":
                continue
            array = leaf.stored.load()
            if array.size < LEAST or (array == array.reshape(-1)[0]).all():
                continue
            for kind in {common_type(array.dtype, other) for other in types} - {None}:
                assert kind is not None
                wanted[kind, array.size, as_set(array, kind)].append(leaf.name)
        sizes = {size for _, size, _ in wanted}
        kinds = {kind for kind, _, _ in wanted}
        for name, each in tensors.items():
            if int(np.prod(each.shape, dtype=np.int64)) not in sizes:
                continue
            array = each.load()
            for kind in kinds:
                if common_type(array.dtype, kind) == kind:
                    for leaf in wanted.get((kind, array.size, as_set(array, kind)), ()):
                        self._of.setdefault(leaf, []).append(name)

    def of(self, leaf: Leaf) -> list[str]:
        """Return the tensors that hold a parameter's numbers, in any order."""
        return self._of.get(leaf.name, [])


LEAST = 4
"""Fewest numbers that tell a tensor."""
