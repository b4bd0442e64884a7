"""Tables of names: which tensors of another format make which of ours, readable in both directions.

A row is a template. ``{i}`` stands for the number of a block, ``{j}`` for that of a parallel branch. A
row whose layout has the letter ``L`` on their side alone is a stack of all blocks; one with ``{i}`` on
our side alone is a tensor that all blocks share, of which ours each have a copy. The name ``*`` stands
for every tensor that no row before it took, spelled as the twins spell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from parity.porting.dialects.layout import Layout
from vit_config import ViTConfig


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    ours: tuple[str | None, ...]
    """The twins' tensors; None is a stretch of zeros that they do not have."""
    theirs: tuple[str, ...]
    """The other format's tensors."""
    layout: str = ""
    """How each tensor of theirs is laid out, see `parity.porting.dialects.layout`; empty: as ours."""
    parts: tuple[int, ...] | None = None
    """Where one tensor makes several: what share of the first axis each has; by default they are
    queries, keys and values."""
    when: tuple[str, Any] | None = None
    """Of which schemas it is written, as a field and its value: one name of ours may have several of
    theirs."""
    axes: int | None = None
    """How many axes each tensor of theirs has, where a table has several rows for one name."""

    @property
    def stacked(self) -> bool:
        """Whether one tensor of theirs holds all blocks."""
        return self.layout.split("->")[0].split()[:1] == ["L"]

    @property
    def shared(self) -> bool:
        """Whether all blocks use one tensor of theirs; such a row is read, and never written."""
        return (
            not self.stacked
            and any("{i}" in (each or "") for each in self.ours)
            and not any("{i}" in each for each in self.theirs)
        )


Table = tuple[Row, ...]


MOST_BLOCKS = 10_000
"""The deepest stack that is believed: a header may claim any length for an axis of nothing."""
REST = Row(("*",), ("*",))
"""Every tensor that no row before it took."""


def rest_under(prefix: str) -> Table:
    """Every tensor that no row before it took and whose name begins so; the rest of it is ours."""
    return (Row(("*",), (f"{prefix}*",)),)


class Bound(NamedTuple):
    """A row of one model: templates filled in."""

    row: Row
    ours: tuple[str | None, ...]
    """Of a stack, those of every block, block by block."""
    theirs: tuple[str, ...]
    index: int | None
    """The block's number."""


def row(
    ours: str | tuple[str | None, ...], theirs: str | tuple[str, ...], layout: str = "", **options
) -> Table:
    """A table of one row."""
    ours = (ours,) if isinstance(ours, str) else ours
    theirs = (theirs,) if isinstance(theirs, str) else theirs
    return (Row(ours, theirs, layout, **options),)


def layer(ours: str, theirs: str | tuple[str, ...]) -> Table:
    """A layer's ``weight`` and ``bias``, spelled alike on both sides; several of theirs are joined."""
    theirs = (theirs,) if isinstance(theirs, str) else theirs
    return tuple(
        Row((f"{ours}.{leaf}",), tuple(f"{each}.{leaf}" for each in theirs))
        for leaf in ("weight", "bias")
    )


def apart(attention: str, theirs: str, names: tuple[str, str, str]) -> Table:
    """Queries, keys and values in layers of their own; keys may have no bias.

    Args:
        theirs: a template with one ``{}`` for each of the names.
    """
    q, k, v = (theirs.replace("{}", name) for name in names)
    return (
        *layer(f"{attention}.qkv", (q, k, v)),
        *row(f"{attention}.q_bias", f"{q}.bias"),
        *row(f"{attention}.v_bias", f"{v}.bias"),
    )


def dense(ours: str, theirs: str, *, stack: str = "") -> Table:
    """A Flax ``Dense``. `stack` is "L " where all blocks are in one tensor."""
    return (
        *row(f"{ours}.weight", f"{theirs}/kernel", f"{stack}i o -> o i"),
        *row(f"{ours}.bias", f"{theirs}/bias", f"{stack}o -> o" if stack else ""),
    )


def flax_norm(ours: str, theirs: str, *, stack: str = "") -> Table:
    """A Flax ``LayerNorm``."""
    same = f"{stack}o -> o" if stack else ""
    return *row(f"{ours}.weight", f"{theirs}/scale", same), *row(f"{ours}.bias", f"{theirs}/bias", same)


def flax_attention(ours: str, theirs: str, *, stack: str = "") -> Table:
    """A Flax ``MultiHeadDotProductAttention`` whose heads are axes of their own."""
    names = tuple(f"{theirs}/{name}" for name in ("query", "key", "value"))
    return (
        *row(f"{ours}.qkv.weight", tuple(f"{n}/kernel" for n in names), f"{stack}i h d -> (h d) i"),
        *row(f"{ours}.qkv.bias", tuple(f"{n}/bias" for n in names), f"{stack}h d -> (h d)"),
        *row(f"{ours}.proj.weight", f"{theirs}/out/kernel", f"{stack}h d o -> o (h d)"),
        *row(f"{ours}.proj.bias", f"{theirs}/out/bias", f"{stack}o -> o" if stack else ""),
    )


