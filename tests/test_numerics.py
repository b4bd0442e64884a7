"""Findings about precision, kept: each was a parity failure once."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from tiny import error

from vit_torch.norm import LayerNorm


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
