"""Findings about precision, kept: each was a parity failure once; and what an activation is."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from tests.support.tiny import TINY, error
from vit_config.numerics.resample import grid_matrices
from vit_jax.linear import Linear
from vit_jax.optim import scale_by_adam
from vit_torch.norm import LayerNorm

pytestmark = [pytest.mark.versions, pytest.mark.quick]


def _bias_gradient(norm, x, upstream):
    norm.zero_grad()
    (norm(x) * upstream).sum().backward()
    return norm.bias.grad.double()


def test_torchs_own_layer_norm_loses_its_bias_gradient_in_bfloat16():
    stream = np.random.default_rng(0)
    x, upstream = (torch.from_numpy(stream.standard_normal((2000, 13))).bfloat16() for _ in range(2))
    exact = _bias_gradient(torch.nn.LayerNorm(13).double(), x.double(), upstream.double())
    stock = error(_bias_gradient(torch.nn.LayerNorm(13).bfloat16(), x, upstream), exact)
    ours = error(_bias_gradient(LayerNorm(13).bfloat16(), x, upstream), exact)
    assert ours < 2**-8  # the result's own rounding
    assert stock > 4 * ours


def test_fast_jax_attention_is_float32_even_in_float64(x64):
    stream = np.random.default_rng(0)
    q, k, v = (jnp.asarray(stream.standard_normal((2, 7, 3, 5))) for _ in range(3))
    fast = jax.nn.dot_product_attention(q, k, v)
    weights = jax.nn.softmax(jnp.einsum("bnhd,bmhd->bhnm", q, k) / np.sqrt(5), axis=-1)
    reference = jnp.einsum("bhnm,bmhd->bnhd", weights, v)
    assert fast.dtype == jnp.float64
    assert 1e-10 < error(fast, reference) < 1e-6  # so float64 proofs use the reference kernel


def test_optaxs_own_adam_loses_five_digits_in_float32():
    """It takes 1 - beta^t with beta rounded to float32, which leaves 1 - 0.999 five digits; so the
    update is off by a constant factor, step after step, and the twins' float32 runs parted."""
    stream = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.zeros(50, dtype=torch.float64))
    exact = torch.optim.Adam([parameter], lr=1.0, betas=(0.9, 0.999), eps=1e-8)
    errors = {}
    rules = {"ours": scale_by_adam(0.9, 0.999, 1e-8), "optax": optax.scale_by_adam(0.9, 0.999, 1e-8)}
    states = {name: rule.init(jnp.zeros(50)) for name, rule in rules.items()}
    for _ in range(20):
        gradient = stream.standard_normal(50).astype(np.float32)
        before = parameter.detach().clone()
        parameter.grad = torch.from_numpy(gradient.astype(np.float64))
        exact.step()
        for name, rule in rules.items():
            direction, states[name] = rule.update(jnp.asarray(gradient), states[name])
            errors[name] = error(direction, before - parameter.detach())
    assert errors["ours"] < 1e-6
    assert 4e-6 < errors["optax"] < 1e-4


def test_flaxs_own_linear_layer_loses_its_bias_gradient_in_bfloat16():
    """XLA's CPU adds it up in bfloat16, over all tokens of a batch."""
    stream = np.random.default_rng(0)
    x, upstream = (jnp.asarray(stream.standard_normal((2000, 13)), jnp.bfloat16) for _ in range(2))

    def bias_gradient(kind):
        graph, params = nnx.split(kind(13, 13, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))

        def loss(params):
            return (nnx.merge(graph, params)(x) * upstream).sum()

        return jax.grad(loss)(params)["bias"].get_value().astype(jnp.float32)

    exact = np.asarray(upstream, np.float64).sum(axis=0)
    assert error(bias_gradient(Linear), exact) < 2**-8  # the result's own rounding
    assert error(bias_gradient(nnx.Linear), exact) > 3 * 2**-8
    ours, theirs = (
        kind(13, 13, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)) for kind in (Linear, nnx.Linear)
    )
    ours.kernel[...] = theirs.kernel[...]
    np.testing.assert_array_equal(ours(x), theirs(x))  # forward they are the same, bit for bit


TWINS = [vit_jax, vit_torch]


