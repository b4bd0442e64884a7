"""Places that are one: the same lines part in the same way, such as once a block."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from parity.measure.shown import alike
from parity.verifier.causes import collectives
from parity.verifier.report.comparison import Place

_COLLECTIVES = frozenset(each.name for each in collectives.CAUSES)


def together(places: list[Place]) -> list[Place]:
    """Merge the places at which the same lines part in the same way, such as once a block."""
    merged: dict[Any, Place] = {}
    first_keys: dict[Any, Any] = {}
    """What B computes at a place, and the key of the first place where it does."""
    for place in places:
        key: Any = (place.kind, place.a.lines, place.b.lines or place.message, place.cause)
        if place.cause in _COLLECTIVES:  # of every parameter's gradient
            key = (place.cause, place.message, place.b.lines[-1:])
        inside = place.gap.b.operations if place.gap is not None else []
        if place.cause.endswith("left out") and not inside:
            key = (place.cause, place.a.lines)  # what A has alone, wherever B lacks it
        computed = (place.kind, _computed(place)) if inside else key
        before = first_keys.get(computed, key)
        if key not in merged and before in merged:  # the same but for the cause, which one may lack
            key = before if len({place.cause, merged[before].cause, ""}) < 3 else key
        first_keys.setdefault(computed, key)
        if place.kind in ("parameter", "input") or key not in merged:
            merged[key if key not in merged else (key, len(merged))] = place
        else:
            first = merged[key]
            shown, other = (first, place) if first.cause or not place.cause else (place, first)
            merged[key] = replace(
                shown, times=first.times + place.times,
                modules=(*shown.modules, other.b.module, *other.modules),
                error=max(first.error, place.error), limit=max(first.limit, place.limit),
            )  # fmt: skip
    return _of_one_mistake(_alike(list(merged.values())))


def _alike(places: list[Place]) -> list[Place]:
    """Merge the places at which parameters are wrong, or others are read, that differ in the numbers of
    their names alone."""
    wrong: dict[tuple[str, str], list[int]] = {}
    found: dict[int, Place] = {}
    for k, place in enumerate(places):
        if place.kind in ("parameter", "input") or place.message.startswith("B reads "):
            wrong.setdefault((place.kind, place.cause), []).append(k)
        else:
            found[k] = place
    for numbers in wrong.values():
        for message, names in alike([places[k].message for k in numbers]).items():
            of_it = [k for k in numbers if places[k].message in names]
            some = [places[k] for k in of_it]
            shown = next((k for k in of_it if places[k].b.lines), of_it[0])
            found[shown] = replace(
                places[shown], message=message, times=sum(each.times for each in some),
                modules=tuple(module for each in some for module in each.modules),
                error=max(each.error for each in some), limit=max(each.limit for each in some),
            )  # fmt: skip
    return [found[k] for k in sorted(found)]


def _of_one_mistake(places: list[Place]) -> list[Place]:
    """Merge the places at which parameters side by side are wrong in one way, such as the weights of
    queries, keys and values that a loader transposed."""
    groups: list[list[Place]] = []
    for place in places:
        group = next((each for each in groups if _side_by_side(*each, place)), None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return [_in_one_sentence(each) for each in groups]


def _in_one_sentence(group: list[Place]) -> Place:
    """Return the places of a group as one, which counts each parameter."""
    first, *others = group
    message = _side_by_side(*group)
    if not message:
        return first
    return replace(
        first, message=message, times=sum(each.times * len(_split(each)) for each in group),
        modules=(*first.modules, *(m for each in others for m in (each.b.module, *each.modules))),
        error=max(each.error for each in group), limit=max(each.limit for each in group),
    )  # fmt: skip


def _split(place: Place) -> list[str]:
    return place.message.split("; ")


def _side_by_side(*places: Place) -> str:
    """Say of parameters whose names differ in one part what is wrong with each; empty if the places are
    of others, or something else is wrong with some."""
    said = [_WRONG.fullmatch(text) for each in places for text in _split(each)]
    matches = [each for each in said if each is not None]
    told = {(each["verb"], each["how"]) for each in matches}
    if any(each.kind != "parameter" for each in places) or len(matches) < max(len(said), 2):
        return ""
    of_b, of_a = (_braced([each[side] for each in matches]) for side in "ba")
    parts = {each["part"] for each in matches}
    if len(told) > 1 or not of_b or not of_a:
        return ""
    ((verb, how),) = told
    return f"{of_b} {verb} A's {of_a}{parts.pop() if len(parts) == 1 else ''}{how}"


_WRONG = re.compile(
    r"(?P<b>\S+) (?P<verb>holds|is not) A's (?P<a>[^\s:\[]+)(?P<part>(\[.+?\])?)(?P<how>\W.*)"
)
"""What is said of a wrong parameter."""


def _braced(names: list[str]) -> str:
    """Write names that differ in one part as one, ``attn.{q,k,v}.kernel``; empty if others do."""
    columns = [list(dict.fromkeys(each)) for each in zip_longest(*(name.split(".") for name in names))]
    if any(None in each for each in columns) or sum(len(each) > 1 for each in columns) > 1:
        return ""
    flat = (name for each in columns for name in each if len(each) > 1)
    if any("{" in name for name in flat):
        return ""
    return ".".join(each[0] if len(each) == 1 else f"{{{','.join(each)}}}" for each in columns)


def _computed(place: Place) -> frozenset[str]:
    """Return the lines of the operations of B that a place consists of; of layout operations only if
    there is nothing else."""
    assert place.gap is not None
    operations = [place.gap.b.program.operations[i] for i in place.gap.b.operations]
    operations = [op for op in operations if not op.is_layout] or operations
    return frozenset(str(op.source) for op in operations)
