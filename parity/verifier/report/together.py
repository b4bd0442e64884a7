"""Places that are one: the same lines part in the same way, such as once a block."""

from __future__ import annotations

from dataclasses import replace
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
        key: Any = (place.kind, place.a.lines, place.b.lines, place.cause)
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
    return _alike(list(merged.values()))


def _alike(places: list[Place]) -> list[Place]:
    """Merge the places at which parameters are wrong that differ in the numbers of their names alone."""
    wrong: dict[tuple[str, str], list[int]] = {}
    for k, place in enumerate(places):
        if place.kind in ("parameter", "input"):
            wrong.setdefault((place.kind, place.cause), []).append(k)
    found = {k: place for k, place in enumerate(places) if place.kind not in ("parameter", "input")}
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


def _computed(place: Place) -> frozenset[str]:
    """Return the lines of the operations of B that a place consists of; of layout operations only if
    there is nothing else."""
    assert place.gap is not None
    operations = [place.gap.b.program.operations[i] for i in place.gap.b.operations]
    operations = [op for op in operations if not op.is_layout] or operations
    return frozenset(str(op.source) for op in operations)
