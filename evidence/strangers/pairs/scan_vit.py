"""The timm ViT as pure JAX functions: stacked block weights, one lax.scan over depth, matmul stem."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import numpy as np

from draw import to_jax
from timm_vit import GRID, HEADS, PATCH, WIDTH, checkpoint, images


def convert(sd, depth=3):
    """Splits qkv, turns weights to (in, out) and stacks the blocks on a leading axis."""
    def stack(name):
        return np.stack([sd[f"blocks.{i}.{name}"] for i in range(depth)])

    wq, wk, wv = np.split(stack("attn.qkv.weight"), 3, axis=1)
    bq, bk, bv = np.split(stack("attn.qkv.bias"), 3, axis=1)
    heads_last = lambda w: w.transpose(0, 2, 1).reshape(depth, WIDTH, HEADS, -1)
    blocks = {
        "ln1": (stack("norm1.weight"), stack("norm1.bias")),
        "ln2": (stack("norm2.weight"), stack("norm2.bias")),
        "q": (heads_last(wq), bq.reshape(depth, HEADS, -1)),
        "k": (heads_last(wk), bk.reshape(depth, HEADS, -1)),
        "v": (heads_last(wv), bv.reshape(depth, HEADS, -1)),
        "o": (stack("attn.proj.weight").transpose(0, 2, 1).reshape(depth, HEADS, -1, WIDTH), stack("attn.proj.bias")),
        "up": (stack("mlp.fc1.weight").transpose(0, 2, 1), stack("mlp.fc1.bias")),
        "down": (stack("mlp.fc2.weight").transpose(0, 2, 1), stack("mlp.fc2.bias")),
    }
    stem = sd["patch_embed.proj.weight"].transpose(2, 3, 1, 0).reshape(-1, WIDTH)
    return to_jax({
        "stem": (stem, sd["patch_embed.proj.bias"]), "cls": sd["cls_token"][0], "pos": sd["pos_embed"][0],
        "blocks": blocks, "ln": (sd["norm.weight"], sd["norm.bias"]),
        "head": (sd["head.weight"].T, sd["head.bias"]),
    })


def layer_norm(x, scale, shift):
    mu = x.mean(-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(jnp.square(x - mu).mean(-1, keepdims=True) + 1e-6) * scale + shift


def patches(img):
    """(3, H, W) -> (tokens, patch*patch*3)."""
    x = img.transpose(1, 2, 0).reshape(GRID[0], PATCH, GRID[1], PATCH, 3)
    return x.transpose(0, 2, 1, 3, 4).reshape(GRID[0] * GRID[1], -1)


def attention(p, x):
    q, k, v = (jnp.einsum("nd,dhc->hnc", x, p[n][0]) + p[n][1][:, None] for n in "qkv")
    scores = jnp.einsum("hqc,hkc->hqk", q, k) / np.sqrt(q.shape[-1])
    out = jnp.einsum("hqk,hkc->qhc", jax.nn.softmax(scores), v)
    return jnp.einsum("qhc,hcd->qd", out, p["o"][0]) + p["o"][1]


def block(x, p):
    x = x + attention(p, layer_norm(x, *p["ln1"]))
    h = jax.nn.gelu(layer_norm(x, *p["ln2"]) @ p["up"][0] + p["up"][1], approximate=False)
    return x + h @ p["down"][0] + p["down"][1], None


def classify(params, img):
    x = patches(img) @ params["stem"][0] + params["stem"][1]
    x = jnp.concatenate([params["cls"], x]) + params["pos"]
    x, _ = jax.lax.scan(block, x, params["blocks"])
    return layer_norm(x[0], *params["ln"]) @ params["head"][0] + params["head"][1]


def side_scan():
    return jax.vmap(classify, in_axes=(None, 0)), (convert(checkpoint()), to_jax(images()))
