"""Rules of clipping: the optimiser's gradient, from the gradient that was computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.recordings.steps.fitting import JoinedLeaves, chosen, slope, snap, text
from parity.verifier.recordings.steps.noise import TINY, noise
from parity.verifier.recordings.steps.segment import Hypothesis
from parity.verifier.recordings.steps.sides import RecordedSide

TORCH = 1e-6
"""Constant that torch.nn.utils.clip_grad_norm_ adds to the norm; optax.clip_by_global_norm adds none."""


def hypotheses(side: RecordedSide) -> Iterator[Hypothesis]:
    """Yield no clipping, and clipping by the global norm, by each leaf's norm (both with and without a
    constant added), and by value."""
    segment = side.segment
    flat = JoinedLeaves(segment.result)
    given, made = flat.join(segment.gradients), flat.join(segment.result)
    if given is None or made is None:
        return
    bound = flat.join(noise(side))
    assert bound is not None

    def hypothesis(choices: dict[str, str], value: np.ndarray) -> Hypothesis:
        return Hypothesis(choices, flat.split(value))

    yield hypothesis({"clipping": "none"}, given)
    scale = slope(given, made, bound, side.eps)
    if scale is not None and 0 < scale < 1 and side.norm:
        raw = float(given / bound @ (made / bound)) / float(given / bound @ (given / bound))
        for times, root in (("", raw), (", twice", np.sqrt(raw))):
            for added in (0.0, TORCH):
                whole = side.norm + added
                most = snap(root * whole, 32 * side.eps * whole)
                if not chosen(most):
                    continue
                choices = {
                    "clipping": "global norm" + times,
                    "max norm": text(most),
                    "added to the norm": text(added),
                }
                power = 2 if times else 1
                yield hypothesis(choices, given * (most / whole) ** power)
    norms = np.array([side.norms.get(name, 0.0) for name in flat.names])  # (leaves,)
    left = flat.total(given * made) / np.maximum(flat.total(given**2), TINY)
    touched = left < 1 - 64 * side.eps
    for added in (0.0, TORCH) if touched.any() else ():
        most = float(np.median((left * (norms + added))[touched]))
        most = snap(most, 32 * side.eps * most)
        if not chosen(most):
            continue
        choices = {
            "clipping": "each leaf's norm",
            "max norm": text(most),
            "added to the norm": text(added),
        }
        factor = np.minimum(1.0, most / np.maximum(norms + added, TINY))
        yield hypothesis(choices, given * factor[flat.leaf])
    most = float(np.abs(made).max(initial=0.0))
    most = snap(most, 16 * side.eps * most)
    if most and chosen(most):
        yield hypothesis(
            {"clipping": "each value", "max value": text(most)}, np.clip(given, -most, most)
        )
