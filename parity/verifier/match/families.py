"""Families: the same leaf of all blocks as one entry, ``blocks.{i}.norm1.weight``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from parity.verifier.match.links import Link, Matched

INDEX = "{i}"


@dataclass(frozen=True)
class Family:
    """A leaf of A, or the same leaf of every block, with its leaves in B."""

    a: str
    """Name; a template if there are several blocks."""
    b: tuple[str, ...]
    """Names in B, one for each link; templates for the same block number."""
    links: tuple[Link, ...]
    """Links of the leaf, or of the first block's, by part of the leaf of A."""
    numbers: tuple[int, ...] = ()
    """Numbers of the blocks; empty for a single leaf."""

    def stacked(self, link: Link) -> bool:
        """Return whether the leaf of B is a stack and each block has one of its slices."""
        part = link.part_b
        return bool(self.numbers) and part is not None and part.start == self.numbers[0] and _one(link)

    @property
    def shown(self) -> str:
        """Name with the blocks that it stands for."""
        return show(self.a, self.numbers)


def show(template: str, numbers: Sequence[int]) -> str:
    """Return a template with the numbers that it stands for: ``blocks.{0-11}.norm1``."""
    if not numbers:
        return template
    first, last = min(numbers), max(numbers)
    whole = len(numbers) == last - first + 1
    return template.replace(
        INDEX, f"{{{first}-{last}}}" if whole else f"{{{','.join(map(str, numbers))}}}"
    )


def families(matched: Matched) -> list[Family]:
    """Return the leaves of A that have partners, in A's order; those of like blocks are joined."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in matched.a:
        links = matched.of(name)
        if links:
            forms = tuple(_shared_facts(link, matched) for link in links)
            groups.setdefault((skeleton(name), matched.a[name], forms), []).append(name)
    return [family for names in groups.values() for family in _joined(names, matched)]


def template(names: Sequence[str], numbers: Sequence[int]) -> str | None:
    """Return the template of several names, with ``{i}`` in place of the given numbers; None if the
    names differ elsewhere, too."""
    split = [re.split(r"(\d+)", name) for name in names]
    pieces = []
    for tokens in zip(*split, strict=True) if len({len(each) for each in split}) == 1 else ():
        if len(set(tokens)) == 1:
            pieces.append(tokens[0])
        elif all(token == str(number) for token, number in zip(tokens, numbers, strict=True)):
            pieces.append(INDEX)
        else:
            return None
    return "".join(pieces) or None


def _joined(names: Sequence[str], matched: Matched) -> list[Family]:
    links = [matched.of(name) for name in names]
    alone = [
        Family(name, tuple(link.b for link in own), own) for name, own in zip(names, links, strict=True)
    ]
    numbers = [block(name) for name in names]
    if len(names) < 2 or None in numbers:
        return alone
    blocks = [number for number in numbers if number is not None]
    ours = template(names, blocks)
    theirs = [template([own[k].b for own in links], blocks) for k in range(len(links[0]))]
    slices = [(own[k].part_b, i) for own, i in zip(links, blocks, strict=True) for k in range(len(own))]
    if any(_one(link) for link in links[0]) and any(
        part is None or part.start != i for part, i in slices
    ):
        return alone
    if ours is None or None in theirs:
        return alone
    names_b = tuple(each for each in theirs if each is not None)
    return [Family(ours, names_b, links[0], tuple(blocks))]


def _shared_facts(link: Link, matched: Matched) -> tuple[object, ...]:
    """Return the facts that all links of one family share."""
    part = link.part_b._replace(start=0, stop=1) if link.part_b and _one(link) else link.part_b
    orders = tuple((order.axis, order.words) for order in link.arrangement.orders)
    return (
        link.part_a,
        part,
        matched.b[link.b],
        link.arrangement.layout,
        orders,
        link.grade,
        str(link.kind),
    )


def _one(link: Link) -> bool:
    """Return whether B's part of a link is one slice of a stack."""
    part = link.part_b
    return part is not None and part.stop - part.start == 1 and part.every > 1


def skeleton(name: str) -> str:
    """Return a name with ``{i}`` in place of its first number, that of the block."""
    return re.sub(r"\d+", INDEX, name, count=1)


def block(name: str) -> int | None:
    """Return the first number in a name."""
    number = re.search(r"\d+", name)
    return int(number[0]) if number else None
