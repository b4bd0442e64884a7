"""Limits are measured: a fault of ten roundings is one, and what is ill-conditioned alike in both is
none."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.operations import compare
from parity.verifier.operations.causes.numbers import ratio_of


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
    found = compare((Block(), X), (Block(**wrong), X))
    assert found.verdict == "DIFFERENT"
    assert [place.cause for place in found.places] == [cause]


@pytest.mark.parametrize(
    ("times", "found"), [(1.0, None), (1 + 1e-13, None), (1 + 3e-10, 1 + 3e-10), (2, 2)]
)
def test_once_is_no_multiple(times, found):
    """Which of two values is rounded otherwise, ill-conditioned as they may be, is no factor."""
    value = X.numpy() + np.pi
    ratio = ratio_of(SimpleNamespace(value=value, instead=value * times))
    assert ratio == found if found is None else abs(ratio - found) <= 1e-15


def test_a_value_that_rounding_moves_far_may_be_as_far_from_the_others():
    """The variance of numbers far from zero, as E[x^2] - E[x]^2 and as it should be: 1e-9 apart."""
    x = np.random.default_rng(3).normal(size=(5, 31)) + 1e3

    def fast(x):
        return (x**2).mean(-1) - x.mean(-1) ** 2

    found = compare((lambda x: jnp.var(x, -1), x), (fast, x))
    assert found.verdict == "EQUAL"
    assert found.error > 1e-12


def test_what_is_zero_in_theory_is_not_compared_with_its_rounding():
    """Every sum of these is nothing but rounding, and the two add up in other orders."""
    x = np.random.default_rng(4).normal(size=(6, 40))

    def centred(x, axis):
        return (x - x.mean(axis, keepdims=True)).sum(axis)

    found = compare((lambda x: centred(x, 1), x), (lambda x: centred(x[:, ::-1], 1), x))
    assert (found.verdict, found.error) == ("EQUAL", 0.0)
    found = compare((lambda x: centred(x, 1), x), (lambda x: x.sum(1), x))
    assert found.verdict == "DIFFERENT"
