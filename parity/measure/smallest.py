"""A subset that still passes and of which nothing can be left out, by delta debugging (ddmin: Zeller and
Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")


def smallest(groups: Mapping[int, Hashable], passes: Callable[[list[int]], bool]) -> list[int]:
    """Return items that pass, of which none can be left out: those of whole groups first, such as of
    lines, then those alone.

    Args:
        groups: the group of each item; all items together pass.
        passes: whether some items do.
    """
    together: dict[Hashable, list[int]] = {}
    for item, group in groups.items():
        together.setdefault(group, []).append(item)
    some = ddmin(list(together.values()), lambda some: passes([i for each in some for i in each]))
    return sorted(ddmin([i for each in some for i in each], passes))


def ddmin(items: list[T], passes: Callable[[list[T]], bool]) -> list[T]:
    """Return a subset that passes and would fail without any one of its elements.

    Args:
        items: a set that passes.
        passes: whether a subset does.
    """
    count = 2
    while len(items) > 1:
        size = -(-len(items) // count)
        parts = [items[i : i + size] for i in range(0, len(items), size)]
        part = next((each for each in parts if len(parts) > 1 and passes(each)), None)
        if part is not None:
            items, count = part, 2
            continue
        rests = [[i for other in parts if other is not each for i in other] for each in parts]
        rest = next((each for each in rests if passes(each)), None)
        if rest is not None:
            items, count = rest, max(count - 1, 2)
        elif count >= len(items):
            break
        else:
            count = min(2 * count, len(items))
    return items
