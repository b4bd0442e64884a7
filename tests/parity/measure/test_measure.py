"""What all comparisons share: the error, the limits and where they come from, a judged tensor."""

import math

import numpy as np
import pytest

from parity.measure.error import norm, relative_error, same_bits
from parity.measure.judged import Judged, LevelResult
from parity.measure.policies import (
    BITS,
    ROUNDING,
    Limit,
    assumed_limit,
    own_float64,
    shadow_limits,
)
from parity.measure.site import Site, output_site
from parity.measure.tolerance import FEW, FLOAT64, RATIO, SHADOW, in_a_row

GRAIN = 2.0**-23
INF, NAN = math.inf, math.nan


def test_the_error_is_relative_to_the_whole_tensor():
    reference = np.array([[3.0, 0.0], [0.0, 4.0]])
    moved = np.array([[3.0, 0.5], [0.0, 4.0]])
    assert relative_error(moved, reference) == pytest.approx(0.1)
    assert relative_error(reference.astype(np.float32), reference) == 0.0
    assert relative_error(reference, reference.T[:1]) == INF  # another shape
    assert relative_error(np.ones(2), np.zeros(2)) == INF
    assert relative_error(np.zeros(2), np.zeros(2)) == 0.0


def test_the_size_may_be_that_of_more_than_the_tensor():
    value, reference = np.array([1.0]), np.array([0.0])
    assert relative_error(value, reference, beside=np.array([4.0])) == 0.25
    assert relative_error(value, reference, at_least=2.0) == 0.5
    assert relative_error(np.array([6.0]), np.array([3.0]), beside=np.array([4.0])) == 0.6


@pytest.mark.parametrize("hole", [NAN, INF, -INF])
def test_what_is_missing_differs_unless_holes_are_allowed(hole):
    reference = np.array([hole, 3.0, 4.0])
    assert relative_error(reference, reference) == INF
    assert relative_error(reference, reference, holes=True) == 0.0
    other = np.array([hole, 3.0, 4.5])
    assert relative_error(other, reference, holes=True) == pytest.approx(0.1)
    assert relative_error(np.array([1.0, 3.0, 4.0]), reference, holes=True) == INF
    assert relative_error(-np.array([INF, 3.0, 4.0]), np.array([INF, 3.0, 4.0]), holes=True) == INF
    assert norm(reference) == 5.0


def test_one_twin_may_not_be_much_farther_from_float64_than_the_other():
    limit = own_float64((2 * GRAIN, 90 * GRAIN), bound=128, grain=GRAIN, numbers=1000)
    assert limit == (8 * GRAIN, "4 x twin")
    limit = own_float64((80 * GRAIN, 90 * GRAIN), bound=128, grain=GRAIN, numbers=1000)
    assert limit == (128 * GRAIN, "128 eps")


def test_distances_below_the_grain_are_not_told_apart():
    assert own_float64((0.0, 0.0), bound=128, grain=GRAIN, numbers=FEW).value == RATIO * GRAIN
    assert own_float64((0.0, 0.0), bound=128, grain=GRAIN, numbers=4).value == 4 * RATIO * GRAIN
    floored = own_float64((0.0, 0.0), bound=128, grain=GRAIN, numbers=FEW, floor=3 * GRAIN)
    assert floored.value == 3 * RATIO * GRAIN


def test_recordings_may_part_by_units_in_the_last_place():
    assert assumed_limit(GRAIN, 3, 1e-3) == (3 * 256 * GRAIN + 1e-3, "256 eps")


def test_shadows_bound_a_run_by_the_farthest_so_far():
    assert shadow_limits([[1e-9, 3e-9], [2e-9, 1e-9], [4e-9, 5e-9]]) == [
        pytest.approx(SHADOW * each) for each in (3e-9, 3e-9, 5e-9)
    ]
    assert shadow_limits([[0.0, 0.0]]) == [FLOAT64]


