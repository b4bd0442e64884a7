"""Causes of another loss that its gradients tell, where no logits were recorded."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.fitting import digits, is_told, last_number, snap, text
from parity.verifier.recordings.steps.names import PlaceVerdict, StepCause, named
from parity.verifier.recordings.steps.segments import StepSegment

NEAR = 1e-5
"""Relative difference of two factors, or of two terms of a loss, that are taken to be one in float32."""
ROUNDING = 16 * epsilon("float32")
"""Rounding of the gradient of a bias, a mean over a batch, relative to it."""
DIGITS = 2
"""Most digits of a smoothing that is believed: 0.1, 0.05."""
NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def another_loss(
    losses: tuple[float, float], a: StepSegment, b: StepSegment, carried: float
) -> PlaceVerdict | None:
    """Return the cause of two losses that differ, if the gradients of the same step tell it: all are
    multiples, as the loss is; they and the loss hold a penalty of the weights; or the gradient of the
    last bias shows smoothed labels.

    Args:
        losses: A's and B's.
        a: the gradients of one program.
        b: those of the other.
        carried: see `explain_step`.
    """
    verdict = explain_step(a, b, carried)
    for cause in verdict.causes:
        if cause.name == "gradient-scale" and _is_ratio(losses, cause):
            sides = [each.replace("scale", "multiple of the loss", 1) for each in (cause.a, cause.b)]
            told = named("loss", "reduction", sides)
            same = {"name": told.name, "advice": told.advice, "a": told.a, "b": told.b}
            return PlaceVerdict(causes=(replace(cause, stage="loss", **same),))
        if cause.name == "decay-in-gradient" and _is_penalty(losses, cause, a, b):
            return PlaceVerdict(causes=(replace(cause, stage="loss"),))
    return _smoothed(a, b) or narrowed(a, b)


def _is_ratio(losses: tuple[float, float], cause: StepCause) -> bool:
    x, y = last_number(cause.a), last_number(cause.b)
    return abs(losses[0] * y - losses[1] * x) <= NEAR * abs(losses[0] * y)


def _is_penalty(losses: tuple[float, float], cause: StepCause, a: StepSegment, b: StepSegment) -> bool:
    """Return whether the losses differ by half of the strength times the sum of the squares."""
    strength = last_number(cause.b) - last_number(cause.a)
    names = cause.where or tuple(a.result)
    squares = sum(float((a.parameters[name] ** 2).sum()) for name in names if name in a.parameters)
    penalty, apart = strength * squares / 2, losses[1] - losses[0]
    return abs(apart - penalty) <= NEAR * max(abs(penalty), abs(losses[0]))


def _smoothed(a: StepSegment, b: StepSegment) -> PlaceVerdict | None:
    """Return the cause that one side's labels are smoothed more. The gradient of the last bias, the mean
    of softmax - target, then differs by A's share less B's times (frequency of each class - 1 / K)."""
    labels = a.labels if a.labels is not None else b.labels
    if labels is None or labels.ndim != 1 or labels.min() < 0:
        return None
    for key in a.result:
        if key not in b.result or a.result[key].shape != b.result[key].shape or a.result[key].ndim != 1:
            continue
        count = a.result[key].size
        if count < 3 or labels.max() >= count:
            continue
        told = np.bincount(labels, minlength=count) / len(labels) - 1 / count
        apart, size = a.result[key] - b.result[key], float(told @ told)
        share = float(apart @ told) / size if size else 0.0
        left = float(np.linalg.norm(apart - share * told))
        off = max(ROUNDING * float(np.linalg.norm(a.result[key])), NEAR * float(np.linalg.norm(apart)))
        if not 0 < abs(share) < 1 or left > off:
            continue
        off /= np.sqrt(size)
        short = snap(abs(share), off)
        if digits(short) <= DIGITS and is_told(short, off):
            by = ("more by", "less by") if share > 0 else ("less by", "more by")
            words = [f"smoothing: {each} {text(short)}" for each in by]
            size = float(np.linalg.norm(apart))
            cause = named("loss", "smoothing", words, size, (key,), (left, left))
            return PlaceVerdict(causes=(cause,))
    return None


def narrowed(a: StepSegment, b: StepSegment) -> PlaceVerdict | None:
    """Return the cause that one side computes in a smaller type: most of its gradients' matrices hold
    nothing but numbers of that type, and none of the other side's do."""
    keys = [k for k in a.result if k in b.result and a.result[k].shape == b.result[k].shape]
    matrices = [k for k in keys if a.result[k].ndim > 1 and a.result[k].any() and b.result[k].any()]
    for kind, dtype in NARROW.items():
        held = [sum(_holds(each.result[k], dtype) for k in matrices) for each in (a, b)]
        if min(held) == 0 and 2 * max(held) > len(matrices) > 0:
            words = [f"gradients computed in {kind if n else 'a wider type'}" for n in held]
            apart = np.sqrt(sum(float(((a.result[k] - b.result[k]) ** 2).sum()) for k in keys))
            return PlaceVerdict(causes=(named("gradients", "number type", words, float(apart)),))
    return None


def _holds(values: np.ndarray, dtype: type) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(dtype).astype(np.float64) == values).all())
