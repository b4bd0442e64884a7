"""parallel_block as plain functions."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from draw import to_jax
from parallel_block import C, D, H, tokens, weights


def ln(x, scale, bias=0.0):
    return jax.nn.standardize(x, axis=-1, epsilon=1e-6) * scale + bias


def block(p, x, wrong=True):
    qkv, up = p["fused.weight"][: 3 * D], p["fused.weight"][3 * D:]
    out_a, out_m = p["out.weight"][:, :D], p["out.weight"][:, D:]
    y = ln(x, p["norm.weight"], p["norm.bias"])
    q, k, v = jnp.moveaxis((y @ qkv.T).reshape(*x.shape[:-1], 3, H, C), -3, 0)
    y_attn = jax.nn.dot_product_attention(ln(q, p["q_norm.weight"]), ln(k, p["k_norm.weight"]), v)
    x = x + y_attn.reshape(x.shape) @ out_a.T + p["out.bias"]
    if wrong:
        y = ln(x, p["norm.weight"], p["norm.bias"])  # !wrong
    return x + jax.nn.gelu(y @ up.T + p["fused_bias"], approximate=False) @ out_m.T


def side_wrong():
    return block, (to_jax(weights()), *tokens(to_jax))


def side_right():
    return (lambda p, x: block(p, x, wrong=False)), (to_jax(weights()), *tokens(to_jax))
