"""Why the gradient that a module passes back differs while its forward pass agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.diagnose.catalogue.activation import FUNCTIONS
from parity.verifier.diagnose.verdict import Cause, Verdict

_STEP = 1e-5  # of central differences, relative to 1: their error is its square
_SMOOTH = 1e-8


@dataclass(frozen=True)
class GradientSegment:
    """One module's backward pass."""

    framework: str
    path: str
    arrived: np.ndarray
    """The gradient of its output."""
    passed: np.ndarray
    """The gradient of its input, or of one of its parameters."""
    given: np.ndarray
    """Its input in the forward pass."""
    dtype: str = "float64"
    inside: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The gradients of what its children returned, those of the shape of `passed`."""


def explain_gradient(a: GradientSegment, b: GradientSegment) -> Verdict:
    """Name what B's backward pass does differently from A's, the gradients that arrive being the same.

    Returns:
        As `explain`: nothing if nothing differs, a sentence if no known cause explains it.
    """
    place = a.path or "the model"
    if a.passed.shape != b.passed.shape:
        return Verdict(
            unknown=f"{place}: gradients of shapes {a.passed.shape} in A and {b.passed.shape} in B"
        )
    difference = float(np.linalg.norm(a.passed - b.passed))
    if difference == 0.0:
        return Verdict()
    if not np.isfinite(difference):
        return Verdict(unknown=f"{place}: a gradient is not finite")
    for search in (_detached, _scaled, _residual, _activation):
        found = [
            Cause(
                name,
                "backward",
                tuple(dict.fromkeys((a.path, b.path))),
                *words,
                *rests,
                difference,
                advice,
            )
            for name, words, rests, advice in search(a, b, difference)
        ]
        if found:
            return Verdict(tuple(found[:3]))
    return Verdict(
        unknown=f"{place}: none of the known causes explains the gradient that is passed back"
    )


_Found = tuple[str, tuple[str, str], tuple[float, float], str]


def _near(rest: float, result: np.ndarray, difference: float, dtype: str) -> bool:
    grain = max(256 * epsilon(dtype), _SMOOTH if dtype == "float64" else 0.0)
    return rest <= min(grain * float(np.linalg.norm(result)), 0.02 * difference)


def _detached(a: GradientSegment, b: GradientSegment, difference: float) -> Iterator[_Found]:
    none, some = "no gradient passes", "the gradient passes"
    if not b.passed.any():
        yield "detached", (some, none), (0.0, 0.0), "B: remove detach() or jax.lax.stop_gradient(...)"
    elif not a.passed.any():
        yield "detached", (none, some), (0.0, 0.0), "A: remove detach() or jax.lax.stop_gradient(...)"


def _scaled(a: GradientSegment, b: GradientSegment, difference: float) -> Iterator[_Found]:
    factor = float((a.passed * b.passed).sum() / (a.passed**2).sum())
    rest = float(np.linalg.norm(b.passed - factor * a.passed))
    if _near(rest, b.passed, difference, b.dtype):
        batch = len(a.given) if a.given.ndim else 1
        note = ""
        if batch > 1 and min(abs(factor * batch - 1), abs(factor / batch - 1)) < 1e-3:
            note = f": {batch} is the batch size, a mean against a sum"
        words = ("the gradient", f"{factor:.6g} times the gradient{note}")
        yield "gradient-scale", words, (0.0, rest), f"B: divide the gradient by {factor:.6g}"


def _residual(a: GradientSegment, b: GradientSegment, difference: float) -> Iterator[_Found]:
    """The gradient of a residual line is that of the sum, and so that of the branch's output.

    Of the line around all of a module, or around its last branch, this is the gradient that arrived.
    """
    lines = {"": b.arrived, **{f" around {name.split()[0]}": each for name, each in b.inside.items()}}
    for line, gradient in lines.items():
        if gradient.shape != a.passed.shape:
            continue
        for sign, mine, theirs in ((1.0, "without", "with"), (-1.0, "with", "without")):
            rest = float(np.linalg.norm(b.passed - a.passed - sign * gradient))
            if _near(rest, b.passed, difference, b.dtype):
                words = "gradient {} that of the residual line" + line
                advice = f"{'A' if sign > 0 else 'B'}: let the gradient pass along x + branch(x){line}"
                both = words.format(mine), words.format(theirs)
                yield "gradient-residual", both, (0.0, rest), advice
                return  # the same gradient also arrives at what is between the branch and the sum


def _activation(a: GradientSegment, b: GradientSegment, difference: float) -> Iterator[_Found]:
    """Each side's gradient is the one that arrived times the derivative of a known function."""
    if not a.arrived.shape == a.passed.shape == a.given.shape == b.given.shape:
        return
    named = (
        [(o, r) for o in FUNCTIONS if (r := _rest(o.value, s, difference)) is not None] for s in (a, b)
    )
    mine, theirs = named
    for left, rest_a in mine:
        for right, rest_b in theirs:
            if left.label != right.label:
                words = (f"derivative of {left.label}", f"derivative of {right.label}")
                code = left.jax if b.framework == "jax" else left.torch
                yield "gradient-kind", words, (rest_a, rest_b), f"B: {code or left.label}"


def _rest(
    function: Callable[[np.ndarray], np.ndarray], side: GradientSegment, difference: float
) -> float | None:
    x, h = side.given, _STEP
    with np.errstate(all="ignore"):
        slope = (function(x + h) - function(x - h)) / (2 * h)
        rest = float(np.linalg.norm(slope * side.arrived - side.passed))
    return rest if _near(rest, side.passed, difference, side.dtype) else None