def test_a_judged_tensor_passes_up_to_its_limit():
    site = Site(0, "forward", "norm", "out")
    assert Judged.by(ROUNDING, site, FLOAT64).passed
    assert not Judged.by(ROUNDING, site, 0.0, 1.001 * FLOAT64).passed
    assert Judged.by(BITS, site, 0.0).passed
    assert not Judged.by(BITS, site, 1e-300).passed
    assert not Judged.by(Limit(1.0, "anything"), site, INF).passed


def test_a_level_adds_up_over_steps():
    first, second = (Site(step, "moments", "w", "exp_avg") for step in (1, 2))
    one = LevelResult.of("float64", "exp_avg", [Judged.by(ROUNDING, first, 3e-13)])
    both = one.and_then(LevelResult.of("float64", "exp_avg", [Judged.by(ROUNDING, second, 2e-12)] * 2))
    assert (both.count, both.failures, both.largest) == (3, 2, 2e-12)
    assert both.worst.site == second
    assert one.passed
    assert not both.passed


@pytest.mark.parametrize(
    ("site", "level", "name"),
    [
        (Site(0, "parameters", "head.bias"), "parameters", "head.bias"),
        (Site(0, "forward", "blocks.0.attn", "out", 1), "modules", "blocks.0.attn out (call 2)"),
        (Site(0, "forward", "", "out"), "modules", "(model) out"),
        (output_site("logits"), "output", "logits"),
        (Site(0, "loss", "mean"), "loss", "mean"),
        (Site(3, "moments", "head.bias", "exp_avg"), "exp_avg", "head.bias"),
        (Site(3, "updated", "head.bias"), "parameters", "head.bias"),
        (Site(3, "updated", "head.bias", "ema"), "ema", "head.bias"),
    ],
)
def test_places_are_named_as_tolerances_and_reports_name_them(site, level, name):
    assert (site.level, site.name) == (level, name)


@pytest.mark.parametrize("count", [83, 787])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_what_adding_up_one_after_another_loses(count, mean):
    numbers = np.random.default_rng(0).normal(mean, 1.0, (count, 509)).astype(np.float32)
    total = np.zeros(509, np.float32)
    for row in numbers:
        total += row
    assert relative_error(total, numbers.sum(axis=0, dtype=np.float64)) == pytest.approx(
        in_a_row(count), rel=0.2
    )


def test_pytorch_adds_up_the_gradients_of_a_norm_token_by_token():
    """If this fails, PyTorch has learned to add in blocks, and `in_a_row` may go."""
    import torch
    from torch.nn.functional import layer_norm

    stream, bias = torch.Generator().manual_seed(0), torch.zeros(61, requires_grad=True)
    gradients = torch.randn(3152, 61, generator=stream)
    y = layer_norm(torch.randn(3152, 61, generator=stream), (61,), torch.ones(61), bias)
    (gradient,) = torch.autograd.grad(y, bias, gradients)
    exact = gradients.double().sum(0).numpy()
    assert relative_error(gradient.numpy(), exact) > in_a_row(3152) / 2
    assert relative_error(gradients.sum(0).numpy(), exact) < in_a_row(3152) / 4


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_tensor_of_any_size_and_layout_has_numpys_norm(dtype):
    stream = np.random.default_rng(0)
    reference = (100 * stream.standard_normal((197, 211))).astype(dtype)  # more than one piece
    value = reference.copy()
    value[-1, -3:] += 1
    exact, base = value.astype(np.float64), reference.astype(np.float64)
    expected = np.linalg.norm(exact - base) / np.linalg.norm(base)
    assert relative_error(value, reference) == pytest.approx(expected, rel=1e-12)
    assert relative_error(value.T, np.ascontiguousarray(reference.T)) == pytest.approx(
        expected, rel=1e-12
    )
    assert norm(value.T) == pytest.approx(float(np.linalg.norm(exact)), rel=1e-12)


def test_bits_tell_zeros_apart_and_know_a_missing_number():
    assert same_bits(np.array([0.0, NAN]), np.array([0.0, NAN]))
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert not same_bits(np.array([0], np.int64), np.array([0.0]))
    assert same_bits(np.array(2.5), np.array(2.5))
    assert same_bits(np.eye(3, 2).T, np.ascontiguousarray(np.eye(3, 2).T))
