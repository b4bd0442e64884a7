"""The files of one ViT each: the same curve in both frameworks."""

import numpy as np
import pytest

from evidence.speedruns import digits_jax, digits_torch


def test_both_files_take_the_same_steps(monkeypatch):
    for module in (digits_jax, digits_torch):
        monkeypatch.setattr(module, "DEPTH", 1)
    (ours, right, _), (theirs, also, _) = digits_jax.train(3), digits_torch.train(3)
    assert len(ours) == 3 * 14
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert ours[-1] < 0.9 * ours[0]
    assert right == pytest.approx(also, abs=0.003)
