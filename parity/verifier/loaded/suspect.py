"""Parameters that hold numbers of the file, but by their names or by the others not the right ones."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from parity.porting.formats.base import Stored
from parity.verifier.loaded.numbers import AS_INITIALISED, LEAST_DRAWN, OTHER_NUMBERS
from parity.verifier.loaded.report import BLOCK, Finding
from parity.verifier.match import Link, Matched

ROLES = {"q": "q", "query": "q", "queries": "q", "wq": "q",
         "k": "k", "key": "k", "keys": "k", "wk": "k",
         "v": "v", "value": "v", "values": "v", "wv": "v"}  # fmt: skip
"""Words in names for queries, keys and values."""
PLAIN, TURNED = "bit for bit", "transposed"
LAID_OUT = (PLAIN, TURNED, "reshaped", "axes permuted")
JOINED = {"qkv": "qkv", "in_proj": "qkv", "c_attn": "qkv", "query_key_value": "qkv", "kv": "kv"}
"""Names of tensors that join them, in this order."""


def exchanged(matched: Matched) -> dict[str, str]:
    """Return the parameters that hold another one's numbers, by three signs, with these in words.

    Queries, keys and values by their names; a parameter of one block that holds what another one has in
    the other blocks; and blocks in another order.
    """
    return _by_role(matched) | _by_blocks(matched)


def _by_role(matched: Matched) -> dict[str, str]:
    wrong = {}
    for link in matched.links:
        ours = _role(link.a, link.part_a, matched.a[link.a])
        theirs = _role(link.b, link.part_b, matched.b[link.b])
        if ours and theirs and ours != theirs:
            wrong[link.a] = f"{link.b}: {WORDS[theirs]}, where {WORDS[ours]} belong"
    return wrong


WORDS = {"q": "queries", "k": "keys", "v": "values"}


def _role(name: str, part: object, shape: tuple[int, ...]) -> str:
    """Return q, k or v, by a name or by the place in a joined tensor; empty if neither tells."""
    joined = next((order for word, order in JOINED.items() if word in name), "")
    axis, start, stop, every = part if isinstance(part, tuple) else (0, 0, 0, 0)
    if joined and stop and every == shape[axis] and (stop - start) * len(joined) == every:
        return joined[start // (stop - start)]
    if joined:
        return ""
    words = re.split(r"[._/]", name)
    if words[-1] in ("value", "raw_value"):
        words = words[:-1]
    return next((ROLES[word] for word in reversed(words) if word in ROLES), "")


class _Place(NamedTuple):
    """Where in a file one block's parameter was found."""

    link: Link
    stems: tuple[str, ...]
    """Parts of the tensor's name, without numbers at their ends."""
    numbers: tuple[int, ...]
    """These numbers; behind them, of a stack, that of the slice."""
    part: str
    """Which part of the tensor it is, if it is joined from several."""


def _by_blocks(matched: Matched) -> dict[str, str]:
    """Compare what the same parameter of all blocks holds."""
    families: dict[object, list[_Place]] = defaultdict(list)
    for link in matched.links:
        families[_family(link.a), link.part_a].append(_place(link))
    wrong: dict[str, str] = {}
    roles: dict[object, dict[str, tuple[object, ...]]] = {}
    for family, places in families.items():
        places.sort(key=lambda place: _block(place.link.a))
        at = _block_number(places)
        if at is None:
            continue
        numbers = [place.numbers[at] for place in places]
        right = sorted(numbers)
        if numbers not in (right, right[::-1] if len(right) > 2 else right):
            wrong |= {
                place.link.a: f"{place.link.b}, out of the order of the others"
                for place, number in zip(places, right, strict=True)
                if place.numbers[at] != number
            }
        roles[family] = {
            place.link.a: (place.stems, place.numbers[:at], place.numbers[at + 1 :], place.part)
            for place in places
        }
    usual = {
        family: role
        for family, each in roles.items()
        if 2 * (found := Counter(each.values()).most_common(1)[0])[1] > len(each) and (role := found[0])
    }
    owners = {role: family for family, role in usual.items()}
    for family, each in roles.items():
        for place in families[family]:
            role = each[place.link.a]
            if family in usual and role != usual[family] and owners.get(role, family) != family:
                wrong[place.link.a] = f"{place.link.b}, which is another one's in the other blocks"
    return wrong


