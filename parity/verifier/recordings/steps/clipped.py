"""Rules of clipping: the optimiser's gradient, from the gradient that was computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.verifier.recordings.steps.fitting import (
    RARE,
    JoinedLeaves,
    chance,
    chosen,
    is_told,
    slope,
    snap,
    text,
)
from parity.verifier.recordings.steps.segments import Hypothesis
from parity.verifier.recordings.steps.sides import TINY, RecordedSide, noise

TORCH = 1e-6
"""Constant that torch.nn.utils.clip_grad_norm_ adds to the norm; optax.clip_by_global_norm adds none."""
ALIKE = 1e-9
"""Relative difference of two factors that are taken to be one: of float64, six digits are noise."""


Choices = dict[str, str]


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield no clipping and every usual one, of the gradients of this step or the one before."""
    segment = side.segment
    flat = JoinedLeaves(segment.result)
    made, bound = flat.join(segment.result), flat.join(noise(side))
    if made is None or bound is None:
        return
    for when, gradients, norms in side.gradients:
        given = flat.join(gradients)
        if given is None:
            continue
        yield Hypothesis({**when, "clipping": "none"}, flat.split(given))
        for choices, value in (
            *_whole(flat, given, made, bound, norms, side.eps),
            *in_parts(flat, given, made, norms, side.eps),
        ):
            yield Hypothesis({**when, **choices}, flat.split(value))


def _whole(
    flat: JoinedLeaves,
    given: np.ndarray,
    made: np.ndarray,
    bound: np.ndarray,
    norms: Mapping[str, float],
    eps: float,
) -> Iterator[tuple[Choices, np.ndarray]]:
    """Yield clipping by the norm of all gradients, once and twice."""
    scale, norm = slope(given, made, bound, eps), float(np.sqrt(sum(n**2 for n in norms.values())))
    if scale is None or not 0 < scale < 1 or not norm:
        return
    raw = float(given / bound @ (made / bound)) / float(given / bound @ (given / bound))
    for times, root, power in (("", raw, 1), (", twice", np.sqrt(raw), 2)):
        for added in (0.0, TORCH):
            whole = norm + added
            most = snap(root * whole, 32 * eps * whole)
            if is_told(most, max(abs(most - root * whole), eps * whole)):
                yield _choices("global norm" + times, most, added), given * (most / whole) ** power


def _choices(clipping: str, most: float, added: float) -> Choices:
    return {"clipping": clipping, "max norm": text(most), "added to the norm": text(added)}


def in_parts(
    flat: JoinedLeaves, given: np.ndarray, made: np.ndarray, norms: Mapping[str, float], eps: float
) -> Iterator[tuple[Choices, np.ndarray]]:
    """Yield clipping by the norm of each leaf, by that of each group of leaves, and by value.

    Args:
        given: the gradients (N,).
        made: about what was made of them (N,).
        norms: the norm of every whole gradient, by leaf.
        eps: of the type of the numbers.
    """
    own = np.array([norms.get(name, 0.0) for name in flat.names])  # (leaves,)
    left = flat.total(given * made) / np.maximum(flat.total(given**2), TINY)
    near = max(ALIKE, 1e3 * eps)
    touched = (left > 0) & (left < 1 - near)
    alike = _alike(left, touched, near)
    together = np.sqrt(np.bincount(alike, own**2)[alike])  # (leaves,): the norm of its group
    # one group is all of them, and groups of one leaf each are the leaves
    several = 1 < len(set(alike[touched])) < int(touched.sum())
    for clipping, sizes in (("each leaf's norm", own), *[("norm of each group", together)] * several):
        for added in (0.0, TORCH) if touched.any() else ():
            limits = (left * (sizes + added))[touched]
            middle = float(np.median(limits))
            most = snap(middle, near * middle)
            off = max(abs(most - middle), 4 * eps * middle)
            agree = bool((np.abs(limits - most) <= 2 * near * most).all())
            if agree and _is_limit(most, off, len(np.unique(sizes[touched])), 4 * near):
                factor = np.where(touched, most / np.maximum(sizes + added, TINY), 1.0)
                yield _choices(clipping, most, added), given * factor[flat.leaf]
    largest = float(np.abs(made).max(initial=0.0))
    most = snap(largest, 16 * eps * largest)
    off = max(abs(most - largest), eps * largest)
    if most and _is_limit(most, off, int((np.abs(given) > most).sum()), 32 * eps):
        yield {"clipping": "each value", "max value": text(most)}, np.clip(given, -most, most)


def _is_limit(most: float, off: float, count: int, near: float) -> bool:
    """Return whether a number is a limit that somebody chose, and no accident: what multiplies one leaf
    alone may be any number, but several rarely have the same limit.

    Args:
        off: how near it is to what was fitted, or a rounding of that.
        count: how many have this limit.
        near: relative difference within which two are the same, and the chance that two others are.
    """
    return count > 0 and chosen(most) and chance(most, off) * min(1.0, near) ** (count - 1) <= RARE


def _alike(left: np.ndarray, touched: np.ndarray, near: float) -> np.ndarray:
    """Number the groups of leaves that were multiplied by one factor: (leaves,)."""
    order = np.argsort(left)
    apart = np.diff(left[order]) > near * np.abs(left[order][1:])
    numbers = np.empty(len(left), dtype=np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(apart)])
    return np.where(touched, numbers, len(left))
