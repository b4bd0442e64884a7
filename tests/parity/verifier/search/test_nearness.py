"""Limits are measured: a fault of ten roundings is one, and what is ill-conditioned alike in both is
none."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.causes.factors import ratio_of
from parity.verifier.locate import compare


class Block(torch.nn.Module):
    """A residual branch with a norm."""

    def __init__(self, epsilon=1e-6, factor=1.0):
        super().__init__()
        torch.manual_seed(1)
        self.norm = torch.nn.LayerNorm(30, eps=epsilon)
        self.wide, self.narrow = torch.nn.Linear(30, 17), torch.nn.Linear(17, 30)
        self.factor = factor

    def forward(self, x):
        y = self.wide(self.norm(x))
        y = y if self.factor == 1 else y * self.factor
        return x + self.narrow(torch.tanh(y))


X = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 7, 30)))


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"factor": 1 + 3e-10}, "one scale too many"),
        ({"epsilon": 1.00001e-6}, "epsilon"),
        ({"epsilon": 1.0000001e-6}, "epsilon"),
    ],
    ids=["6e-11", "2e-12", "2e-14"],
)
def test_a_fault_near_rounding_is_found_and_named(wrong, cause):
    comparison = compare((Block(), X), (Block(**wrong), X))
    assert comparison.verdict == "DIFFERENT"
    assert [place.cause for place in comparison.places] == [cause]


@pytest.mark.parametrize(
    ("times", "expected"), [(1.0, None), (1 + 1e-13, None), (1 + 3e-10, 1 + 3e-10), (2, 2)]
)
def test_once_is_no_multiple(times, expected):
    """Which of two values is rounded otherwise, ill-conditioned as they may be, is no factor."""
    value = X.numpy() + np.pi
    ratio = ratio_of(SimpleNamespace(value_a=value, value_b=value * times))
    assert ratio == expected if expected is None else abs(ratio - expected) <= 1e-15


def fast(x):
    """The variance in one pass, of which few digits are left where means are large."""
    return (x * x).mean(-1) - x.mean(-1) ** 2


def slow(x):
    return jnp.var(x, -1)


FAR = np.random.default_rng(3).normal(size=(5, 31)) + 1e3
"""The two variances of these numbers are 1e-9 apart."""


def test_a_value_that_rounding_moves_far_may_be_as_far_from_the_others():
    comparison = compare((fast, FAR), (slow, FAR))
    assert comparison.verdict == "EQUAL"
    assert comparison.error > 1e-12


def test_what_loses_digits_that_the_reference_keeps_differs():
    comparison = compare((slow, FAR), (fast, FAR))
    assert comparison.verdict == "DIFFERENT"
    (place,) = comparison.places
    assert (place.kind, place.cause) == ("digits", "")
    assert place.b.lines[0].text.startswith("return (x * x)")


def test_lost_digits_are_found_behind_a_value_that_only_seems_to_meet():
    """A stream far from zero differs by less than its fingerprint shows, and by more than the next norm
    leaves of it."""
    rng = np.random.default_rng(5)
    weights = rng.normal(size=(2, 31, 31)) / 6

    def model(first, second):
        def norm(x, variance):
            return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(variance(x)[..., None] + 1e-6)

        def run(weights, x):
            x = x + jnp.tanh(norm(x, first) @ weights[0])
            x = x + jnp.tanh(norm(x, second) @ weights[1])
            return norm(x, slow)

        return run, (weights, FAR)

    for wrong in ((fast, slow), (slow, fast), (fast, fast)):
        comparison = compare(model(slow, slow), model(*wrong))
        assert comparison.verdict == "DIFFERENT"
        (place,) = comparison.places
        assert place.kind == "digits"
        assert place.times == wrong.count(fast)
        assert place.b.lines[0].text.startswith("return (x * x)")


def test_what_is_zero_in_theory_is_not_compared_with_its_rounding():
    """Every sum of these is nothing but rounding, and the two add up in other orders."""
    x = np.random.default_rng(4).normal(size=(6, 40))

    def centred(x, axis):
        return (x - x.mean(axis, keepdims=True)).sum(axis)

    comparison = compare((lambda x: centred(x, 1), x), (lambda x: centred(x[:, ::-1], 1), x))
    assert (comparison.verdict, comparison.error) == ("EQUAL", 0.0)
    comparison = compare((lambda x: centred(x, 1), x), (lambda x: x.sum(1), x))
    assert comparison.verdict == "DIFFERENT"


HALVES = torch.tensor([0.5, 2.0, 0.5, 3.0], dtype=torch.float64)


def numbered(x):
    """The row of an exact number, which no nudged number is."""
    return x * (x == 2.0).nonzero()[0, 0]


def chosen(x):
    """As many rows as have an exact number."""
    return x[x == 0.5] * 3.0


@pytest.mark.parametrize("program", [numbered, chosen])
@pytest.mark.parametrize(("wrong", "verdict"), [(0.0, "EQUAL"), (1e-9, "DIFFERENT")])
def test_what_hangs_on_exact_numbers_is_compared(program, wrong, verdict):
    value = program(HALVES).numpy()

    def port(x):
        rows = x[np.flatnonzero(HALVES.numpy() == 0.5)] if program is chosen else x
        return rows * (3.0 if program is chosen else 1.0) + wrong * value

    assert compare((program, HALVES), (port, HALVES.numpy())).verdict == verdict


def test_rounding_before_what_hangs_on_exact_numbers_is_no_difference():
    """A variance in one pass, ill-conditioned in both; one takes rows by a mask of its input."""
    x = np.random.default_rng(0).normal(size=(6, 31)) + 1e3
    halves = np.array([0.5, 2.0, 0.5, 3.0, 0.5, 1.0])
    rows = np.flatnonzero(halves == 0.5)

    def by_mask(x, halves):
        return ((x * x).mean(1) - x.mean(1) ** 2)[halves == 0.5] * 3.0

    def by_index(x, halves):
        mean = jnp.full(31, 1 / 31)
        return ((x * x)[:, ::-1] @ mean - (x[:, ::-1] @ mean) ** 2)[rows] * 3.0

    a = by_mask, (torch.from_numpy(x), torch.from_numpy(halves))
    b = by_index, (x, halves)
    assert (compare(a, b).verdict, compare(b, a).verdict) == ("EQUAL", "EQUAL")