def only_when(field: str, value: Any, table: Table) -> Table:
    """The same table, written of schemas with one value of a field alone."""
    return tuple(replace(each, when=(field, value)) for each in table)


def respelled(table: Table, spellings: Mapping[str, str]) -> Table:
    """The same table with stretches of their names replaced."""

    def respell(name: str) -> str:
        for old, new in spellings.items():
            name = name.replace(old, new)
        return name

    return tuple(replace(each, theirs=tuple(respell(name) for name in each.theirs)) for each in table)


def bind_theirs(table: Table, shapes: Mapping[str, tuple[int, ...]]) -> tuple[list[Bound], list[str]]:
    """The rows that a file with these tensors fills, and the tensors that fill none."""
    left = dict.fromkeys(shapes)
    bound = []
    for each in table:
        if each.ours == REST.ours:
            prefix = each.theirs[0].removesuffix("*")
            taken = [name for name in left if name.startswith(prefix)]
            bound += [Bound(each, (name.removeprefix(prefix),), (name,), None) for name in taken]
            left = {name: None for name in left if name not in taken}
            continue
        for numbers in _numbers(each.theirs[0], left):
            theirs = tuple(_fill(name, numbers) for name in each.theirs)
            if any(name not in left for name in theirs):
                continue
            if each.axes is not None and any(len(shapes[name]) != each.axes for name in theirs):
                continue
            depth = shapes[theirs[0]][0] if each.stacked and shapes[theirs[0]] else 0
            depth = 1 + _last_block(shapes) if each.shared else depth
            if each.stacked and not 0 < depth <= MOST_BLOCKS:
                continue
            bound.append(_bound(each, theirs, numbers, depth))
            for name in theirs:
                del left[name]
    return bound, list(left)


def bind_ours(table: Table, cfg: ViTConfig, names: Iterable[str]) -> tuple[list[Bound], list[str]]:
    """The rows that a model's parameters fill, and the parameters that fill none."""
    left = dict.fromkeys(names)
    bound = []
    for each in table:
        if each.ours == REST.ours:
            prefix = each.theirs[0].removesuffix("*")
            bound += [Bound(each, (name,), (f"{prefix}{name}",), None) for name in left]
            left = {}
            continue
        if each.shared:
            continue
        if each.when is not None and getattr(cfg, each.when[0]) != each.when[1]:
            continue
        for numbers in _ranges(each, cfg):
            theirs = tuple(_fill(name, numbers) for name in each.theirs)
            one = _bound(each, theirs, numbers, cfg.depth)
            ours = [name for name in one.ours if name is not None]
            if all(name in left for name in ours):
                bound.append(one)
                for name in ours:
                    del left[name]
    return bound, list(left)


def _bound(each: Row, theirs: tuple[str, ...], numbers: Mapping[str, int], depth: int) -> Bound:
    blocks = [{"i": i} for i in range(depth)] if each.stacked or each.shared else [numbers]
    ours = tuple(_fill(name, block) if name else None for block in blocks for name in each.ours)
    return Bound(each, ours, theirs, numbers.get("i"))


def _ranges(each: Row, cfg: ViTConfig) -> Iterator[dict[str, int]]:
    sizes = {"i": cfg.depth, "j": cfg.num_parallel}
    letters = [letter for letter in sizes if f"{{{letter}}}" in each.theirs[0]]
    for values in product(*(range(sizes[letter]) for letter in letters)):
        yield dict(zip(letters, values, strict=True))


def _numbers(template: str, names: Iterable[str]) -> list[dict[str, int]]:
    """What numbers a template has among the names, ascending."""
    found = (_pattern(template).fullmatch(name) for name in names)
    numbers = [{key: int(value) for key, value in match.groupdict().items()} for match in found if match]
    return sorted(numbers, key=lambda each: tuple(each.values()))


def _last_block(names: Iterable[str]) -> int:
    """The highest number of a block among names in which it is a level of its own; -1 without any."""
    found = (re.search(r"(?:^|[./])(\d{1,4})[./]", name) for name in names)
    return max((int(number[1]) for number in found if number), default=-1)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template)
    return re.compile(re.sub(r"\\\{([ij])\\\}", r"(?P<\1>0|[1-9]\\d{0,5})", text))


def _fill(template: str, numbers: Mapping[str, int]) -> str:
    for letter, number in numbers.items():
        template = template.replace(f"{{{letter}}}", str(number))
    return template


def layout_of(each: Row) -> Layout | None:
    """The layout of one block's tensors, the axis of a stack left out."""
    if not each.layout:
        return None
    return Layout.parse(each.layout.removeprefix("L "))