def _place(link: Link) -> _Place:
    words = re.split(r"[./]", link.b)
    ends = [re.fullmatch(r"(.*?)_?(\d*)", word) for word in words]
    part, stacked = "", ()
    if link.part_b is not None:
        one = link.part_b.stop - link.part_b.start == 1
        stacked = (link.part_b.start,) if one else ()
        part = "" if one else f"{link.part_b.start / link.part_b.every:.3f}"
    return _Place(
        link,
        tuple(end[1] for end in ends if end),
        (*(int(end[2] or -1) for end in ends if end), *stacked),
        part,
    )


def _family(name: str) -> str:
    """Return a parameter's name without the number of its block."""
    return BLOCK.sub("{i}", name, count=1)


def _block(name: str) -> int:
    number = BLOCK.search(name)
    return int(number[0]) if number else -1


def _block_number(places: list[_Place]) -> int | None:
    """Return which number in the names is that of the block: the slice of a stack, or the first number
    that is another one in each; None if there is none."""
    if len(places) < 2 or len({len(place.numbers) for place in places}) > 1:
        return None
    columns = list(zip(*(place.numbers for place in places), strict=True))
    apart = [at for at, column in enumerate(columns) if len(set(column)) == len(places)]
    return None if not apart else apart[-1] if len(columns) > len(places[0].stems) else apart[0]


def turned_otherwise(
    findings: Mapping[str, Finding], tensors: Mapping[str, Stored]
) -> dict[str, Finding]:
    """Return the tensors that are not transposed where all others of their kind are, or are where none
    is. Shapes do not show this of a square matrix: a loader that looks at shapes goes wrong there."""
    kinds: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    blocks: dict[str, list[Finding]] = defaultdict(list)
    for name, each in findings.items():
        if each.held and len(each.of) == 1 and each.state in LAID_OUT:
            blocks[_family(name)].append(each)
            if len(tensors[each.of[0]].shape) == 2 and each.state in (PLAIN, TURNED):
                kinds[_last(name), _last(each.of[0])].append(each)
    wrong = {}
    for members in kinds.values():
        usual = {each.state for each in members if _is_oblong(tensors[each.of[0]])}
        if len(usual) == 1:
            wrong |= _others(members, *usual)
    for members in blocks.values():
        state, count = Counter(each.state for each in members).most_common(1)[0]
        if 2 * count > len(members) > 2:
            wrong |= _others(members, state)
    return wrong


def _others(members: list[Finding], usual: str) -> dict[str, Finding]:
    return {
        each.name: replace(each, held=False, state=f"{each.state}, where the others are {usual}")
        for each in members
        if each.state != usual
    }


def _is_oblong(stored: Stored) -> bool:
    one, other = stored.shape
    return one != other and 1 not in (one, other)


def _last(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def beside_what_is_drawn(
    findings: Mapping[str, Finding], stored: Mapping[str, Stored | None]
) -> dict[str, Finding]:
    """Return the parameters of few numbers, such as a bias, beside one of the same layer that looks as
    initialised: by themselves they do not tell."""
    layers = {_layer(name) for name, each in findings.items() if each.state == AS_INITIALISED}
    return {
        name: replace(each, state=AS_INITIALISED, words="as what is beside it")
        for name, each in findings.items()
        if each.state == OTHER_NUMBERS and _layer(name) in layers
        if (array := stored.get(name)) is not None and math.prod(array.shape) < LEAST_DRAWN
    }


def _layer(name: str) -> str:
    return re.sub(r"[._/][^._/]*$", "", name)
