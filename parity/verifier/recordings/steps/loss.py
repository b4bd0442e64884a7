"""Rules of the loss, from logits and labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.recordings.steps.fitting import digits, is_told, snap, text
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import SHARES, RecordedSide, noise

SCALES = (0.01, 0.05, 0.07, 0.1, 0.2, 0.25, 0.5, 2.0, 4.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Scales of the logits that are tried; one number, the loss, is not enough to fit any other scale."""
DIGITS = 2
"""Most digits of a smoothing that is fitted to one number and believed: 0.1, 0.05."""


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield softmax and sigmoid cross entropy, reduced, smoothed and scaled in every usual way.

    Smoothing follows arXiv 1512.00567, section 7: a share of the target is spread over all K classes, or
    over the K - 1 wrong ones.
    """
    segment = side.segment
    logits, labels = segment.logits, segment.labels
    if logits is None or labels is None or labels.shape[0] != logits.shape[0]:
        return
    bounds = noise(side)
    for key, result in segment.result.items():
        for scale in (1.0, *SCALES):
            for choices, value in _values(logits * scale, labels, result, bounds[key], segment.parts):
                if value.shape == result.shape:
                    scaling = "as they are" if scale == 1 else f"multiplied by {text(scale)}"
                    yield Hypothesis({**choices, "logits": scaling}, {key: value})


def _values(
    logits: np.ndarray,
    labels: np.ndarray,
    result: np.ndarray,
    bound: np.ndarray,
    parts: tuple[int, ...],
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    classes = logits.shape[1]
    if labels.ndim == 1:
        labelled = labels >= 0  # negative labels mark rows that do not count
        target = np.where(labelled[:, None], labels[:, None] == np.arange(classes), 0.0)  # (B, K)
    else:
        labelled, target = np.ones(len(labels), dtype=bool), labels
    if target.shape != logits.shape:
        return
    right = np.where(labelled[:, None], 1.0, 0.0)
    for function, cost in (("softmax cross entropy", _softmax), ("sigmoid cross entropy", _sigmoid)):
        plain = cost(logits, target) * labelled  # (B,)
        for spread, even in (
            (f"all {classes} classes", right / classes),
            (f"the {classes - 1} wrong classes", (right - target) / max(classes - 1, 1)),
        ):
            smooth = cost(logits, even) * labelled
            for reduction, reduce in _reductions(labelled, classes, function, parts):
                base, other = reduce(plain), reduce(smooth)
                choices = {"function": function, "reduction": reduction}
                if spread.startswith("all"):
                    yield {**choices, "smoothing": "none"}, base
                share = _fitted(base, other, result, bound)
                if share is not None:
                    smoothing = {"smoothing": f"{text(share)} over {spread}"}
                    yield {**choices, **smoothing}, (1 - share) * base + share * other


def _fitted(base: np.ndarray, other: np.ndarray, result: np.ndarray, bound: np.ndarray) -> float | None:
    """Return the share of `other` in the result, if it is a number that a person would choose."""
    if base.shape != result.shape:
        return None
    x, y = (other - base).reshape(-1), (result - base).reshape(-1)
    size = float(x @ x)
    if size == 0:
        return None
    value = float(x @ y) / size
    off = float(np.linalg.norm(bound)) / np.sqrt(size)
    share = snap(value, off)
    # in float32 any other loss has a share of two digits by accident: how near it comes tells which
    near = max(abs(share - value), off / SHARES["loss"])
    return share if 0 < share < 1 and digits(share) <= DIGITS and is_told(share, near) else None


def _softmax(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return -sum_k t_k log softmax(z)_k of each row: (B,)."""
    top = logits.max(axis=1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return -(target * log_p).sum(axis=1)


def _sigmoid(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return -sum_k t_k log s(z_k) + (1 - t_k) log s(-z_k) of each row: (B,)."""
    return (np.logaddexp(0.0, logits) - target * logits).sum(axis=1)


def _reductions(labelled: np.ndarray, classes: int, function: str, parts: tuple[int, ...]):
    batch, counted = len(labelled), max(int(labelled.sum()), 1)
    yield f"mean over the batch of {batch}", lambda each: each.sum() / np.float64(batch)
    yield "sum over the batch", lambda each: np.asarray(each.sum())
    yield "none", lambda each: each
    if len(set(parts)) > 1 and sum(parts) == batch:
        cuts = np.cumsum(parts)[:-1]
        yield (
            f"mean of the means over {len(parts)} micro-batches, of {', '.join(map(str, parts))}",
            lambda each: np.asarray(np.mean([part.mean() for part in np.split(each, cuts)])),
        )
    if counted != batch:
        yield f"mean over the {counted} with a label", lambda each: each.sum() / np.float64(counted)
    if function.startswith("sigmoid"):
        yield "mean over batch and classes", lambda each: each.sum() / np.float64(batch * classes)
        yield "sum over the batch, mean over classes", lambda each: each.sum() / np.float64(classes)
    for count in sorted(
        {batch * n for n in (2, 3, 4, 8, 16)} | {batch - n for n in (1, 2)} | {batch + 1}
    ):
        if count > 0:
            yield f"sum divided by {count}", lambda each, count=count: each.sum() / np.float64(count)
    for count in (n for n in range(2, batch) if batch % n == 0):
        yield f"sum divided by {count}", lambda each, count=count: each.sum() / np.float64(count)
