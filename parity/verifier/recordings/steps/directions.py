"""Rules of an optimiser's direction, which the learning rate multiplies, from moments and gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.fitting import JoinedLeaves, text, two_slopes
from parity.verifier.recordings.steps.given import BUFFER, FIRST, SECOND
from parity.verifier.recordings.steps.moments import betas
from parity.verifier.recordings.steps.noise import noise
from parity.verifier.recordings.steps.sides import RecordedSide

EPSILONS = (1e-8, 1e-6, 1e-7, 1e-5, 1e-10, 1e-12, 1e-16, 1e-15, 1e-4, 1e-3)
"""Epsilons that may be added in the denominator, the most usual first."""
BETAS = (0.9, 0.999)
"""Adam's defaults, used where the moments do not tell the betas."""
LARGEST, CORRECTED = "max_exp_avg_sq", "max_exp_avg_sq_hat"
"""Ports of the largest second moment so far: torch's, and optax's, which is that of corrected ones."""


class Direction(NamedTuple):
    """A direction under one rule."""

    choices: Mapping[str, str]
    value: np.ndarray
    """(N,)."""


class Denominator(NamedTuple):
    """Adam's direction as a function of epsilon."""

    choices: Mapping[str, str]
    of: Callable[[float], np.ndarray]
    """Function that returns the direction (N,) with a given epsilon."""


def directions(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Direction]:
    """Yield the directions of Adam with the usual epsilons, or those of SGD."""
    for each in denominators(side, flat):
        for epsilon in epsilons(side):
            yield Direction({**each.choices, "epsilon": text(epsilon)}, each.of(epsilon))
    if flat.join(side.segment.moments, SECOND) is None:
        yield from _descent(side, flat)


def epsilons(side: RecordedSide) -> list[float]:
    """Return the epsilon that the recording gives for its optimiser, if any, then the usual ones."""
    own = _fact(side, "eps")
    return list(dict.fromkeys([*([float(own)] if isinstance(own, (int, float)) else []), *EPSILONS]))


def denominators(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Denominator]:
    """Yield Adam's directions (arXiv 1412.6980) in every variant of bias correction and place of
    epsilon, and AMSGrad's (openreview ryQu7f-RZ)."""
    m = flat.join(side.segment.moments, FIRST)
    v = flat.join(side.segment.moments, SECOND)
    if m is None or v is None:
        return
    count = side.segment.count or side.segment.step + 1
    for which, (beta1, beta2) in enumerate(_betas(side)):
        of_betas = "" if which == 0 else f", of betas {text(beta1)} and {text(beta2)}"
        one = lambda t, b=beta1: 1 - b**t  # noqa: E731
        two = lambda t, b=beta2: 1 - b**t  # noqa: E731
        corrections = [
            (f"both, update {count}{of_betas}", one(count), two(count)),
            ("none", 1.0, 1.0),
            (f"of the first moment only, update {count}{of_betas}", one(count), 1.0),
            (f"of the second moment only, update {count}{of_betas}", 1.0, two(count)),
            (f"both, update {count + 1}{of_betas}", one(count + 1), two(count + 1)),
        ]
        if count > 1:
            corrections.append((f"both, update {count - 1}{of_betas}", one(count - 1), two(count - 1)))
        for correction, c1, c2 in corrections:
            if which and correction == "none":
                continue
            for largest, square in _squares(side, flat, v, c2, two(count - 1) if c2 != 1 else 1.0):
                choices = {"bias correction": correction, "second moment": largest}
                places: list[tuple[str, Callable[[float], np.ndarray]]] = [
                    ("outside the root", lambda e, c=c1, s=square: m / c / (np.sqrt(s) + e)),
                    ("inside the root", lambda e, c=c1, s=square: m / c / np.sqrt(s + e)),
                ]
                if c2 != 1:
                    place = "outside the root, before bias correction"
                    places.append(
                        (place, lambda e, c=c1, s=square, r=c2: m / c / (np.sqrt(s) + e / np.sqrt(r)))
                    )
                for place, of in places:
                    yield Denominator({**choices, "place of epsilon": place}, of)


def _squares(
    side: RecordedSide, flat: JoinedLeaves, v: np.ndarray, now: float, then: float
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the corrected second moment: as it is, or the largest so far. If that was not recorded, the
    larger of the last two is used, which is exact at the first step at which an element shrinks."""
    recorded = flat.join(side.segment.moments, LARGEST)
    corrected = flat.join(side.segment.moments, CORRECTED)
    before = flat.join(side.segment.moments_before, SECOND)
    if recorded is not None:
        yield "largest so far", recorded / now
    if corrected is not None and now != 1:
        yield "largest so far, of corrected ones", corrected
    yield "as it is", v / now
    if recorded is None and corrected is None and before is not None:
        yield "largest so far", np.maximum(before, v) / now
        if then > 0 and now != 1:
            yield "largest so far, of corrected ones", np.maximum(before / then, v / now)


def _betas(side: RecordedSide) -> list[tuple[float, float]]:
    """Return the betas that may be right: as recorded, as the moments tell, and the usual ones; the
    update shows which are."""
    options = betas(side)
    own = _fact(side, "betas")
    if isinstance(own, (list, tuple)) and len(own) == 2:
        options.insert(0, (float(own[0]), float(own[1])))
    return list(dict.fromkeys([*options, BETAS]))


def _descent(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Direction]:
    """Yield SGD's directions: gradient, momentum, or both by Nesterov's method (torch.optim.SGD)."""
    segment = side.segment
    plain, clipped = flat.join(segment.gradients), flat.join(segment.clipped)
    buffer = flat.join(segment.moments, BUFFER)
    given = plain if clipped is None else clipped
    if buffer is None:
        if flat.join(segment.moments, FIRST) is not None or given is None:
            return
        yield Direction({"gradient": "as the optimiser was given it"}, given)
        if clipped is not None and plain is not None and not np.array_equal(plain, clipped):
            yield Direction({"gradient": "before clipping"}, plain)
        return
    yield Direction({"momentum": "plain"}, buffer)
    if given is None:
        return
    yield Direction({"momentum": "kept but not used"}, given)
    before = flat.join(segment.moments_before, BUFFER)
    for momentum in _momenta(side, flat, given, buffer):
        # with decay, and clipped within the optimiser, the gradient is what the buffer was given
        own = buffer if before is None else buffer - momentum * before
        for new in (given, own) if before is not None or side.segment.index == 0 else (given,):
            yield Direction({"momentum": f"Nesterov's, {text(momentum)}"}, new + momentum * buffer)


def _momenta(
    side: RecordedSide, flat: JoinedLeaves, given: np.ndarray, buffer: np.ndarray
) -> list[float]:
    options = [own] if isinstance(own := _fact(side, "momentum"), float) and own else []
    before = flat.join(side.segment.moments_before, BUFFER)
    if before is not None:
        bound = flat.join(noise(side))
        fit = None if bound is None else two_slopes((before, given), buffer, bound, side.eps)
        options += [fit[0]] if fit is not None else []
    return list(dict.fromkeys([*options, 0.9, 0.95, 0.99]))


def _fact(side: RecordedSide, name: str) -> object:
    return None if side.segment.optimizer is None else side.segment.optimizer.facts.get(name)
