"""The model in plain PyTorch, in pieces that many styles call; `wrong` switches its mistakes on."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from evidence.clean_pairs.jax_parts import order
from evidence.clean_pairs.style import RIGHT
from evidence.clean_pairs.weights import block as weights_of

FAULTS = frozenset({
    "epsilon", "every epsilon", "tanh gelu", "quick gelu", "no scale", "scale of width", "head order",
    "packing", "causal mask", "no bias", "no gain", "no residual", "detached gain", "detached bias",
    "detached positions", "detached skip", "detached mlp", "last block not called", "no last norm",
    "n - 1", "rms", "positions shifted", "channels reversed", "pixels transposed",
    "constants of pixels", "layers reversed", "layers as strings", "weight transposed",
})  # fmt: skip
BY_HAND = frozenset({"detached attention", "float32 scale", "softmax axis", "dropout scale"})


def norm(x, p, name, size, wrong=RIGHT, i=None):
    """Fused, but for mistakes that the fused one has no argument for."""
    gain, bias, first = p[f"{name}.weight"], p[f"{name}.bias"], wrong if name == "norm1" else RIGHT
    epsilon = 1e-5 if first("epsilon", i) or wrong("every epsilon") else size.epsilon
    gain = gain.detach() if first("detached gain", i) else gain
    if first("rms", i):
        return F.rms_norm(x, (x.shape[-1],), gain, epsilon) + bias  # wrong: rms
    if first("n - 1", i):
        deviation = torch.sqrt(x.var(-1, keepdim=True) + epsilon)  # wrong: n - 1
        return (x - x.mean(-1, keepdim=True)) / deviation * gain + bias  # wrong: n - 1
    if name == "norm2" and wrong("no gain", i):
        return F.layer_norm(x, (x.shape[-1],), None, bias, epsilon)  # wrong: no gain
    # wrong: epsilon, every epsilon, detached gain
    return F.layer_norm(x, (x.shape[-1],), gain, bias, epsilon)


def norm_by_hand(x, p, name, size, wrong=RIGHT, i=None):
    """The formula."""
    epsilon = 1e-5 if name == "norm1" and wrong("epsilon", i) else size.epsilon
    x = x - x.mean(-1, keepdim=True)
    x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)  # wrong: epsilon
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def pixels(x, wrong):
    """Prepare the images (B, C, H, W)."""
    x = x.flip(1) if wrong("channels reversed") else x
    return (x - 0.5) / 0.5 if wrong("constants of pixels") else x


def tokens(w, x, size, wrong=RIGHT):
    """Images to patch tokens by a matrix."""
    kernel = w["patch_embed.proj.weight"]
    kernel = (kernel.mT if wrong("pixels transposed") else kernel).flatten(1)
    x = F.unfold(pixels(x, wrong), size.patch, stride=size.patch).transpose(1, 2)
    # wrong: channels reversed, constants of pixels, pixels transposed
    return F.linear(x, kernel, w["patch_embed.proj.bias"])


def assemble(w, x, size, wrong=RIGHT):
    """Class token, registers, positions, as timm does it."""
    positions = w["pos_embed"]
    positions = positions.detach() if wrong("detached positions") else positions
    positions = positions.roll(1, 1) if wrong("positions shifted") else positions
    front = [w[n].expand(x.shape[0], -1, -1) for n in ("cls_token", "reg_token") if n in w]
    if size.registers:
        return torch.cat([*front, x + positions], 1)  # wrong: detached positions, positions shifted
    x = torch.cat([*front, x], 1) if front else x
    return x + positions  # wrong: detached positions, positions shifted


def attend(p, y, size, wrong=RIGHT, i=None):
    """Fused attention behind a packed projection."""
    qkv = F.linear(y, p["attn.qkv.weight"], p["attn.qkv.bias"])
    q, k, v = qkv.unflatten(-1, (3, size.heads, size.head_dim)).permute(2, 0, 3, 1, 4)
    if wrong("packing", i):
        qkv = qkv.unflatten(-1, (size.heads, 3, size.head_dim))  # wrong: packing
        q, k, v = qkv.permute(3, 0, 2, 1, 4)  # wrong: packing
    if size.qk_norm:
        names = ("k", "q") if wrong("q and k norms exchanged", i) else ("q", "k")
        if not wrong("q norm missing", i):
            q = norm(q, p, f"attn.{names[0]}_norm", size)  # wrong: q and k norms exchanged
        k = norm(k, p, f"attn.{names[1]}_norm", size)  # wrong: q and k norms exchanged
    scale = 1.0 if wrong("no scale", i) else None
    scale = size.width**-0.5 if wrong("scale of width", i) else scale
    causal = wrong("causal mask", i)
    # wrong: no scale, scale of width, causal mask, q norm missing
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    y = y if wrong("head order", i) else y.transpose(1, 2)
    y = y.reshape(*qkv.shape[:2], -1)  # wrong: head order
    weight = p["attn.proj.weight"]
    weight = weight.T if wrong("weight transposed", i) else weight
    return F.linear(y, weight, p["attn.proj.bias"])  # wrong: head order, weight transposed, no residual


def attend_by_hand(p, y, size, wrong=RIGHT, i=None):
    """Heads under vmap, the softmax by its logarithm."""
    qkv = F.linear(y, p["attn.qkv.weight"], p["attn.qkv.bias"]).chunk(3, -1)
    q, k, v = (each.unflatten(-1, (size.heads, size.head_dim)) for each in qkv)
    if size.qk_norm:
        q, k = norm_by_hand(q, p, "attn.q_norm", size), norm_by_hand(k, p, "attn.k_norm", size)
    scale = 1 / math.sqrt(size.head_dim)
    scale = float(np.float32(scale)) if wrong("float32 scale", i) else scale
    scale = size.width**-0.5 if wrong("scale of width", i) else scale

    def one(q, k, v):
        scores = q @ k.T * scale  # wrong: float32 scale, scale of width
        axis = 0 if wrong("softmax axis", i) else 1
        share = torch.exp(scores - scores.logsumexp(axis, keepdim=True))  # wrong: softmax axis
        share = share.detach() if wrong("detached attention", i) else share
        share = share / 0.9 if wrong("dropout scale", i) else share
        return share @ v  # wrong: detached attention, dropout scale

    y = torch.vmap(torch.vmap(one, 1, 1))(q, k, v).flatten(2)
    return F.linear(y, p["attn.proj.weight"], p["attn.proj.bias"])


def gelu(x, size, wrong=RIGHT, i=None):
    """The activation."""
    if size.relu:
        return F.relu(x)
    if wrong("quick gelu", i):
        return x * torch.sigmoid(1.702 * x)  # wrong: quick gelu
    return F.gelu(x, approximate="tanh" if wrong("tanh gelu", i) else "none")


def mlp(p, y, size, wrong=RIGHT, i=None):
    """The two layers."""
    y = y.detach() if wrong("detached mlp", i) else y
    bias = p["mlp.fc1.bias"]
    bias = bias.detach() if wrong("detached bias", i) else None if wrong("no bias", i) else bias
    wide = F.linear(y, p["mlp.fc1.weight"], bias)  # wrong: detached mlp, detached bias, no bias
    return F.linear(gelu(wide, size, wrong, i), p["mlp.fc2.weight"], p["mlp.fc2.bias"])  # wrong: no bias


def gamma(p, y, number, wrong=RIGHT, i=None):
    """A branch times its factors, where it has them."""
    number = 3 - number if wrong("gammas exchanged", i) else number
    if f"ls{number}.gamma" not in p:
        return y
    factors = p[f"ls{number}.gamma"]
    factors = factors.detach() if wrong("detached gamma", i) else factors
    return y * factors  # wrong: detached gamma, gammas exchanged


def block(p, x, size, wrong=RIGHT, i=None, norm=norm, attend=attend):
    """One block, of its weights by the names inside it."""
    y = gamma(p, attend(p, norm(x, p, "norm1", size, wrong, i), size, wrong, i), 1, wrong, i)
    skip = x.detach() if wrong("detached skip", i) else x
    x = y if wrong("no residual", i) else skip + y  # wrong: detached skip
    y = mlp(p, norm(x, p, "norm2", size, wrong, i), size, wrong, i)  # wrong: no residual
    return x + gamma(p, y, 2, wrong, i)  # wrong: no residual


def pool(x, size, wrong=RIGHT):
    """The token or the mean of tokens that is classified."""
    if size.mean:
        return x[:, 0 if wrong("prefix in mean") else size.prefix :].mean(
            1
        )  # wrong: prefix in mean, no last norm
    return x[:, 1 if wrong("second token") else 0]  # wrong: no last norm


def forward(w, x, size, wrong=RIGHT, block=block, norm=norm):
    """Logits of images (B, C, H, W) and weights by timm's names."""
    x = assemble(w, tokens(w, x, size, wrong), size, wrong)
    for i, which in enumerate(order(size, wrong)):
        x = block(weights_of(w, which), x, size, wrong, i)  # wrong: layers reversed, layers as strings
    x = x if wrong("no last norm") else norm(x, w, "norm", size, wrong)
    # wrong: no last norm, last block not called
    return F.linear(pool(x, size, wrong), w["head.weight"], w["head.bias"])
