"""Integers are compared exactly, also those that float64 does not have."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import parity
from parity.measure.error import relative_error
from parity.verifier.programs.fingerprint import distance, fingerprint, same

pytestmark = pytest.mark.quick

LARGE = np.array([2**60, -(2**60), 5])
T = torch.from_numpy(LARGE)
CASES = {
    "the same": (lambda i: i + 1, LARGE, "EQUAL"),
    "another": (lambda i: i + 2, LARGE, "DIFFERENT"),
    "one in the last place": (lambda i: i + jnp.array([1, 2, 1]), LARGE, "DIFFERENT"),
    "a small one": (lambda i: i + jnp.array([1, 1, 2]), LARGE, "DIFFERENT"),
    "another input": (lambda i: i + 1, LARGE + 1, "DIFFERENT"),
}


@pytest.mark.parametrize("case", CASES)
def test_large_integers(case):
    function, given, verdict = CASES[case]
    found = parity.diff((lambda i: i + 1, T), (function, given))
    assert found.verdict == verdict
    assert (found.forward.error == 0) == (verdict == "EQUAL")


def test_integers_below_the_limit_of_rounding():
    given = np.array([2**50])
    found = parity.diff((lambda i: i + 1, torch.from_numpy(given)), (lambda i: jnp.add(i, 2), given))
    assert found.verdict == "DIFFERENT"


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_values_of_large_integers_meet_only_where_they_are_the_same(kind):
    values = np.arange(2**62, 2**62 + 7).astype(kind)
    assert same(fingerprint(values), fingerprint(values[::-1]))
    assert not same(fingerprint(values), fingerprint(values + np.array(1, kind)))
    assert distance(values, values) == 0
    assert distance(values, values[::-1]) == np.inf
    assert relative_error(values, values) == 0
    assert relative_error(values, values[::-1]) == np.inf


def test_what_stands_for_infinity_in_integers_still_does():
    least = np.array([np.iinfo(np.int64).min, 3])
    infinite = np.array([-np.inf, 3.0])
    assert distance(least, infinite) == 0
    assert same(fingerprint(least), fingerprint(infinite))
    assert distance(np.array([2**60]), np.array([2.0**61])) == 0.5 * 2
