"""Swin of timm (arXiv 2103.14030) as functions with einops; windows are shifted, padded, masked."""

import jax
import jax.numpy as jnp
from einops import rearrange

from evidence.families.drawn import channels_last, drawn, normal, weights, within

PATCH, WINDOW, WIDTH, DEPTHS, HEADS = 3, 4, 12, (2, 2), (2, 3)
IMAGES = normal(2, 3, 12 * PATCH, 8 * PATCH)


def original():
    from timm.models.swin_transformer import SwinTransformer

    model = SwinTransformer(img_size=IMAGES.shape[2:], patch_size=PATCH, num_classes=5, embed_dim=WIDTH,
                            depths=DEPTHS, num_heads=HEADS, window_size=WINDOW, mlp_ratio=2)  # fmt: skip
    return drawn(model), (IMAGES,)


def port(model):
    return swin, (weights(model), channels_last(IMAGES))


def norm(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
    return x * w[name + ".weight"] + w[name + ".bias"]


def dense(w, name, x):
    return jnp.einsum("...i,oi->...o", x, w[name + ".weight"]) + w[name + ".bias"]


def position_bias(table):
    """(heads, window * window, window * window) from one row for each offset."""
    i = jnp.arange(WINDOW)
    rows, columns = rearrange(jnp.stack(jnp.meshgrid(i, i, indexing="ij")), "c h w -> c (h w)")
    down = rows[:, None] - rows + WINDOW - 1
    right = columns[:, None] - columns + WINDOW - 1
    return rearrange(table[down * (2 * WINDOW - 1) + right], "q k h -> h q k")


def regions(size, shift):
    """Which part of the image a row or column of the shifted map comes from."""
    i = jnp.arange(size)
    if not shift:
        return jnp.zeros_like(i)
    return jnp.where(i < size - WINDOW, 0, jnp.where(i < size - shift, 1, 2))


def window_mask(height, width, shifts):
    """(windows, window * window, window * window): -100 where two tokens were no neighbours."""
    down, right = regions(height, shifts[0]), regions(width, shifts[1])
    region = rearrange(3 * down[:, None] + right, "(h p) (w q) -> (h w) (p q)", p=WINDOW, q=WINDOW)
    return jnp.where(region[:, :, None] == region[:, None], 0.0, -100.0)


def attend(w, x, heads, mask):
    """x: (batch * windows, tokens, width)"""
    q, k, v = rearrange(dense(w, "qkv", x), "b n (c h d) -> c b h n d", c=3, h=heads)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q * q.shape[-1] ** -0.5, k)
    scores = scores + position_bias(w["relative_position_bias_table"])
    scores = rearrange(scores, "(b w) h q k -> b h w q k", w=len(mask)) + mask
    y = jax.nn.softmax(rearrange(scores, "b h w q k -> (b w) h q k"), axis=-1) @ v
    return dense(w, "proj", rearrange(y, "b h n d -> b n (h d)"))


def shifted_windows(w, x, heads, shift):
    _, height, width, _ = x.shape
    shifts = [shift if size > WINDOW else 0 for size in (height, width)]
    x = jnp.roll(x, [-s for s in shifts], axis=(1, 2))
    x = jnp.pad(x, [(0, 0), (0, -height % WINDOW), (0, -width % WINDOW), (0, 0)])
    down, right = x.shape[1] // WINDOW, x.shape[2] // WINDOW
    windows = rearrange(x, "b (h p) (w q) c -> (b h w) (p q) c", p=WINDOW, q=WINDOW)
    mask = window_mask(x.shape[1], x.shape[2], shifts) if shift else jnp.zeros((1, 1, 1))
    y = attend(w, windows, heads, mask)
    y = rearrange(y, "(b h w) (p q) c -> b (h p) (w q) c", h=down, w=right, p=WINDOW, q=WINDOW)
    return jnp.roll(y[:, :height, :width], shifts, axis=(1, 2))


def block(w, x, heads, shift):
    x = x + shifted_windows(within(w, "attn."), norm(w, "norm1", x), heads, shift)
    y = jax.nn.gelu(dense(w, "mlp.fc1", norm(w, "norm2", x)), approximate=False)
    return x + dense(w, "mlp.fc2", y)


def merge(w, x):
    x = rearrange(x, "b (h p) (w q) c -> b h w (q p c)", p=2, q=2)
    return norm(w, "norm", x) @ w["reduction.weight"].T


def swin(w, images):
    x = rearrange(images, "b (h p) (w q) c -> b h w (c p q)", p=PATCH, q=PATCH)
    x = x @ w["patch_embed.proj.weight"].reshape(WIDTH, -1).T + w["patch_embed.proj.bias"]
    x = norm(w, "patch_embed.norm", x)
    for i, (depth, heads) in enumerate(zip(DEPTHS, HEADS, strict=True)):
        if i:
            x = merge(within(w, f"layers.{i}.downsample."), x)
        for j in range(depth):
            x = block(within(w, f"layers.{i}.blocks.{j}."), x, heads, j % 2 * (WINDOW // 2))
    x = norm(w, "norm", x)
    return dense(w, "head.fc", x.mean((1, 2)))
