"""Closed-form derivatives: those of automatic differentiation, in every mode and order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.support.tiny import TINY, variant
from vit_config import Recipe
from vit_jax.patch import PatchEmbed
from vit_jax.rules import automatic_derivatives, gelu, normalise, project, softmax_product, split
from vit_jax.step import init_state, make_train_step

EPSILON = 1e-6
CENTRED = pytest.mark.parametrize("centred", [True, False])


def draw(*shape, dtype=jnp.float64):
    """Numbers of another size and centre in each row."""
    stream = np.random.default_rng(len(shape))
    rows = 1 + np.arange(shape[-2])[:, None]
    return jnp.asarray(stream.standard_normal(shape) * rows + rows, dtype)


def error(value, exact):
    value, exact = (np.asarray(x, np.float64) for x in (value, exact))
    return np.linalg.norm(value - exact) / np.linalg.norm(exact)


def both(compute):
    """What a function of nothing computes by the closed form, and by automatic differentiation."""
    closed = compute()
    with automatic_derivatives():
        return closed, compute()


@CENTRED
def test_every_derivative_is_that_of_automatic_differentiation(centred):
    with jax.enable_x64(True):
        x, tangent, upstream = draw(3, 5, 7), draw(5, 7), draw(2, 5, 7)[1]
        x = x[0]
        f = lambda x: normalise(x, EPSILON, centred=centred)  # noqa: E731
        weighted = lambda x: (f(x) * upstream).sum()  # noqa: E731
        result = {
            "value": both(lambda: f(x)),
            "gradient": both(lambda: jax.grad(weighted)(x)),
            "forward mode": both(lambda: jax.jvp(f, (x,), (tangent,))[1]),
            "forward over reverse": both(lambda: jax.jvp(jax.grad(weighted), (x,), (tangent,))[1]),
            "reverse over forward": both(
                lambda: jax.grad(lambda x: (jax.jvp(f, (x,), (tangent,))[1] * upstream).sum())(x)
            ),
            "reverse over reverse": both(
                lambda: jax.grad(lambda x: (jax.grad(weighted)(x) * tangent).sum())(x)
            ),
            "vectorised": both(lambda: jax.vmap(jax.grad(lambda x: f(x)[2]))(x)),
        }
        errors = {name: error(*pair) for name, pair in result.items()}
    assert max(errors.values()) < 1e-13, errors
    assert np.linalg.norm(np.asarray(result["reverse over reverse"][1])) > 0.1  # not zero against zero


@CENTRED
def test_the_value_is_the_formula(centred):
    with jax.enable_x64(True):
        x = np.asarray(draw(3, 5, 7))
        centred_x = x - x.mean(axis=-1, keepdims=True) if centred else x
        expected = centred_x / np.sqrt((centred_x**2).mean(axis=-1, keepdims=True) + EPSILON)
        assert error(normalise(jnp.asarray(x), EPSILON, centred=centred), expected) < 1e-15


@CENTRED
@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2**-23), ("bfloat16", 2**-7)])
def test_no_type_loses_digits_against_automatic_differentiation(centred, dtype, eps):
    x, upstream = draw(3, 31, 67, dtype=dtype), draw(2, 31, 67, dtype=dtype)[1]

    def gradient(x):
        return jax.grad(lambda x: (normalise(x, EPSILON, centred=centred) * upstream).sum())(x[0])

    closed, automatic = both(lambda: gradient(x))
    with jax.enable_x64(True), automatic_derivatives():
        wide = lambda a: jnp.asarray(np.asarray(a, np.float64))  # noqa: E731
        x, upstream = wide(x), wide(upstream)
        exact = gradient(x)
    assert closed.dtype == automatic.dtype == jnp.dtype(dtype)
    assert error(closed, exact) < max(1.2 * error(automatic, exact), eps / 4)


def test_a_compiled_function_is_compiled_again_for_the_other_derivatives():
    x = draw(5, 7, dtype="float32")
    program = jax.jit(jax.grad(lambda x: (normalise(x, EPSILON) ** 3).sum()))
    text = lambda: program.trace(x).jaxpr.pretty_print()  # noqa: E731
    closed = text()
    with automatic_derivatives():
        automatic = text()
    assert closed != automatic
    assert closed == text()


@pytest.mark.slow
def test_a_step_grows_no_faster_than_the_depth():
    """XLA's CPU backend once computed the whole residual stream again in every block."""

    def operations(depth):
        cfg = variant("plain").replace(depth=depth)
        recipe = Recipe()
        state = jax.eval_shape(lambda: init_state(cfg, recipe, 10))
        H, W = cfg.image_size
        image = jax.ShapeDtypeStruct((2, H, W, cfg.in_channels), jnp.float32)
        batch = {"image": image, "label": jax.ShapeDtypeStruct((2,), jnp.int32)}
        compiled = jax.jit(make_train_step(cfg, recipe, 10)).lower(state, batch).compile()
        return compiled.as_text().count(" = ")

    counts = [operations(depth) for depth in (2, 3, 4)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < second < 1.05 * first  # 1.4 where it grows with the square


def attention_inputs(dtype=jnp.float64):
    """Logits (2, 5, 7) of large rows, values (2, 7, 3), and a direction for each."""
    stream = np.random.default_rng(0)
    logits, t = (jnp.asarray(stream.normal(0, 5, (2, 5, 7)), dtype) for _ in range(2))
    v, u = (jnp.asarray(stream.normal(0, 1, (2, 7, 3)), dtype) for _ in range(2))
    return (logits, v), (t, u)


def orders(f, at, along):
    """A function of two arguments, and its derivatives of first and second order."""
    total = lambda *at: (f(*at) ** 2).sum()  # noqa: E731
    slope = jax.grad(total, (0, 1))

    @jax.jit  # one program to compile
    def all_orders(at, along):
        products = lambda *at: sum((a * b).sum() for a, b in zip(slope(*at), along, strict=True))  # noqa: E731
        return {
            "value": [f(*at)],
            "forward mode": [jax.jvp(f, at, along)[1]],
            "gradient": slope(*at),
            "forward over reverse": jax.jvp(slope, at, along)[1],
            "reverse over reverse": jax.grad(products, (0, 1))(*at),
        }

    return all_orders(at, along)


def largest_errors(actual, other):
    return {
        name: max(error(*pair) for pair in zip(values, other[name], strict=True))
        for name, values in actual.items()
    }


def test_every_derivative_of_softmax_times_values():
    with jax.enable_x64(True):
        at, along = attention_inputs()
        plain = lambda logits, v: jax.nn.softmax(logits, axis=-1) @ v  # noqa: E731
        closed, automatic = both(lambda: orders(softmax_product, at, along))
        for other in (automatic, orders(plain, at, along)):
            errors = largest_errors(closed, other)
            assert max(errors.values()) < 1e-13, errors


def around_zero(dtype):
    """Numbers (4, 61) of both signs from none to many, and those whose quotients have no digits left."""
    limits = jnp.finfo(dtype)
    edges = [0.0, float(limits.tiny), 3 * float(limits.tiny), 1e-20, 40.0, 1e4]
    stream = np.random.default_rng(0)
    drawn = np.concatenate([stream.normal(0, s, 58) for s in (1e-6, 1.0, 3.0, 6.0)])
    return jnp.asarray(np.concatenate([edges, np.negative(edges), drawn]).reshape(4, -1), dtype)


def test_every_derivative_of_gelu():
    with jax.enable_x64(True):
        x = around_zero(jnp.float64)
        v, t, u = (draw(2, *x.shape)[0], *draw(2, *x.shape)[:2])
        closed, automatic = both(lambda: orders(lambda x, v: gelu(x) * v, (x, v), (t, u)))
        errors = largest_errors(closed, automatic)
        assert max(errors.values()) < 1e-13, errors
        slopes, truths = both(lambda: jax.vmap(jax.vmap(jax.grad(gelu)))(x))
        np.testing.assert_allclose(slopes, truths, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_derivative_of_gelu_loses_no_digits_against_automatic_differentiation(dtype):
    x = around_zero(dtype)
    slope = jax.jit(jax.vmap(jax.vmap(jax.grad(gelu))))
    closed, automatic = both(lambda: slope(x))
    with jax.enable_x64(True), automatic_derivatives():
        exact = slope(jnp.asarray(np.asarray(x, np.float64)))
    assert closed.dtype == automatic.dtype == jnp.dtype(dtype)
    assert error(closed, exact) < 1.2 * error(automatic, exact)


def test_every_derivative_of_a_projection_that_narrows():
    with jax.enable_x64(True):
        at, along = ((draw(2, 5, 7)[k], draw(3, 7, 3)[k]) for k in (0, 1))
        closed, automatic = both(lambda: orders(project, at, along))
        for other in (automatic, orders(jnp.matmul, at, along)):
            errors = largest_errors(closed, other)
            assert max(errors.values()) < 1e-13, errors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_a_weight_that_narrows_is_the_same_to_the_bit(dtype):
    x, weight, upstream = (draw(*shape, dtype=dtype) for shape in ((61, 48), (48, 16), (61, 16)))
    closed, automatic = both(lambda: jax.jit(lambda: jax.vjp(project, x, weight)[1](upstream))())
    for one, other in zip(closed, automatic, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_only_a_cpu_has_a_barrier_in_the_gradient_of_a_weight_that_narrows():
    def lowered(weight, platform):
        back = jax.jit(lambda x, w: jax.grad(lambda w: (project(x, w) ** 2).sum())(w))
        x = draw(5, len(weight), dtype="float32")
        return back.trace(x, weight).lower(lowering_platforms=(platform,)).as_text()

    has = lambda *of: "optimization_barrier" in lowered(*of)  # noqa: E731
    assert has(draw(7, 3, dtype="float32"), "cpu")
    assert not any(has(draw(*shape, dtype="float32"), "cpu") for shape in ((3, 7), (7, 7)))
    assert not any(has(draw(7, 3, dtype="float32"), platform) for platform in ("cuda", "tpu"))


def test_softmax_times_values_loses_no_digits_against_a_softmax():
    stream = np.random.default_rng(0)
    logits, v, upstream = (
        stream.normal(0, s, shape) for s, shape in ((3, (61, 197)), (1, (197, 32)), (1, (61, 32)))
    )

    def run(f, dtype):
        logits_, v_, upstream_ = (jnp.asarray(x, dtype) for x in (logits, v, upstream))
        return jax.jit(lambda: (lambda y, back: (y, *back(upstream_)))(*jax.vjp(f, logits_, v_)))()

    plain = lambda logits, v: jax.nn.softmax(logits, axis=-1) @ v  # noqa: E731
    logits, v, upstream = (np.float64(np.float32(x)) for x in (logits, v, upstream))
    with jax.enable_x64(True):
        exact = run(plain, jnp.float64)
    for our, their, truth in zip(
        run(softmax_product, jnp.float32), run(plain, jnp.float32), exact, strict=True
    ):
        assert error(our, truth) < 1.05 * error(their, truth) < 1e-6


def test_a_gpu_stores_the_gradient_of_what_is_split_once():
    weight = draw(5, 6, dtype="float32")
    back = jax.jit(jax.grad(lambda x: sum((part**2).sum() for part in split(x @ weight, [1, 4]))))

    def has_a_barrier(platform):
        lowered = back.trace(draw(7, 5, dtype="float32")).lower(lowering_platforms=(platform,))
        return "optimization_barrier" in lowered.as_text()

    assert [has_a_barrier(platform) for platform in ("cuda", "rocm", "cpu", "tpu")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_patch_projection_is_a_convolution():
    """Of images whose last rows and columns are no whole patch, too."""
    cfg = TINY.replace(image_size=(7, 11), patch_size=(3, 5), patch_remainder="crop", in_channels=2)
    proj = PatchEmbed(cfg, rngs=nnx.Rngs(0)).proj
    kernel = draw(3, 5, 2, cfg.hidden_size, dtype="float32")
    proj.kernel[...], proj.bias[...] = kernel, kernel[0, 0, 0]
    images = draw(2, 7, 11, 2, dtype="float32")
    convolved = jax.lax.conv_general_dilated(
        images, kernel, (3, 5), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    assert error(proj(images), convolved + kernel[0, 0, 0]) < 1e-6
