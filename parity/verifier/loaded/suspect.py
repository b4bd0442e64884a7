"""Parameters that hold numbers of the file, but by their names or beside the others not the right ones."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from parity.porting.formats.base import Stored
from parity.verifier.loaded.numbers import AS_INITIALISED, LEAST_DRAWN, OTHER_NUMBERS
from parity.verifier.loaded.report import Finding
from parity.verifier.match import Link, Matched

ROLES = {"q": "q", "query": "q", "queries": "q", "wq": "q",
         "k": "k", "key": "k", "keys": "k", "wk": "k",
         "v": "v", "value": "v", "values": "v", "wv": "v"}  # fmt: skip
"""Words in names for queries, keys and values."""
PLAIN, TURNED = "bit for bit", "transposed"
JOINED = {"qkv": "qkv", "in_proj": "qkv", "c_attn": "qkv", "query_key_value": "qkv", "kv": "kv"}
"""Names of tensors that join them, in this order."""


def exchanged(matched: Matched) -> dict[str, str]:
    """Return the parameters that hold another one's numbers, by three signs, with these in words.

    Queries, keys and values by their names; a parameter of one block that holds what another one has in the
    other blocks; and blocks in another order.
    """
    return _by_role(matched) | _by_other_blocks(matched) | _by_order(matched)


def _by_role(matched: Matched) -> dict[str, str]:
    wrong = {}
    for link in matched.links:
        ours = _role(link.a, link.part_a, matched.a[link.a])
        theirs = _role(link.b, link.part_b, matched.b[link.b])
        if ours and theirs and ours != theirs:
            wrong[link.a] = f"holds {WORDS[theirs]} where it has {WORDS[ours]}"
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


def _by_other_blocks(matched: Matched) -> dict[str, str]:
    """A parameter whose like in most blocks holds another tensor, which here another one holds."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for link in matched.links:
        kinds[_skeleton(link.a)][_kind(link)] += 1
    usual: dict[str, str] = {}
    for ours, counts in kinds.items():
        (theirs, count), *_ = counts.most_common()
        if 2 * count > counts.total():
            usual[theirs] = ours
    wrong = {}
    for link in matched.links:
        owner = usual.get(_kind(link), _skeleton(link.a))
        if owner != _skeleton(link.a) and usual.get(kinds[_skeleton(link.a)].most_common(1)[0][0]):
            wrong[link.a] = f"holds {link.b}, which in other blocks {owner} holds"
    return wrong


def _by_order(matched: Matched) -> dict[str, str]:
    """Parameters of blocks that are numbered in another order than the file's blocks."""
    groups: dict[tuple[str, str], list[tuple[tuple[int, ...], tuple[int, ...], Link]]] = defaultdict(
        list
    )
    for link in matched.links:
        stacked = (
            (link.part_b.start,) if link.part_b and link.part_b.stop - link.part_b.start == 1 else ()
        )
        key = _skeleton(link.a), f"{_kind(link)} {bool(stacked)}"
        groups[key].append((_numbers(link.a), (*_numbers(link.b), *stacked), link))
    wrong = {}
    for members in groups.values():
        ours = sorted(members, key=lambda each: each[:2])
        theirs = sorted(each[1] for each in members)
        for one in (theirs, theirs[::-1]):
            if [each[1] for each in ours] == one:
                break
        else:
            wrong |= {
                link.a: f"holds {link.b}, out of the order of the others"
                for (_, numbers, link), right in zip(ours, theirs, strict=True)
                if numbers != right
            }
    return wrong


def _kind(link: Link) -> str:
    """Return which tensor of a block it is, and which part if it is joined from several."""
    part = link.part_b
    text = "" if part is None or part.stop - part.start == 1 else f" {part.start / part.every:.3f}"
    return _skeleton(link.b) + text


def _skeleton(name: str) -> str:
    return re.sub(r"\d+", "{i}", name)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def turned_otherwise(
    findings: Mapping[str, Finding], tensors: Mapping[str, Stored]
) -> dict[str, Finding]:
    """Return the square matrices that are not transposed where all others of their kind are, or are where
    none else is: shapes do not show this, and a loader that looks at shapes alone goes wrong there."""
    square: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    turned: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for name, each in findings.items():
        if not each.held or len(each.of) != 1 or len(tensors[each.of[0]].shape) != 2:
            continue
        kind = tuple(re.split(r"[./]", x)[-1] for x in (name, each.of[0]))
        one, other = tensors[each.of[0]].shape
        if one == other:
            square[kind[0], kind[1]].append(each)
        elif 1 not in (one, other) and each.state in (PLAIN, TURNED):
            turned[kind[0], kind[1]].add(each.state == TURNED)
    wrong = {}
    for kind, members in square.items():
        for each in members if len(turned[kind]) == 1 else ():
            is_turned, should = each.state == TURNED, next(iter(turned[kind]))
            if is_turned != should and each.state in (PLAIN, TURNED):
                state = "not transposed, as all others are" if should else "transposed, as no other is"
                wrong[each.name] = replace(each, held=False, state=state)
    return wrong


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