def test_activations_are_their_formulas(x64):
    x = np.linspace(-4.0, 4.0, 41)
    cube = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    for name, expected in {
        "gelu": x * (1 + np.array([math.erf(each / math.sqrt(2)) for each in x])) / 2,
        "gelu_tanh": x * (1 + np.tanh(cube)) / 2,
        "quick_gelu": x / (1 + np.exp(-1.702 * x)),
        "silu": x / (1 + np.exp(-x)),
        "relu": np.maximum(x, 0.0),
    }.items():
        assert error(vit_jax.mlp.ACTIVATIONS[name](jnp.asarray(x)), expected) < 1e-14, name
        assert error(vit_torch.mlp.ACTIVATIONS[name](torch.from_numpy(x)), expected) < 1e-14, name


def in_bfloat16(twin, array):
    """An array in one twin's bfloat16."""
    if twin is vit_torch:
        return torch.from_numpy(np.asarray(array, np.float32)).bfloat16()
    return jnp.asarray(array, jnp.bfloat16)


def in_float32(array):
    """A tensor of either twin as numpy has it."""
    return np.asarray(array.detach().float() if isinstance(array, torch.Tensor) else array, np.float32)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_norm_has_the_schemas_epsilon(norm):
    cfg, x = TINY.replace(norm=norm, norm_eps=3.0), np.array([[1.0, -1.0, 1.0, -1.0]], np.float32)
    flax = vit_jax.norm.make_norm(cfg, 4, rngs=nnx.Rngs(0))(jnp.asarray(x))
    torchs = vit_torch.norm.make_norm(cfg, 4)(torch.from_numpy(x)).detach()
    for result in (flax, torchs):  # the variance, and the mean square, are 1
        np.testing.assert_allclose(np.asarray(result), x / 2, rtol=1e-6)


@pytest.mark.parametrize("twin", TWINS, ids=["jax", "torch"])
def test_a_norms_gain_and_bias_meet_what_is_not_rounded_yet(twin):
    """A bias that takes away all that bfloat16 can hold of an output leaves the rest."""
    x = in_bfloat16(twin, np.random.default_rng(0).standard_normal((1, 13)))
    norm = LayerNorm(13) if twin is vit_torch else vit_jax.norm.LayerNorm(13, rngs=nnx.Rngs(0))
    rounded = -in_float32(norm(x))[0]
    if twin is vit_torch:
        norm.bias.data = torch.from_numpy(rounded)
    else:
        norm.bias[...] = jnp.asarray(rounded)
    wide = in_float32(x)[0].astype(np.float64)
    exact = (wide - wide.mean()) / np.sqrt(wide.var() + (norm.eps if twin is vit_torch else 1e-6))
    assert error(in_float32(norm(x))[0], exact + rounded) < 0.01


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
@pytest.mark.parametrize("twin", TWINS, ids=["jax", "torch"])
def test_queries_are_turned_in_float32_and_keep_their_type(twin, pairs):
    """Half of each pair ends near zero, where bfloat16 has no digits left."""
    angles = np.linspace(0.7, 0.87, 8).reshape(1, 2, 4).astype(np.float32)  # (1, N, d / 2)
    x = in_bfloat16(twin, np.ones((1, 3, 1, 8)))  # (B, 1 + N, h, d)
    given = torch.from_numpy(angles) if twin is vit_torch else jnp.asarray(angles)
    turned = twin.rope.rotate(x, twin.rope.make_rotation(given, None), pairs=pairs)
    assert turned.dtype == x.dtype
    result = in_float32(turned)[0, 1:, 0]  # (N, d)
    near_zero = result[:, :4] if pairs == "half" else result[:, ::2]
    wide = angles[0].astype(np.float64)
    assert error(near_zero, np.cos(wide) - np.sin(wide)) < 2**-8


@pytest.mark.parametrize("twin", TWINS, ids=["jax", "torch"])
def test_positions_in_bfloat16_are_resampled_in_float32(twin):
    cfg = TINY.replace(pos_embed_resize="bicubic")
    table = in_bfloat16(twin, np.random.default_rng(0).standard_normal((1, 10, 30)))
    result = twin.positions.fit_positions({"pos_embed": table}, cfg, (5, 7))
    wide = in_float32(table)[0, 1:].astype(np.float64).reshape(3, 3, 30)
    rows, columns = grid_matrices(cfg.pos_embed_resize, cfg.grid, (5, 7))
    exact = np.einsum("ai,bj,ijd->abd", rows, columns, wide).reshape(35, 30)
    assert result.dtype == table.dtype
    rounded = in_float32(in_bfloat16(vit_jax, exact))
    assert (in_float32(result)[0, 1:] == rounded).mean() > 0.99
