"""Tables that map the tensors of another format to the twins' tensors, in both directions.

A row is a template. ``{i}`` stands for the number of a block, ``{j}`` for that of a parallel branch. A
row whose layout has the letter ``L`` on their side alone is a stack of all blocks; one with ``{i}`` on
our side alone is a tensor that all blocks share, of which each of our blocks has a copy. The name ``*``
stands for every tensor that no earlier row took, by the twins' name.
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
    """Names of the twins' tensors; None stands for zeros that the other format has in their place."""
    theirs: tuple[str, ...]
    """Names of the other format's tensors."""
    layout: str = ""
    """Layout of each tensor of theirs, see `parity.porting.dialects.layout`; empty: as ours."""
    parts: tuple[int, ...] | None = None
    """Shares of the first axis, if one tensor is split into several; by default they are queries, keys
    and values."""
    when: tuple[str, Any] | None = None
    """Field and value of the schemas for which the row is written; needed where several names of theirs
    mean one of ours."""
    axes: int | None = None
    """Number of axes of each tensor of theirs, where a table has several rows for one name."""

    @property
    def stacked(self) -> bool:
        """Whether one tensor of theirs holds all blocks."""
        return self.layout.split("->")[0].split()[:1] == ["L"]

    @property
    def shared(self) -> bool:
        """Whether all blocks share one tensor of theirs; such a row is read, and never written."""
        return (
            not self.stacked
            and any("{i}" in (each or "") for each in self.ours)
            and not any("{i}" in each for each in self.theirs)
        )


Table = tuple[Row, ...]


MOST_BLOCKS = 10_000
"""Maximum depth of a stack: a damaged header may claim any length for an empty tensor's axis."""
REST = Row(("*",), ("*",))
"""The row for every tensor that no earlier row took."""


def rest_under(prefix: str) -> Table:
    """Return a row for every tensor under a prefix that no earlier row took, by the rest of its name."""
    return (Row(("*",), (f"{prefix}*",)),)


class Bound(NamedTuple):
    """A row applied to one model: its templates are filled in."""

    row: Row
    ours: tuple[str | None, ...]
    """The twins' names; for a stack, those of every block, block by block."""
    theirs: tuple[str, ...]
    index: int | None  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of the block; None if their names have none."""


def row(
    ours: str | tuple[str | None, ...], theirs: str | tuple[str, ...], layout: str = "", **options
) -> Table:
    """Return a table of one row."""
    ours = (ours,) if isinstance(ours, str) else ours
    theirs = (theirs,) if isinstance(theirs, str) else theirs
    return (Row(ours, theirs, layout, **options),)


def layer(ours: str, theirs: str | tuple[str, ...]) -> Table:
    """Return the rows of a layer's ``weight`` and ``bias``; several layers of theirs are joined."""
    theirs = (theirs,) if isinstance(theirs, str) else theirs
    return tuple(
        Row((f"{ours}.{leaf}",), tuple(f"{each}.{leaf}" for each in theirs))
        for leaf in ("weight", "bias")
    )


def split_attention(attention: str, theirs: str, names: tuple[str, str, str]) -> Table:
    """Return the rows of queries, keys and values in separate layers; keys may have no bias.

    Args:
        theirs: a template in which ``{}`` stands for each of the names.
    """
    q, k, v = (theirs.replace("{}", name) for name in names)
    return (
        *layer(f"{attention}.qkv", (q, k, v)),
        *row(f"{attention}.q_bias", f"{q}.bias"),
        *row(f"{attention}.v_bias", f"{v}.bias"),
    )


def dense(ours: str, theirs: str, *, stack: str = "") -> Table:
    """Return the rows of a Flax ``Dense``. `stack` is "L " if each tensor stacks all blocks."""
    return (
        *row(f"{ours}.weight", f"{theirs}/kernel", f"{stack}i o -> o i"),
        *row(f"{ours}.bias", f"{theirs}/bias", f"{stack}o -> o" if stack else ""),
    )


def flax_norm(ours: str, theirs: str, *, stack: str = "") -> Table:
    """Return the rows of a Flax ``LayerNorm``."""
    same = f"{stack}o -> o" if stack else ""
    return *row(f"{ours}.weight", f"{theirs}/scale", same), *row(f"{ours}.bias", f"{theirs}/bias", same)


