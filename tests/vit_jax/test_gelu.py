"""GELU: its closed-form derivatives, and the digits of the tail that it is made of on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.vit_jax.test_rules import both, error
from vit_jax.rules import gelu

COUNTED = ("exponential", "erfc", "multiply", "divide", "add", "convert", "select", "compare")
EPS = {"float32": 2.0**-24, "bfloat16": 2.0**-8}
RANGES = [(-1e-3, 1e-3), (-0.5, 0.5), (0.5, 4), (-1, -0.5), (-4, -1), (-8, -4), (-12.5, -8), (-3, 3)]


def exact(x):
    """GELU and its derivative in float64, by scipy's distribution function."""
    x = np.asarray(x, np.float64)
    cdf = special.ndtr(x)
    return x * cdf, cdf + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def test_every_derivative_is_that_of_automatic_differentiation():
    with jax.enable_x64(True):
        x, t = (jnp.asarray(np.random.default_rng(i).normal(0, 2, 37)) for i in (0, 1))
        total = lambda x: (gelu(x) * t).sum()  # noqa: E731
        slope = jax.grad(total)
        found = {
            "value": both(lambda: gelu(x)),
            "gradient": both(lambda: slope(x)),
            "forward mode": both(lambda: jax.jvp(gelu, (x,), (t,))[1]),
            "forward over reverse": both(lambda: jax.jvp(slope, (x,), (t,))[1]),
            "reverse over reverse": both(lambda: jax.grad(lambda x: (slope(x) * t).sum())(x)),
            "third": both(lambda: jax.jvp(lambda x: jax.jvp(slope, (x,), (t,))[1], (x,), (t,))[1]),
        }
        errors = {name: error(*pair) for name, pair in found.items()}
    assert max(errors.values()) < 1e-14, errors


@pytest.mark.parametrize("dtype", EPS)
def test_on_a_cpu_no_range_loses_digits_against_the_library(dtype):
    """Against erfc as XLA computes it, value and gradient; L2 and the largest error of each range."""
    stream = np.random.default_rng(0)
    drawn = np.stack([stream.uniform(low, high, 4001) for low, high in RANGES])
    x = jnp.asarray(drawn, dtype)
    value, slope = exact(x.astype(jnp.float32))
    differentiate = lambda f: jax.jit(lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)))(x)  # noqa: E731
    ours, library = differentiate(gelu), differentiate(lambda x: jax.nn.gelu(x, approximate=False))
    for name, truth, our, their in zip(("value", "slope"), (value, slope), ours, library, strict=True):
        assert our.dtype == jnp.dtype(dtype)
        for row, ends in enumerate(RANGES):
            its = [error(each[row].astype(jnp.float32), truth[row]) for each in (our, their)]
            assert its[0] <= 1.001 * its[1], (name, ends, its)
            far = [np.abs(np.asarray(e[row], np.float64) - truth[row]).max() for e in (our, their)]
            assert far[0] <= 1.1 * far[1], (name, ends, far)
        whole = error(our[-1].astype(jnp.float32), truth[-1])
        assert 0.1 * EPS[dtype] < whole < 0.8 * EPS[dtype]


def test_far_out_and_beyond():
    x = jnp.asarray([0.0, -0.0, -13.0, -14.0, -1e38, 1e38, -jnp.inf, jnp.inf, jnp.nan], jnp.float32)
    value, slope = jax.jit(lambda x: jax.jvp(gelu, (x,), (jnp.ones_like(x),)))(x)
    np.testing.assert_allclose(value, [0, 0, 0, 0, 0, 1e38, 0, np.inf, np.nan], atol=1e-36, rtol=1e-7)
    np.testing.assert_allclose(slope, [0.5, 0.5, 0, 0, 0, 1, 0, 1, np.nan], atol=1e-35)


def test_a_second_derivative_in_float32_sees_through_the_bits():
    x = jnp.linspace(-5, 5, 101, dtype=jnp.float32)
    found = jax.vmap(jax.grad(jax.grad(gelu)))(x)
    wide = np.asarray(x, np.float64)
    expected = np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi) * (2 - wide * wide)
    assert error(found, expected) < 1e-6


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_run_the_library_s_operations(platform):
    """What `jax.nn.gelu` and its automatic derivative lower to, and a product with 1: XLA drops it."""

    def operations(f):
        step = jax.jit(lambda x, g: jax.vjp(f, x)[1](g)[0])
        x = jax.ShapeDtypeStruct((3, 5), jnp.bfloat16)
        text = step.trace(x, x).lower(lowering_platforms=(platform,)).as_text()
        return {n: text.count(f" stablehlo.{n}") + text.count(f" chlo.{n}") for n in COUNTED}, text

    ours, text = operations(gelu)
    theirs, _ = operations(lambda x: jax.nn.gelu(x, approximate=False))
    theirs["multiply"] += 1
    assert "shift_left" not in text
    assert all(ours[name] <= theirs[name] for name in COUNTED), (ours, theirs)
