"""The stem of conv_stem in Equinox-free JAX: convolutions by lax, norms folded by hand."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from conv_stem import pictures, weights
from draw import to_jax


def stem(ws, x, live=False):
    for i, w in enumerate(ws):
        x = jax.lax.conv_general_dilated(x, w["conv"].transpose(2, 3, 1, 0), (2, 2), [(1, 1), (1, 1)],
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        if live:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))  # !wrong
        else:
            mean, var = w["mean"], w["var"]
        factor = w["gamma"] * jax.lax.rsqrt(var + 1e-5)
        x = x * factor + (w["beta"] - mean * factor)
        if i == 0:
            x = jax.nn.gelu(x, approximate=False)
    return x


def side_wrong():
    ws = to_jax(weights())
    return jax.jit(lambda x: stem(ws, x, live=True)), (to_jax(pictures()),)


def side_right():
    ws = to_jax(weights())
    return jax.jit(lambda x: stem(ws, x)), (to_jax(pictures()),)
