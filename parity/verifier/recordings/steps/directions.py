"""Rules of an optimiser's direction, which the learning rate multiplies, from moments and gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.verifier.recordings.steps.fitting import JoinedLeaves, text, two_slopes
from parity.verifier.recordings.steps.moments import BETAS as FIRST_BETAS
from parity.verifier.recordings.steps.moments import BUFFER, EPSILONS, FIRST, SECOND, betas
from parity.verifier.recordings.steps.sides import RecordedSide, noise

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
    """Yield the directions of Adam and RMSprop with the usual epsilons, or those of Lion and SGD."""
    for each in denominators(side, flat):
        for epsilon in epsilons(side):
            yield Direction({**each.choices, "epsilon": text(epsilon)}, each.of(epsilon))
    squares, buffer = (flat.join(side.segment.moments, kind) for kind in (SECOND, BUFFER))
    if squares is None or buffer is not None:
        yield from _descent(side, flat)
    if squares is None:
        yield from _signs(side, flat)


def epsilons(side: RecordedSide) -> list[float]:
    """Return the epsilon that the recording gives for its optimiser, if any, then the usual ones."""
    own = _fact(side, "eps")
    return list(dict.fromkeys([*([float(own)] if isinstance(own, (int, float)) else []), *EPSILONS]))


def denominators(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Denominator]:
    """Yield Adam's directions (arXiv 1412.6980) in every variant of bias correction and place of
    epsilon, and AMSGrad's (openreview ryQu7f-RZ); without a first moment, RMSprop's and Adagrad's."""
    own, v = (flat.join(side.segment.moments, kind) for kind in (FIRST, SECOND))
    m = given(side, flat) if own is None else own  # RMSprop and Adagrad divide the gradient
    if m is None or v is None:
        return
    count = side.segment.count or side.segment.step + 1
    told = _betas(side)
    for which, (beta1, beta2) in enumerate(dict.fromkeys([*told, BETAS])):
        of_betas = "" if which < max(len(told), 1) else f", of betas {text(beta1)} and {text(beta2)}"
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
            if correction == "none" if which else own is None and correction != "none":
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
    """Return the betas that may be right: as recorded, and as the moments tell; the update shows which
    are."""
    options = betas(side)
    own = _fact(side, "betas")
    if isinstance(own, (list, tuple)) and len(own) == 2:
        options.insert(0, (float(own[0]), float(own[1])))
    return list(dict.fromkeys(options))


def _descent(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Direction]:
    """Yield SGD's directions: gradient, momentum, or both by Nesterov's method (torch.optim.SGD)."""
    segment = side.segment
    plain, clipped = flat.join(segment.gradients), flat.join(segment.clipped)
    buffer = flat.join(segment.moments, BUFFER)
    new = given(side, flat)
    if buffer is None:
        if flat.join(segment.moments, FIRST) is not None or new is None:
            return
        yield Direction({"gradient": "as the optimiser was given it"}, new)
        if clipped is not None and plain is not None and not np.array_equal(plain, clipped):
            yield Direction({"gradient": "before clipping"}, plain)
        return
    yield Direction({"momentum": "plain"}, buffer)
    if new is None:
        return
    yield Direction({"momentum": "kept but not used"}, new)
    before = flat.join(segment.moments_before, BUFFER)
    for momentum in _momenta(side, flat, new, buffer):
        # with decay, and clipped within the optimiser, the gradient is what the buffer was given
        own = buffer if before is None else buffer - momentum * before
        for each in (new, own) if before is not None or side.segment.index == 0 else (new,):
            yield Direction({"momentum": f"Nesterov's, {text(momentum)}"}, each + momentum * buffer)


def _signs(side: RecordedSide, flat: JoinedLeaves) -> Iterator[Direction]:
    """Yield Lion's directions (arXiv 2302.06675): the sign of the moment before, mixed with the new
    gradient."""
    new, after = given(side, flat), flat.join(side.segment.moments, FIRST)
    before = flat.join(side.segment.moments_before, FIRST)
    if after is None or new is None or (before is None and side.segment.index):
        return
    yield Direction({"sign": "of the first moment"}, np.sign(after))
    own = _fact(side, "betas")
    told = [float(own[0])] if isinstance(own, (list, tuple)) else []
    for beta in dict.fromkeys([*told, *FIRST_BETAS]):
        mixed = (1 - beta) * new + (0.0 if before is None else beta * before)
        yield Direction({"sign": f"of a mean, beta1 {text(beta)}"}, np.sign(mixed))


def given(side: RecordedSide, flat: JoinedLeaves) -> np.ndarray | None:
    """Return the gradients that the optimiser was given."""
    clipped = flat.join(side.segment.clipped)
    return flat.join(side.segment.gradients) if clipped is None else clipped


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
