"""The model in plain JAX, in pieces that many styles call; the switches of `wrong` are its mistakes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from evidence.clean_pairs.style import RIGHT
from evidence.clean_pairs.weights import block as weights_of

FAULTS = frozenset({
    "epsilon", "every epsilon", "tanh gelu", "quick gelu", "no scale", "scale of width", "head order",
    "packing", "causal mask", "no bias", "no gain", "no residual", "detached gain", "detached bias",
    "detached positions", "detached skip", "detached attention", "detached mlp", "last block not called",
    "no last norm", "n - 1", "rms", "positions shifted", "channels reversed", "pixels transposed",
    "constants of pixels", "float32 scale", "layers reversed", "layers as strings", "weight transposed",
    "softmax axis", "dropout scale",
})  # fmt: skip
EXTRA = frozenset({
    "detached gamma", "gammas exchanged", "q norm missing", "q and k norms exchanged", "prefix in mean",
    "second token",
})  # fmt: skip
"""Those that need a layer scale, qk norm, a mean or a class token."""


def norm(x, p, name, size, wrong=RIGHT, i=None):
    """The formula as the paper has it; mistakes are made in the first norm of a block."""
    gain, bias, first = p[f"{name}.weight"], p[f"{name}.bias"], wrong if name == "norm1" else RIGHT
    mean = jnp.mean(x, -1, keepdims=True)
    centred = x if first("rms", i) else x - mean
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    if first("n - 1", i):
        variance = jnp.var(x, -1, keepdims=True, ddof=1)
    epsilon = 1e-5 if first("epsilon", i) or wrong("every epsilon") else size.epsilon
    y = centred * jax.lax.rsqrt(variance + epsilon)  # wrong: epsilon, every epsilon, n - 1, rms
    gain = stop_gradient(gain) if first("detached gain", i) else gain
    y = y if name == "norm2" and wrong("no gain", i) else y * gain  # wrong: detached gain
    return y + bias  # wrong: no gain


def pixels(x, wrong):
    """Prepare the images (B, H, W, C)."""
    x = x[..., ::-1] if wrong("channels reversed") else x
    return (x - 0.5) / 0.5 if wrong("constants of pixels") else x


def tokens(w, x, size, wrong=RIGHT):
    """Images to patch tokens by a convolution."""
    kernel = w["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    kernel = kernel.swapaxes(0, 1) if wrong("pixels transposed") else kernel
    x = jax.lax.conv_general_dilated(  # wrong: pixels transposed, channels reversed
        pixels(x, wrong), kernel, (size.patch, size.patch), "VALID",  # wrong: constants of pixels
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return x.reshape(x.shape[0], -1, size.width) + w["patch_embed.proj.bias"]


def assemble(w, x, size, wrong=RIGHT):
    """Class token, registers, positions, as timm does it; of a batch of tokens."""
    positions = w["pos_embed"]
    positions = stop_gradient(positions) if wrong("detached positions") else positions
    positions = jnp.roll(positions, 1, 1) if wrong("positions shifted") else positions
    front = [jnp.broadcast_to(w[name], (x.shape[0], *w[name].shape[1:]))
             for name in ("cls_token", "reg_token") if name in w]  # fmt: skip
    if size.registers:
        # wrong: detached positions, positions shifted
        return jnp.concatenate([*front, x + positions], 1)
    x = jnp.concatenate([*front, x], 1) if front else x
    return x + positions  # wrong: detached positions, positions shifted


def embed(w, x, size, wrong=RIGHT):
    """Images to all tokens."""
    return assemble(w, tokens(w, x, size, wrong), size, wrong)


def scaled(q, size, wrong=RIGHT, i=None):
    """Queries by their scale."""
    if wrong("no scale", i):
        return q  # wrong: no scale
    scale = size.head_dim**-0.5
    scale = float(np.float32(scale)) if wrong("float32 scale", i) else scale
    scale = size.width**-0.5 if wrong("scale of width", i) else scale
    return q * scale  # wrong: float32 scale, scale of width


def attend(p, y, size, wrong=RIGHT, i=None):
    """Attention with the packed projection."""
    qkv = y @ p["attn.qkv.weight"].T + p["attn.qkv.bias"]
    packed = qkv.reshape(*qkv.shape[:-1], 3, size.heads, size.head_dim)
    q, k, v = jnp.moveaxis(packed, -3, 0)  # wrong: q norm missing
    if wrong("packing", i):
        packed = qkv.reshape(*qkv.shape[:-1], size.heads, 3, size.head_dim)  # wrong: packing
        q, k, v = jnp.moveaxis(packed, -2, 0)  # wrong: packing
    if size.qk_norm:
        names = ("k", "q") if wrong("q and k norms exchanged", i) else ("q", "k")
        if not wrong("q norm missing", i):
            q = norm(q, p, f"attn.{names[0]}_norm", size)  # wrong: q and k norms exchanged
        k = norm(k, p, f"attn.{names[1]}_norm", size)  # wrong: q and k norms exchanged
    y = heads(q, k, v, size, wrong, i)  # wrong: q norm missing
    # wrong: head order, weight transposed, q norm missing, no residual
    return y.reshape(*qkv.shape[:-1], -1) @ output(p, wrong, i) + p["attn.proj.bias"]


def output(p, wrong, i):
    """The matrix behind the heads, inputs first."""
    weight = p["attn.proj.weight"]
    return weight if wrong("weight transposed", i) else weight.T


def heads(q, k, v, size, wrong=RIGHT, i=None):
    """Every head's mixture (B, T, H, D)."""
    # wrong: no scale, q norm missing
    scores = jnp.einsum("bihd,bjhd->bhij", scaled(q, size, wrong, i), k)
    if wrong("causal mask", i):
        seen = jnp.tri(q.shape[1], dtype=bool)
        scores = jnp.where(seen, scores, -jnp.inf)  # wrong: causal mask
    share = jax.nn.softmax(scores, 2 if wrong("softmax axis", i) else -1)  # wrong: causal mask
    share = stop_gradient(share) if wrong("detached attention", i) else share
    share = share / 0.9 if wrong("dropout scale", i) else share
    if wrong("head order", i):
        return jnp.einsum("bhij,bjhd->bhid", share, v)  # wrong: head order
    # wrong: head order, detached attention, dropout scale
    return jnp.einsum("bhij,bjhd->bihd", share, v)


