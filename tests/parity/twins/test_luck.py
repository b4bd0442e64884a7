"""A twin near to float64 by luck makes no difference of the other; a less accurate one is found."""

from __future__ import annotations

import numpy as np
import pytest

from parity.measure.recording import HeldRecording
from parity.measure.redraw import Batch
from parity.measure.site import Site, output_site
from parity.measure.tolerance import epsilon
from parity.twins.check import check_config
from parity.twins.judge import DRAWS, Runs, compare, error_of
from parity.twins.task import nudged_numbers
from tests.support.tiny import TINY

pytestmark = pytest.mark.quick

GAIN = Site(0, "gradients", "norm.weight")
EPS = epsilon("float32")


def recording(error: float) -> HeldRecording:
    held = HeldRecording()
    held.add(GAIN, np.full(8, 1 + error))
    return held


def runs(jax: float, torch: float, again=None) -> Runs:
    """Runs whose only gradient is off by so many units in the last place."""
    exact = recording(0.0)
    return Runs("float32", recording(jax * EPS), recording(torch * EPS), exact, exact, again)


def test_luck_is_averaged_away():
    seeds = []

    def again(seed: int) -> Runs:
        seeds.append(seed)
        return runs(20.0, 30.0)

    (compared,), divergence = compare(runs(1.0, 30.0))
    assert not compared.passed
    assert divergence is not None
    (compared,), divergence = compare(runs(1.0, 30.0, again))
    assert compared.passed
    assert divergence is None
    assert seeds == [*range(1, DRAWS)]


@pytest.mark.parametrize(("jax", "torch", "times"), [(1.0, 30.0, DRAWS - 1), (1.0, 300.0, 0)])
def test_a_less_accurate_path_stays_one(jax, torch, times):
    seeds = []

    def again(seed: int) -> Runs:
        seeds.append(seed)
        return runs(jax, torch)

    (compared,), divergence = compare(runs(jax, torch, again))
    assert not compared.passed
    assert divergence is not None
    assert divergence.where == "norm.weight"
    assert len(seeds) == times


def test_nudged_numbers_are_one_unit_away_and_differ_by_seed():
    given = np.linspace(1.0, 1.9, 30, dtype=np.float32)
    batch = Batch(given.astype(np.float64).reshape(1, 5, 6, 1), np.zeros(1, np.int64))
    moved = [nudged_numbers(lambda *_: given, batch, "float32", seed) for seed in (1, 2)]
    drawn = [(weights("norm.weight", "norm", (30,)), images) for weights, (images, _) in moved]
    for weights, images in drawn:
        assert np.abs(weights - given).max() == np.abs(images - batch.images).max() == EPS
    assert not np.array_equal(drawn[0][0], drawn[1][0])


def test_float32_alone_says_whether_the_functions_are_the_same():
    report = check_config(TINY, dtypes=("float32",), fault="tanh_gelu")
    assert not report.agrees
    assert {each.where for each in report.divergences} == {"blocks.0.mlp.act"}


def test_a_loss_is_the_difference_of_numbers_of_the_size_of_logits():
    exact, rounded = HeldRecording(), HeldRecording()
    for held, error in ((exact, 0.0), (rounded, 30 * EPS)):
        held.add(output_site("logits"), np.array([[30.0, 12.0], [-4.0, 40.0]]))
        held.add(Site(0, "loss", "cross entropy per image"), np.array([1e-8, 2e-8]) + error)
    error = error_of(rounded, exact, Site(0, "loss", "cross entropy per image"))
    assert error == pytest.approx(30 * EPS * 2**0.5 / 50, rel=1e-4)
