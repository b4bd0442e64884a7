"""transformers' CLIP vision tower with its projection, against a JAX port over the state dict."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from draw import Draw, to_jax, to_torch

D, H, M, DEPTH, P = 14, 2, 23, 2, 9


def weights(seed=101):
    d = Draw(seed)
    lin = lambda n, o, i: {n + ".weight": d.mat(o, i), n + ".bias": d.vec(o)}
    ln = lambda n: {n + ".weight": d.gain(D), n + ".bias": d.vec(D)}
    sd = {"embeddings.class_embedding": d.vec(D), "embeddings.patch_embedding.weight": d.mat(D, 3, 5, 5, fan=75),
          "embeddings.position_embedding.weight": d.vec(10, D)} | ln("pre_layrnorm") | ln("post_layernorm")
    for i in range(DEPTH):
        pre = f"encoder.layers.{i}."
        for n in ("k_proj", "v_proj", "q_proj", "out_proj"):
            sd |= lin(pre + "self_attn." + n, D, D)
        sd |= ln(pre + "layer_norm1") | ln(pre + "layer_norm2") | lin(pre + "mlp.fc1", M, D) | lin(pre + "mlp.fc2", D, M)
    return {"vision_model." + k: v for k, v in sd.items()} | {"visual_projection.weight": d.mat(P, D)}


def pixels():
    return Draw(102).data(2, 3, 15, 15)


def side_hf():
    config = CLIPVisionConfig(hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=H, intermediate_size=M,
                              image_size=15, patch_size=5, projection_dim=P, attn_implementation="sdpa")
    model = CLIPVisionModelWithProjection(config)
    model.load_state_dict(to_torch(weights()), strict=False)
    model.eval()
    return (lambda x: torch.nn.functional.normalize(model(pixel_values=x).image_embeds, dim=-1)), (to_torch(pixels()),)


def quick_gelu(x):
    return x * jax.nn.sigmoid(1.702 * x)


def tower(sd, x, act=quick_gelu):
    w = lambda n: sd[n + ".weight"]
    lin = lambda x, n: x @ w(n).T + sd[n + ".bias"]

    def ln(x, n):
        mean = jnp.mean(x, -1, keepdims=True)
        var = jnp.mean(x * x, -1, keepdims=True) - mean * mean
        return (x - mean) / jnp.sqrt(var + 1e-5) * w(n) + sd[n + ".bias"]

    v = "vision_model."
    x = jax.lax.conv(x, w(v + "embeddings.patch_embedding"), (5, 5), "VALID").reshape(len(x), D, 9).swapaxes(1, 2)
    cls = jnp.broadcast_to(sd[v + "embeddings.class_embedding"], (len(x), 1, D))
    x = ln(jnp.concatenate([cls, x], 1) + w(v + "embeddings.position_embedding"), v + "pre_layrnorm")
    for i in range(DEPTH):
        pre = f"{v}encoder.layers.{i}."
        y = ln(x, pre + "layer_norm1")
        q, k, val = (lin(y, f"{pre}self_attn.{n}_proj").reshape(*y.shape[:2], H, -1) for n in "qkv")
        att = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q * (D // H) ** -0.5, k))
        y = jnp.einsum("bhqk,bkhc->bqhc", att, val).reshape(x.shape)
        x = x + lin(y, pre + "self_attn.out_proj")
        x = x + lin(act(lin(ln(x, pre + "layer_norm2"), pre + "mlp.fc1")), pre + "mlp.fc2")
    y = ln(x[:, 0], v + "post_layernorm") @ w("visual_projection").T
    return y / jnp.linalg.norm(y, axis=-1, keepdims=True)


def side_wrong():
    act = lambda x: jax.nn.gelu(x, approximate=False)  # !wrong
    return (lambda sd, x: tower(sd, x, act)), (to_jax(weights()), to_jax(pixels()))


def side_jax():
    return tower, (to_jax(weights()), to_jax(pixels()))