def gelu(x, size, wrong=RIGHT, i=None):
    """The activation."""
    if size.relu:
        return jax.nn.relu(x)
    if wrong("tanh gelu", i):
        return jax.nn.gelu(x, approximate=True)  # wrong: tanh gelu
    if wrong("quick gelu", i):
        return x * jax.nn.sigmoid(1.702 * x)  # wrong: quick gelu
    return jax.nn.gelu(x, approximate=False)


def mlp(p, y, size, wrong=RIGHT, i=None):
    """The two layers."""
    y = stop_gradient(y) if wrong("detached mlp", i) else y
    bias = stop_gradient(p["mlp.fc1.bias"]) if wrong("detached bias", i) else p["mlp.fc1.bias"]
    wide = y @ p["mlp.fc1.weight"].T  # wrong: detached mlp, no bias
    wide = wide if wrong("no bias", i) else wide + bias  # wrong: detached bias
    return gelu(wide, size, wrong, i) @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"]  # wrong: no bias


def gamma(p, y, number, wrong=RIGHT, i=None):
    """A branch times its factors, where it has them."""
    number = 3 - number if wrong("gammas exchanged", i) else number
    if f"ls{number}.gamma" not in p:
        return y
    factors = p[f"ls{number}.gamma"]
    factors = stop_gradient(factors) if wrong("detached gamma", i) else factors
    return y * factors  # wrong: detached gamma, gammas exchanged


def block(p, x, size, wrong=RIGHT, i=None):
    """One block, of its weights by the names inside it."""
    y = gamma(p, attend(p, norm(x, p, "norm1", size, wrong, i), size, wrong, i), 1, wrong, i)
    skip = stop_gradient(x) if wrong("detached skip", i) else x
    x = y if wrong("no residual", i) else skip + y  # wrong: detached skip
    # wrong: no residual
    return x + gamma(p, mlp(p, norm(x, p, "norm2", size, wrong, i), size, wrong, i), 2, wrong, i)


def pool(x, size, wrong=RIGHT):
    """The token or the mean of tokens that is classified."""
    if size.mean:
        # wrong: prefix in mean, no last norm
        return jnp.mean(x[:, 0 if wrong("prefix in mean") else size.prefix :], 1)
    return x[:, 1 if wrong("second token") else 0]  # wrong: no last norm


def head(w, x, size, wrong=RIGHT):
    """The last norm, the pooling, the classifier."""
    x = x if wrong("no last norm") else norm(x, w, "norm", size, wrong)
    return pool(x, size, wrong) @ w["head.weight"].T + w["head.bias"]  # wrong: no last norm


def order(size, wrong=RIGHT):
    """Which block's weights each block has."""
    numbers = list(range(size.depth))
    if wrong("layers reversed"):
        return numbers[::-1]
    if wrong("layers as strings"):
        return sorted(numbers, key=str)
    return numbers[:-1] if wrong("last block not called") else numbers


def forward(w, x, size, wrong=RIGHT, block=block):
    """Logits of images (B, H, W, C) and weights by timm's names."""
    x = embed(w, x, size, wrong)
    for i, which in enumerate(order(size, wrong)):
        x = block(weights_of(w, which), x, size, wrong, i)  # wrong: layers reversed, layers as strings
    return head(w, x, size, wrong)  # wrong: last block not called
