"""Results of matching as tables and as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.tables import show_table
from parity.verifier.match.families import block as block_of
from parity.verifier.match.families import families, show, skeleton, template
from parity.verifier.match.links import Link, Matched, Shape, Slices

JSON_VERSION = 1
COLOURS = {"by value": "green", "by place": "yellow"}
SOME = 6
"""Most names of a list that are printed."""


def relation(link: Link, matched: Matched) -> str:
    """Return how the parts of a link are related, in words."""
    arrangement, part = link.arrangement, link.part_b
    theirs = _shape(matched.b[link.b], part)
    if part and theirs[0] == 1 and not part.axis:  # a slice of a stack, which has one axis less
        theirs = theirs[1:]
        arrangement = replace(arrangement, layout=arrangement.layout.removeprefix("1 "))
    text = arrangement.words(_shape(matched.a[link.a], link.part_a), theirs)
    types = matched.types_a[link.a], matched.types_b[link.b]
    if types[0] != types[1]:
        text += f" after a cast to {link.kind}" if text == "equal" else f", cast to {link.kind}"
    return text


def print_links(matched: Matched, console: Console) -> None:
    """Print each leaf of A with its partners; like blocks share a row."""
    table = _grid("leaf of A", "shape", "leaf of B", "shape", "relation", "how sure")
    for family in families(matched):
        for number, (link, theirs) in enumerate(zip(family.links, family.b, strict=True)):
            slices = show("[{i}]", family.numbers) if family.stacked(link) else None
            table.add_row(
                "" if number else escape(family.shown),
                escape(_with_part(matched.a[link.a], link.part_a)),
                escape(show(theirs, family.numbers)),
                escape(_with_part(matched.b[link.b], link.part_b, slices)),
                escape(relation(link, matched)),
                f"[{COLOURS[link.grade]}]{link.grade}[/]",
            )
    if matched.links:
        show_table(table, console)


def to_dict(matched: Matched) -> dict[str, Any]:
    """Return all results as plain data; docs/matching.md describes each entry."""
    return {
        "version": JSON_VERSION,
        "complete": matched.complete,
        "links": [_link(link, matched) for link in matched.links],
        "ambiguous": {
            "a": {name: list(of) for name, of in matched.ambiguous.items()},
            "b": {name: list(of) for name, of in matched.ambiguous_b.items()},
        },
        "unmatched": {"a": list(matched.rest("a")), "b": list(matched.rest("b"))},
        "sums": [each._asdict() for each in matched.sums],
        "filled": {
            side: {
                name: [{**part._asdict(), "value": repr(value)} for part, value in stretches]
                for name, stretches in filled.items()
            }
            for side, filled in (("a", matched.filled_a), ("b", matched.filled_b))
        },
    }


def _link(link: Link, matched: Matched) -> dict[str, Any]:
    return {
        "a": link.a,
        "part_a": link.part_a and link.part_a._asdict(),
        "b": link.b,
        "part_b": link.part_b and link.part_b._asdict(),
        "relation": relation(link, matched),
        "layout": link.arrangement.layout or None,
        "sizes": dict(link.arrangement.sizes),
        "orders": [
            {"axis": order.axis, "words": order.words, "indices": order.indices.tolist()}
            for order in link.arrangement.orders
        ],
        "type": str(link.kind),
        "sure": link.grade,
        "why": link.why,
    }


def print_rest(matched: Matched, console: Console) -> None:
    """Print the leaves that are ambiguous or left over, and the counts."""
    table = _grid()
    groups: dict[tuple[str, str], list[str]] = {}
    for name, candidates in matched.ambiguous.items():
        number = block_of(name)
        some = _some([c if number is None else _templated(c, number) for c in candidates])
        groups.setdefault((skeleton(name), some), []).append(name)
    for (_, some), names in groups.items():
        table.add_row(f"[yellow]ambiguous[/] {escape(_shown(names))}", escape(f"one of {some}"))
    sides = (
        ("A", matched.a, matched.rest("a"), matched.filled_a),
        ("B", matched.b, matched.rest("b"), matched.filled_b),
    )
    for side, shapes, rest, filled in sides:
        left: dict[str, list[str]] = {}
        for name in rest:
            left.setdefault(skeleton(name), []).append(name)
        for names in left.values():
            text = escape(f"{_shown(names)} {_shape_text(shapes[names[0]])}")
            table.add_row(f"[red]left over of {side}[/] {text}", "")
        for name, stretches in filled.items():
            values = ", ".join(f"{part.text(shapes[name])} is {value:g}" for part, value in stretches)
            table.add_row(f"[dim]only in {side}[/] {escape(name)}", escape(f"{values} throughout"))
    for each in matched.sums:
        table.add_row(f"[green]sum in {each.side.upper()}[/] {escape(each.name)}", escape(each.words))
    if table.row_count:
        show_table(table, console)
    console.print(_verdict(matched))


def _grid(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(columns))
    for name in columns or ("", ""):
        table.add_column(name, overflow="fold")
    return table


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SOME]) + (f", ... ({len(names)})" if len(names) > SOME else "")


def _templated(name: str, number: int) -> str:
    return skeleton(name) if block_of(name) == number else name


def _shown(names: Sequence[str]) -> str:
    numbers = [number for name in names if (number := block_of(name)) is not None]
    joined = template(names, numbers) if len(numbers) == len(names) > 1 else None
    return show(joined, numbers) if joined else ", ".join(names)


def _verdict(matched: Matched) -> str:
    grades = Counter()
    for name in matched.a:
        if links := matched.of(name):
            surest = ("by place", "by value")
            grades[min((link.grade for link in links), key=surest.index)] += 1
    parts = [f"{count} {grade}" for grade in COLOURS if (count := grades[grade])]
    parts += [f"{count} in sums"] if (count := len(_in_sums(matched))) else []
    parts += [f"{len(matched.ambiguous)} ambiguous"] if matched.ambiguous else []
    parts += [f"{len(left)} left over"] if (left := matched.rest("a")) else []
    theirs = [f"{len(matched.ambiguous_b)} ambiguous"] if matched.ambiguous_b else []
    theirs += [f"{len(left)} left over"] if (left := matched.rest("b")) else []
    text = f"{len(matched.a)} leaves of A: {', '.join(parts)}; {len(matched.b)} leaves of B"
    text += f": {', '.join(theirs)}" if theirs else ""
    unknown = sum(not link.arrangement.known for link in matched.links)
    text += f"; {unknown} in an order that was not recognised" if unknown else ""
    return f"[bold {'green' if matched.complete else 'yellow'}]{text}[/]"


def _in_sums(matched: Matched) -> set[str]:
    """Return the leaves of A that are only in sums."""
    names = [(x.name,) if x.side == "a" else (x.term, x.table) for x in matched.sums]
    return {name for each in names for name in each if not matched.of(name)}


def _shape(shape: Shape, part: Slices | None) -> Shape:
    return part.shape(shape) if part else shape


def _with_part(shape: Shape, part: Slices | None, slices: str | None = None) -> str:
    return _shape_text(shape) + (f" {slices or part.text(shape)}" if part else "")


def _shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))
