"""MLP-Mixer of timm (arXiv 2105.01601) as plain functions of nested dictionaries, in torch's layouts."""

from typing import Any

import jax
import jax.numpy as jnp

from evidence.families.drawn import drawn, nested, normal, weights

PATCH, WIDTH, DEPTH = 5, 22, 2
IMAGES = normal(2, 3, 3 * PATCH, 2 * PATCH)


def original():
    from timm.models.mlp_mixer import MlpMixer

    sizes: Any = {"img_size": IMAGES.shape[2:], "patch_size": PATCH, "embed_dim": WIDTH}
    model = MlpMixer(**sizes, num_blocks=DEPTH, mlp_ratio=(0.6, 1.6), num_classes=7)
    return drawn(model), (IMAGES,)


def port(model):
    return mixer, (nested(weights(model)), IMAGES)


def linear(p, x):
    return x @ p["weight"].T + p["bias"]


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * p["weight"] + p["bias"]


def mlp(p, x):
    return linear(p["fc2"], jax.nn.gelu(linear(p["fc1"], x), approximate=False))


def block(p, x):
    y = layer_norm(p["norm1"], x)
    y = mlp(p["mlp_tokens"], jnp.swapaxes(y, 1, 2))
    x = x + jnp.swapaxes(y, 1, 2)
    return x + mlp(p["mlp_channels"], layer_norm(p["norm2"], x))


def patches(p, images):
    n, c, height, width = images.shape
    x = images.reshape(n, c, height // PATCH, PATCH, width // PATCH, PATCH)
    x = jnp.einsum("nchpwq,dcpq->nhwd", x, p["weight"]) + p["bias"]
    return x.reshape(n, -1, WIDTH)


def mixer(p, images):
    x = patches(p["stem"]["proj"], images)
    for i in range(DEPTH):
        x = block(p["blocks"][str(i)], x)
    x = layer_norm(p["norm"], x)
    return linear(p["head"], x.mean(axis=1))
