"""Logits of a recorded step: which output they are, and each usual scale, named by the loss alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from parity.verifier.recordings.steps.loss import hypotheses
from parity.verifier.recordings.steps.segments import StepSegment, _logits
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


def test_where_no_output_is_called_so_the_last_whole_matrix_is_the_logits():
    def event(path, port, shape, spacing=None):
        return SimpleNamespace(path=path, port=port, shape=shape, spacing=spacing)

    def logits(*events):
        trace = SimpleNamespace(
            of=lambda *_: events, read=lambda each: np.full(each.shape, 0.5, np.float32)
        )
        return _logits(trace, 0)

    head, part = event("head", "out", (4, 5)), event("last", "out", (4, 9), spacing=2)
    found, parts = logits(event("fc", "out", (4, 7)), head, part, event("tokens", "out", (4, 3, 5)),
                          event("other", "in", (4, 2)))  # fmt: skip
    assert (found.shape, found.dtype, parts) == ((4, 5), np.float64, ())
    assert logits(part) == (None, ())
    whole, parts = logits(event("", "out", (4, 6)), head, event("", "out", (2, 6)))
    assert (whole.shape, parts) == ((6, 6), (4, 2))
    named, _ = logits(event("", "out", (4, 6)), event("", "out.logits", (4, 8)), head)
    assert named.shape == (4, 8)
