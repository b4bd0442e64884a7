"""Why two models differ: the causes of the places at which their operations part."""

from __future__ import annotations

import numpy as np

from parity.verifier.diagnose.verdict import Cause, Verdict
from parity.verifier.diff.difference import Difference
from parity.verifier.diff.judge import Divergence
from parity.verifier.operations.comparison import Comparison, Place

SAME = (
    "operation by operation, in float64, the two are the same: what differs is rounding, or code that"
    " runs in another number type alone"
)
NAMELESS = "no single exchange makes the rest the same; the two formulas are what there is to say"


def explain_model(difference: Difference, first: Divergence) -> Verdict:
    """The causes of all places, as the lines of source name them.

    A cause is named if exchanging that one thing makes everything behind the place meet.
    """
    lines = difference.lines
    if lines is None:
        return Verdict(unknown=f"no causes: {difference.no_lines}")
    stage = "backward" if lines.backward else "forward"
    causes = tuple(_cause(place, stage) for place in lines.places if _is_named(place))
    if lines.backward and first.stage == "forward":  # forward they meet: no place explains what differs
        return Verdict((_type(lines, first),)) if lines.types else Verdict(unknown=_same_forward(causes))
    if causes:
        return Verdict(causes)
    if lines.places:
        return Verdict(unknown=NAMELESS)
    return Verdict((_type(lines, first),)) if lines.types else Verdict(unknown=SAME)


def _same_forward(causes: tuple[Cause, ...]) -> str:
    """What is to be said of a forward pass whose operations meet, where the gradients' do not."""
    of_gradients = "; ".join(dict.fromkeys(f"{each.name}: {each.message}" for each in causes))
    return SAME + (f"; of their gradients: {of_gradients}" if of_gradients else "")


def _is_named(place: Place) -> bool:
    return bool(place.cause) or place.kind in ("parameter", "input")


def _cause(place: Place, stage: str) -> Cause:
    found = place.found
    apart = found.value - found.instead if found is not None and found.closed else np.zeros(0)
    modules = (place.b.module or place.a.module, *place.modules)
    return Cause(
        name=place.rule,
        stage=stage,
        where=tuple(dict.fromkeys(each for each in modules if each)),
        a=place.a.formula,
        b=place.b.formula,
        difference=float(np.linalg.norm(apart)),
        message=place.message,
    )


def _type(lines: Comparison, first: Divergence) -> Cause:
    """In float64 throughout, everything meets: the type that one side asks for is what differs."""
    said = lines.types[0]
    asks, of = ("B", "A") if said.startswith("B") else ("A", "B")
    words = {asks: said.removeprefix(f"{asks} "), of: "does not ask for it"}
    size = float(first.judged.error)
    return Cause(
        "number-type", first.stage, (first.where,), words["A"], words["B"], size,
        message="; ".join(lines.types),
    )  # fmt: skip
