"""Derived tolerances pass other correct implementations and fail wrong ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen
from torch import nn

import parity
from parity.measure.policies import shadow_limits
from parity.verifier.compare import compare
from tests.support import operations_models as models
from vit_config import ConfigError, InputError

DTYPES = ("float64", "float32", "bfloat16", "float16")


@pytest.fixture(scope="module")
def model():
    return models.torch_model()


def in_jax(weights, x, dtype, fault=""):
    with jax.enable_x64(dtype == "float64"):
        weights = {name: jnp.asarray(each, dtype) for name, each in weights.items()}
        return np.asarray(models.jax_model(fault)(weights, jnp.asarray(x, dtype))).astype(np.float64)


def in_torch(model, x, dtype):
    kind = getattr(torch, dtype)
    state = {name: value.to(kind) for name, value in model.state_dict().items()}
    with torch.no_grad():
        return torch.func.functional_call(model, state, (torch.from_numpy(x).to(kind),))


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_correct_implementation_is_within_it(model, dtype):
    module, weights, x = model
    tolerance = parity.tolerance_for(module, torch.from_numpy(x), dtype=dtype)
    desired = in_torch(module, x, dtype)
    tolerance.assert_close(in_jax(weights, x, dtype), desired)
    np.testing.assert_allclose(in_jax(weights, x, dtype), desired.double().numpy(), **tolerance.allclose)
    assert tolerance.relative < 200 * float(torch.finfo(getattr(torch, dtype)).eps)


@pytest.mark.parametrize("fault", ["tanh", "epsilon", "unscaled", "no residual", "last token"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_wrong_implementation_is_not(model, fault, dtype):
    module, weights, x = model
    tolerance = parity.tolerance_for(module, torch.from_numpy(x), dtype=dtype)
    with pytest.raises(AssertionError, match=r"(relative error|largest difference) .* is allowed: "):
        tolerance.assert_close(in_jax(weights, x, dtype, fault), in_torch(module, x, dtype))


def test_what_it_may_be_asked_of():
    x = np.linspace(-1, 1, 35).reshape(5, 7).astype(np.float32)
    dense = linen.Dense(3)
    variables = dense.init(jax.random.key(0), x)
    linen_side = functools.partial(dense.apply, variables)
    for function in (nn.Linear(7, 3), linen_side, jnp.tanh, torch.tanh):
        given = torch.from_numpy(x) if isinstance(function, nn.Module) or function is torch.tanh else x
        tolerance = parity.tolerance_for(function, given)
        assert 0 < tolerance.relative < 1e-5
        assert 0 < tolerance.absolute < 1e-5
    two = lambda x: {"a": jnp.sin(x), "b": 1000 * x}  # noqa: E731
    assert (
        parity.tolerance_for(two, x, output="b").absolute
        > 100 * parity.tolerance_for(two, x, output="a").absolute
    )
    with pytest.raises(InputError, match="returns 2 arrays; choose one by output = 'a' or 'b'"):
        parity.tolerance_for(two, x)
    with pytest.raises(InputError, match="output = 'c': the function returns 'a', 'b'"):
        parity.tolerance_for(two, x, output="c")
    with pytest.raises(ConfigError, match="dtype = 'int8': must be one of float64"):
        parity.tolerance_for(two, x, dtype="int8")
    with pytest.raises(InputError, match="the output is not finite"):
        parity.tolerance_for(lambda x: jnp.log(x), x)


def test_a_function_that_magnifies_rounding_is_allowed_more():
    x = np.linspace(1, 2, 640)
    for dtype in ("float64", "float32"):
        well = parity.tolerance_for(lambda x: x * 3, x, dtype=dtype)
        badly = parity.tolerance_for(lambda x: x * 3 - (x - 1e-4) * 3, x, dtype=dtype)
        assert badly.relative > 100 * well.relative
        assert dtype == "float64" or "from float64 here" in badly.origin


def test_shapes_and_numbers_that_are_none():
    tolerance = parity.tolerance_for(jnp.sin, np.ones(3))
    tolerance.assert_close(np.sin(np.ones(3)), torch.ones(3).sin())
    with pytest.raises(AssertionError, match="shapes differ"):
        tolerance.assert_close(np.ones(3), np.ones((1, 3)))
    with pytest.raises(AssertionError, match="error inf"):
        tolerance.assert_close(np.array([1, np.nan, 1]), np.ones(3))


def test_an_infinite_run_is_no_yardstick():
    """A limit that is a multiple of another run's error is none where that is infinite."""

    def overflowing(x):
        return (x * 1e30) * 1e30 * 1e-60

    side = overflowing, torch.linspace(1.0, 2.0, 15).reshape(3, 5)
    assert compare(side, side, dtype="float32", backward=False).verdict == "DIFFERENT"
    with pytest.raises(InputError, match="the output is not finite in float32"):
        parity.tolerance_for(*side)
    assert shadow_limits([[1.0, 2.0], [np.inf, 1.0]]) == [20.0, 0.0]
