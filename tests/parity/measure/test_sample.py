"""Which elements of a large tensor are kept."""

import itertools
import math

import numpy as np
import pytest

from parity.measure.traces.sample import sample, sampled_shape, spacing


@pytest.mark.parametrize("shape", [(8, 197, 192), (2, 3, 28, 20), (13,), (1, 1, 5001), (7, 7, 7)])
@pytest.mark.parametrize("keep", [1, 12, 1000])
def test_no_more_than_asked_for_and_not_far_less(shape, keep):
    part = sample(np.arange(math.prod(shape)).reshape(shape), keep)
    steps = part.spacing or (1,) * len(shape)
    assert part.values.size <= keep
    assert part.values.shape == sampled_shape(shape, steps)
    assert all(step % 2 for step in steps)  # what repeats by two is seen in every place
    assert part.values.size >= min(math.prod(shape), keep) / 3


def test_another_order_of_axes_keeps_the_same_elements():
    x = np.random.default_rng(0).standard_normal((2, 24, 14, 10))
    for axes in itertools.permutations(range(4)):
        there = sample(x.transpose(axes), 100).values
        np.testing.assert_array_equal(there, sample(x, 100).values.transpose(axes))


def test_axes_of_one_length_are_spaced_alike():
    first, second, third = spacing((14, 14, 192), 200)
    assert first == second < third


def test_all_of_a_small_tensor():
    x = np.ones((3, 4))
    assert sample(x, 12).values is x
    assert sample(x, None).spacing is None
