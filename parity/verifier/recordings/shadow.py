"""A check that a recording is a shadow of another: the same program on parameters a unit away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.error import wide
from parity.measure.tolerance import epsilon
from parity.measure.traces import Event, Trace
from vit_config import InputError

FARTHEST = 2
"""Most units in the last place by which a number may be moved: x (1 + eps) moves some numbers by two."""
LEAST = 1e-37  # above 1.2e-38, the least normal number of float32 and of bfloat16, by a few
"""Size below which a number may be moved as far as one of this size, as 0 to the number next to it."""


def check_shadow(name_a: str, a: Trace, name: str, shadow: Trace) -> None:
    """Refuse a shadow by which more than rounding could be forgiven.

    The shadow of A ran the same steps of the same modules and optimiser, and began with parameters and
    inputs each of whose numbers is A's or one unit in the last place away.

    Raises:
        InputError: it is none; the message says by what.
    """
    reason = next(_reasons(a, shadow), None)
    if reason is not None:
        raise InputError(
            f"{name} is no shadow of {name_a}: {reason}; record A's own program again, and change"
            " nothing but its first parameters, each number by one unit in the last place"
        )


def _reasons(a: Trace, shadow: Trace) -> Iterator[str]:
    if shadow.steps != a.steps:
        steps = [", ".join(map(str, each.steps)) or "none" for each in (shadow, a)]
        yield f"it has the steps {steps[0]}, A has {steps[1]}"
    for path, module in a.modules.items():
        other = shadow.modules.get(path)
        mine = {"class": module.kind, **module.facts}
        theirs = {"class": other.kind, **other.facts} if other is not None else {}
        for key in {**mine, **theirs}:
            if mine.get(key) != theirs.get(key):
                where = f"{key} of {path or 'the model'}"
                yield f"{where} is {theirs.get(key)}, in A it is {mine.get(key)}"
    moved, there = False, {each.site: each for each in shadow.events}
    for event in a.events:
        first = event.step == a.steps[0] and event.stage in ("parameters", "batch")
        if not first and event.stage not in ("batch", "learning rate"):
            continue
        other = there.get(event.site)
        where = f"{event.stage} {event.site} of step {event.step}".replace(" (model)", "")
        if other is None or _form(other) != _form(event):
            yield f"{where} is {_said(other)}, in A it is {_said(event)}"
            return
        mine, theirs = a.read(event), shadow.read(other)
        far = _apart(mine, theirs, 0 if event.stage == "learning rate" else FARTHEST)
        if far.size:
            x, y = mine.ravel()[far[0]], theirs.ravel()[far[0]]
            yield f"{where} holds {y!s} where A holds {x!s}"
        moved |= bool(_apart(mine, theirs, 0).size)
    if not any(event.stage == "parameters" for event in a.events):
        yield "A's parameters were not recorded, so that nothing tells"
    if not moved:
        yield "its parameters and inputs are A's own"


def _form(event: Event) -> tuple[object, ...]:
    return event.dtype, event.shape, event.spacing


def _said(event: Event | None) -> str:
    return "not there" if event is None else f"{event.dtype} of shape {list(event.shape)}"


def _apart(a: np.ndarray, b: np.ndarray, units: float) -> np.ndarray:
    """Return the positions of the numbers that are more units in the last place apart; integers are the
    same or apart."""
    of_a, of_b = wide(a).ravel(), wide(b).ravel()
    size = np.maximum(np.abs(of_a), np.abs(of_b))
    unit = epsilon(a.dtype.name) * (size + LEAST) if "float" in a.dtype.name else 0.0
    with np.errstate(invalid="ignore"):  # inf - inf
        near = np.abs(of_a - of_b) <= units * unit
    return np.flatnonzero(~(near | (of_a == of_b) | (np.isnan(of_a) & np.isnan(of_b))))
