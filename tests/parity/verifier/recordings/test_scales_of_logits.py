"""Scales of the logits: each usual one is named by the loss alone."""

import numpy as np
import pytest

from parity.verifier.recordings.steps.loss import hypotheses
from parity.verifier.recordings.steps.segments import StepSegment
from parity.verifier.recordings.steps.sides import RecordedSide

RNG = np.random.default_rng(3)
LOGITS, LABELS = RNG.normal(size=(4, 5)) / 20, np.array([3, 0, 4, 1])


@pytest.mark.parametrize(
    "scale", [0.01, 0.05, 0.07, 0.1, 0.2, 0.25, 0.5, 1, 2, 4, 5, 10, 20, 50, 100]
)  # fmt: skip
def test_each_usual_scale_is_named(scale):
    z = LOGITS * scale
    cost = np.log(np.exp(z).sum(1)) - z[np.arange(4), LABELS]
    segment = StepSegment(
        step=0, stage="loss", result={"loss": np.asarray(cost.mean())}, parameters={}, gradients={},
        clipped={}, rates=(), moments_before={}, moments={}, count=None, logits=LOGITS, labels=LABELS,
    )  # fmt: skip
    plain = [
        each.choices["logits"]
        for each in hypotheses(RecordedSide(segment, 2**-52, {}))
        if each.choices["function"].startswith("softmax") and each.choices["smoothing"] == "none"
        if np.allclose(each.value["loss"], cost.mean(), rtol=1e-12)
    ]
    assert set(plain) == {"as they are" if scale == 1 else f"multiplied by {scale:g}"}