def flax_attention(ours: str, theirs: str, *, stack: str = "") -> Table:
    """Return the rows of a Flax ``MultiHeadDotProductAttention``, whose heads are a separate axis."""
    names = tuple(f"{theirs}/{name}" for name in ("query", "key", "value"))
    return (
        *row(f"{ours}.qkv.weight", tuple(f"{n}/kernel" for n in names), f"{stack}i h d -> (h d) i"),
        *row(f"{ours}.qkv.bias", tuple(f"{n}/bias" for n in names), f"{stack}h d -> (h d)"),
        *row(f"{ours}.proj.weight", f"{theirs}/out/kernel", f"{stack}h d o -> o (h d)"),
        *row(f"{ours}.proj.bias", f"{theirs}/out/bias", f"{stack}o -> o" if stack else ""),
    )


def only_when(field: str, value: Any, table: Table) -> Table:
    """Return the table with every row restricted to schemas with one value of a field."""
    return tuple(replace(each, when=(field, value)) for each in table)


def read_only(table: Table) -> Table:
    """Return the table with rows that are read and never written: older names."""
    return only_when("depth", 0, table)


def unread(theirs: str) -> Table:
    """Return the row of a tensor that no twin has, beside others that one has; it is never written."""
    return read_only(row((None,), theirs))


def respell_names(table: Table, spellings: Mapping[str, str]) -> Table:
    """Return the table with substrings of their names replaced."""

    def respell(name: str) -> str:
        for old, new in spellings.items():
            name = name.replace(old, new)
        return name

    return tuple(replace(each, theirs=tuple(respell(name) for name in each.theirs)) for each in table)


def add_prefix(prefix: str, table: Table) -> Table:
    """Return the table with `prefix` put before each name of the library's."""
    return tuple(replace(e, theirs=tuple(f"{prefix}{name}" for name in e.theirs)) for e in table)


def bind_theirs(table: Table, shapes: Mapping[str, tuple[int, ...]]) -> tuple[list[Bound], list[str]]:
    """Match a file's tensors with a table; return the filled rows and the names of tensors left over."""
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


def role(table: Table, name: str) -> tuple[tuple[str | None, ...], int] | None:
    """Return what one of their tensors is: the names of ours, and which of several theirs it is."""
    for each in table:
        if each.ours == REST.ours and name.startswith(prefix := each.theirs[0].removesuffix("*")):
            return (name.removeprefix(prefix),), 0
        for place, template in enumerate(each.theirs):
            if match := _pattern(template).fullmatch(name):
                numbers = {letter: int(value) for letter, value in match.groupdict().items()}
                return tuple(own and _fill(own, numbers) for own in each.ours), place
    return None


def bind_ours(table: Table, cfg: ViTConfig, names: Iterable[str]) -> tuple[list[Bound], list[str]]:
    """Match a model's parameters with a table; return the filled rows and the parameters left over."""
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
    """Return the numbers for which a template matches a name, in ascending order."""
    matches = (_pattern(template).fullmatch(name) for name in names)
    numbers = [{key: int(value) for key, value in each.groupdict().items()} for each in matches if each]
    return sorted(numbers, key=lambda each: tuple(each.values()))


def _last_block(names: Iterable[str]) -> int:
    """Return the highest number that is a level of a name: the last block's; -1 if there is none."""
    matches = (re.search(r"(?:^|[./])(\d{1,4})[./]", name) for name in names)
    return max((int(number[1]) for number in matches if number), default=-1)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template)
    return re.compile(re.sub(r"\\\{([ij])\\\}", r"(?P<\1>0|[1-9]\\d{0,5})", text))


def _fill(template: str, numbers: Mapping[str, int]) -> str:
    for letter, number in numbers.items():
        template = template.replace(f"{{{letter}}}", str(number))
    return template


def layout_of(each: Row) -> Layout | None:
    """Return the layout of one block's tensors, without the axis of a stack; None if it is ours."""
    if not each.layout:
        return None
    return Layout.parse(each.layout.removeprefix("L "))
