"""What an optimiser's moments began with, where it was not what they should have begun with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.segments import StepSegment, step_segment
from tests.parity.verifier.recordings.test_step_causes import RATE, both, groups, only, run_torch


def changed(segment: StepSegment, result: dict[str, np.ndarray]) -> StepSegment:
    """The same stage with another outcome."""
    same = {"moments": result} if segment.stage == "moments" else {}
    return replace(segment, result=result, **same)


def test_moments_begun_anew(tmp_path):
    segment = step_segment(run_torch(tmp_path / "a.trace"), 2, "moments")
    anew = {}
    for name, gradient in segment.gradients.items():
        anew |= {f"{name} exp_avg": 0.1 * gradient, f"{name} exp_avg_sq": (1 - 0.999) * gradient**2}
    verdict = explain_step(segment, changed(segment, anew))
    assert [c.name for c in verdict.causes] == ["moments-start"]


class Begun(torch.optim.AdamW):
    """Its first moment is what somebody else left; its second is not."""

    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p not in self.state):
            self.state[p] = {
                "step": torch.tensor(0.0),
                "exp_avg": 0.3 * torch.cos(100 * p.detach()) ** 3,
                "exp_avg_sq": torch.zeros_like(p),
            }
        return super().step(closure)


@both
def test_moments_that_began_with_what_was_not_recorded(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, lambda model: Begun(groups(model, 0.05), lr=RATE))
    cause = only(a, b, "moments-start", "moments")
    assert (cause.a, cause.b) == ("moments from: zero", "moments from: others, not recorded")
    first = step_segment(b, 0, "moments")
    wrong = {name: value * 1.001 for name, value in first.result.items()}  # does not lead to the next
    verdict = explain_step(step_segment(a, 0, "moments"), changed(first, wrong))
    assert not verdict.causes
    coupled = lambda model: torch.optim.Adam(groups(model, 0.05), lr=RATE)  # noqa: E731
    c = run_torch(tmp_path / "c.trace", dtype, coupled)
    only(a, c, "coupled-decay", "moments")
