"""Three models as plain functions of JAX, to be changed line by line: a decoder, ConvNeXt, a Mixer."""

import jax
import jax.numpy as jnp
import numpy as np

B, N, D, H, M, VOCABULARY = 2, 7, 24, 4, 34, 19


def rms_norm(x, weight, eps=1e-5):
    scale = jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + eps)
    return x * scale * weight


def rotate(x, base=10000.0):
    half = x.shape[-1] // 2
    frequencies = base ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def causal_attention(x, p):
    q = (x @ p["wq"]).reshape(B, N, H, -1)
    k = (x @ p["wk"]).reshape(B, N, H, -1)
    v = (x @ p["wv"]).reshape(B, N, H, -1)
    q, k = rotate(q), rotate(k)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5
    future = jnp.arange(N)[:, None] < jnp.arange(N)[None]
    scores = jnp.where(future, -1e30, scores)
    weights = jax.nn.softmax(scores, axis=-1)
    out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return out.reshape(B, N, D) @ p["wo"]


def decoder(p, ids):
    x = p["embedding"][ids] * D**0.5
    for i in range(2):
        block = {name[2:]: value for name, value in p.items() if name.startswith(f"{i}.")}
        x = x + causal_attention(rms_norm(x, block["norm1"]), block)
        y = rms_norm(x, block["norm2"])
        x = x + (jax.nn.silu(y @ block["gate"]) * (y @ block["up"])) @ block["down"]
    x = rms_norm(x, p["norm"])
    return 30.0 * jnp.tanh(x @ p["head"] / 30.0)


def layer_norm(x, p, name, eps=1e-6):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    y = (x - mean) / jnp.sqrt(variance + eps)
    return y * p[name + ".scale"] + p[name + ".bias"]


def convolve(x, kernel, stride, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def convnext(p, x):
    x = (x - 0.45) / 0.225
    x = convolve(x, p["stem"], 4) + p["stem.bias"]
    x = layer_norm(x, p, "stem_norm")
    for i in range(2):
        y = convolve(x, p[f"{i}.depthwise"], 1, groups=D)
        y = layer_norm(y, p, f"{i}.norm")
        y = jax.nn.gelu(y @ p[f"{i}.wide"] + p[f"{i}.wide.bias"], approximate=False)
        y = (y @ p[f"{i}.narrow"]) * p[f"{i}.gamma"]
        x = x + y
    x = jnp.mean(x, axis=(1, 2))
    return layer_norm(x, p, "norm") @ p["head"]


def mixer(p, x):
    x = x.reshape(B, N, -1) @ p["patches"]
    for i in range(2):
        y = layer_norm(x, p, f"{i}.norm1")
        y = jnp.swapaxes(y, 1, 2)
        y = jax.nn.gelu(y @ p[f"{i}.tokens_in"]) @ p[f"{i}.tokens_out"]
        x = x + jnp.swapaxes(y, 1, 2)
        y = layer_norm(x, p, f"{i}.norm2")
        y = jax.nn.relu(y @ p[f"{i}.channels_in"]) ** 2 @ p[f"{i}.channels_out"]
        x = x + 0.5 * y
    x = layer_norm(x, p, "norm")
    logits = x.max(axis=1) @ p["head"]
    return logits - jax.scipy.special.logsumexp(logits, axis=-1, keepdims=True)


def _draw(shapes):
    rng = np.random.default_rng(5)
    return {name: 0.3 * rng.normal(size=s) + (len(s) == 1) for name, s in shapes.items()}


def _norm(name):
    return {name + ".scale": (D,), name + ".bias": (D,)}


def decoder_inputs():
    """Parameters and tokens."""
    blocks = {}
    for i in range(2):
        blocks |= {f"{i}.{name}": (D, D) for name in ("wq", "wk", "wv", "wo")}
        blocks |= {f"{i}.norm1": (D,), f"{i}.norm2": (D,), f"{i}.gate": (D, M), f"{i}.up": (D, M)}
        blocks |= {f"{i}.down": (M, D)}
    shapes = blocks | {"embedding": (VOCABULARY, D), "norm": (D,), "head": (D, VOCABULARY)}
    return _draw(shapes), np.random.default_rng(6).integers(0, VOCABULARY, (B, N))


def convnext_inputs():
    """Parameters and an image."""
    shapes = {"stem": (4, 4, 3, D), "stem.bias": (D,), "head": (D, 11)}
    shapes |= _norm("stem_norm") | _norm("norm")
    for i in range(2):
        shapes |= {f"{i}.depthwise": (3, 3, 1, D), f"{i}.wide": (D, M), f"{i}.wide.bias": (M,)}
        shapes |= {f"{i}.narrow": (M, D), f"{i}.gamma": (D,)} | _norm(f"{i}.norm")
    return _draw(shapes), np.random.default_rng(6).normal(size=(B, 20, 12, 3))


def mixer_inputs():
    """Parameters and patches."""
    shapes = {"patches": (15, D), "head": (D, 11)} | _norm("norm")
    for i in range(2):
        shapes |= {f"{i}.tokens_in": (N, 13), f"{i}.tokens_out": (13, N)}
        shapes |= {f"{i}.channels_in": (D, M), f"{i}.channels_out": (M, D)}
        shapes |= _norm(f"{i}.norm1") | _norm(f"{i}.norm2")
    return _draw(shapes), np.random.default_rng(6).normal(size=(B, N, 5, 3))
