"""Results of matching as the table of a dialect, in the source of a module (docs/dialects.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from math import gcd

from parity.porting.dialects.layout import Layout
from parity.verifier.match.families import Family, block, families, skeleton, template
from parity.verifier.match.links import Arrangement, Link, Matched
from vit_config import ConfigError

KNOWN = frozenset("hdg")
"""Letters whose size follows from the schema when a file is written."""
_Span = tuple[str | None, int, int]
"""Leaf of A, or None for zeros; start and end of its stretch in a leaf of B."""
WIDTH = 105
"""Longest line, if names are not longer."""
MARK = "patch_embed.proj.weight"
"""A parameter that every schema has."""


def table_text(matched: Matched, title: str) -> str:
    """Return the source of a module whose ``TABLE`` reads and writes B's files.

    Args:
        title: description of B, for the first line.

    Raises:
        ConfigError: A's leaves do not have this project's names.
    """
    if MARK not in matched.a:
        raise ConfigError(
            f"--table: A has no {MARK}, so its names are not this project's; give as A a file of"
            " timm's names (parity convert --to timm), and as B the one to be named"
        )
    lines = [
        f'"""{_plain(title)}: its names, as `parity match` found them."""',
        "",
        "from parity.porting.dialects.table import row",
        "",
        "TABLE = (",
    ]
    for each in _rows(matched):
        lines += [f"    {_plain(each) if each.startswith('#') else each}"]
    notes = [f"not decided: {name} is one of {', '.join(of)}" for name, of in matched.ambiguous.items()]
    notes += [f"{each.name} is {each.words}" for each in matched.sums]
    notes += [f"without a partner: {name}" for name in matched.rest("a")]
    notes += [f"nothing of ours: {name}" for name in matched.rest("b")]
    lines += [f"    # {_plain(note)}" for note in notes]
    return "\n".join([*lines, ")", ""])


def _rows(matched: Matched) -> Iterator[str]:
    cut: dict[str, list[str]] = {}
    for family in families(matched):
        stacks = [family.stacked(link) for link in family.links]
        if len(family.links) == 1 and family.links[0].part_b is not None and not stacks[0]:
            for name in family.members:
                cut.setdefault(matched.of(name)[0].b, []).append(name)
            continue
        problem = _problem(family, matched) or ("" if len(set(stacks)) == 1 else "stacked in part")
        layout = _layout(family.links[0], matched, stacked=stacks[0])
        yield _row(family.a, family.b, layout) if not problem else f"# {family.a}: {problem}"
    yield from _cut_rows(cut, matched)


def _problem(family: Family, matched: Matched) -> str:
    """Return why no row can express a family; empty if one can."""
    of = ", ".join(family.b)
    for link in family.links:
        problem = _unsaid(link.arrangement)
        if problem:
            return f"of {of}; {problem}"
        if link.part_b is not None and not family.stacked(link):
            return f"of {of}; a part of it alone"
        if (
            family.stacked(link)
            and link.part_b
            and (link.part_b.axis or len(family.numbers) != link.part_b.every)
        ):
            return f"of {of}; not a stack of all blocks along the first axis"
    parts = [link.part_a for link in family.links]
    if len(parts) == 1:
        return "" if parts[0] is None else f"of {of}; the rest of it is not there"
    lengths = [part.stop - part.start for part in parts if part and not part.axis]
    whole = sum(lengths) == matched.a[family.members[0]][0] and len(lengths) == len(parts)
    # queries, keys and values may have widths that follow from the schema
    equal = len(set(lengths)) == 1 or (len(lengths) == 3 and lengths[1] == lengths[2])
    layouts = {link.arrangement.layout for link in family.links}
    return "" if whole and equal and len(layouts) == 1 else f"of {of}; not joined along the first axis"


def _unsaid(arrangement: Arrangement) -> str:
    if not arrangement.known:
        return "in an order that was not recognised"
    if arrangement.orders:
        return arrangement.orders[0].words
    theirs, ours = Layout.parse(arrangement.layout)
    unknown = [sum(letter not in KNOWN for letter in axis) for axis in ours if len(axis) > 1]
    if any(len(axis) > 1 for axis in theirs) or any(count > 1 for count in unknown):
        return f"{arrangement.layout}, whose sizes a schema does not tell"
    return ""


def _layout(link: Link, matched: Matched, *, stacked: bool) -> str:
    arrangement = link.arrangement
    if stacked:
        return "L " + arrangement.layout.removeprefix("1 ")
    same = matched.a[link.a][1:] == matched.b[link.b][1:] and len(matched.a[link.a]) == len(
        matched.b[link.b]
    )
    return "" if arrangement.plain and same else arrangement.layout


def _cut_rows(cut: dict[str, list[str]], matched: Matched) -> Iterator[str]:
    """Yield the rows for leaves of B that join several leaves of A; like blocks share a row."""
    rows: dict[tuple[object, ...], list[tuple[tuple[str | None, ...], str]]] = {}
    for b, names in cut.items():
        own = sorted((matched.of(name)[0] for name in names), key=lambda link: link.part_b or ())
        spans: list[_Span] = [
            (link.a, link.part_b.start, link.part_b.stop) for link in own if link.part_b
        ]
        spans += [
            (None, part.start, part.stop) for part, value in matched.filled_b.get(b, ()) if not value
        ]
        spans.sort(key=lambda span: span[1])
        if problem := _uncut(own, spans, matched):
            yield f"# {', '.join(names)}: parts of {b}; {problem}"
            continue
        lengths = [stop - start for _, start, stop in spans]
        shares = tuple(length // gcd(*lengths) for length in lengths)
        options = "" if len(set(shares)) == 1 else f"parts={shares!r}"
        key = (_layout(own[0], matched, stacked=False), options, skeleton(b), skeleton(own[0].a))
        rows.setdefault(key, []).append((tuple(name for name, *_ in spans), b))
    for (layout, options, *_), each in rows.items():
        for ours, theirs in _generalised(each):
            yield _row(ours, (theirs,), str(layout), str(options))


def _uncut(own: list[Link], spans: list[_Span], matched: Matched) -> str:
    """Return why no row can express that these leaves are cut from one; empty if one can."""
    part = own[0].part_b
    if part is None:
        return "a part of each is a part of it"
    for link in own:
        if problem := _unsaid(link.arrangement):
            return problem
        if link.part_a is not None or link.part_b is None or link.part_b.axis != part.axis:
            return "not joined along one axis"
    theirs, ours = Layout.parse(own[0].arrangement.layout)
    covered = spans[0][1] == 0 and all(x[2] == y[1] for x, y in pairwise(spans))
    whole = covered and spans[-1][2] == matched.b[own[0].b][part.axis]
    return "" if whole and theirs[part.axis][:1] == ours[0][:1] else "not joined along our first axis"


def _generalised(
    rows: list[tuple[tuple[str | None, ...], str]],
) -> list[tuple[tuple[str | None, ...], str]]:
    """Join the rows of several blocks into one, if only the block's number differs."""
    numbers = [number for _, theirs in rows if (number := block(theirs)) is not None]
    columns = list(zip(*(ours for ours, _ in rows), strict=True))
    if len(rows) < 2 or len(numbers) != len(rows):
        return rows
    theirs = template([theirs for _, theirs in rows], numbers)
    templates: list[str | None] = []
    for column in columns:
        names = [name for name in column if name is not None]
        one = template(names, numbers) if len(names) == len(rows) else None
        if (one is None) == bool(names):
            return rows
        templates.append(one)
    return [(tuple(templates), theirs)] if theirs else rows


def _row(
    ours: str | tuple[str | None, ...], theirs: tuple[str, ...], layout: str, options: str = ""
) -> str:
    names = ours if isinstance(ours, str) else ours[0] if len(ours) == 1 else ours
    fields = [_quoted(names), _quoted(theirs[0] if len(theirs) == 1 else theirs)]
    fields += [_quoted(layout)] if layout else []
    fields += [options] if options else []
    line = f"*row({', '.join(fields)}),"
    if len(line) + 4 <= WIDTH:
        return line
    between = ",\n        "
    return f"*row(\n        {between.join(fields)},\n    ),"


def _plain(text: str) -> str:
    """Escape text so that it cannot end a comment or a string: names come from the file."""
    return text.encode("unicode_escape").decode().replace('"', "'")


def _quoted(value: str | tuple[str | None, ...] | None) -> str:
    if value is None:
        return "None"
    if isinstance(value, tuple):
        return f"({', '.join(map(_quoted, value))})"
    return json.dumps(value)
