"""Gemma of transformers (arXiv 2403.08295) as functions: layers under lax.scan, heads by einsum."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np

from evidence.families.drawn import drawn, tokens, weights

WIDTH, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, DEPTH, VOCABULARY = 22, 4, 2, 6, 37, 3, 53
IDS = tokens(2, 7, VOCABULARY)


def original():
    from transformers import GemmaConfig, GemmaModel

    config = GemmaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, intermediate_size=HIDDEN, pad_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    return drawn(GemmaModel(config)), {"input_ids": IDS, "use_cache": False}


def port(model):
    return gemma, (params(weights(model)), IDS)


def params(w):
    def stack(name, *shape):
        each = [w[f"layers.{i}.{name}.weight"] for i in range(DEPTH)]
        return np.stack([m.T.reshape(*shape) if m.ndim == 2 else m for m in each])

    layers = {
        "pre_attention_norm": stack("input_layernorm"),
        "pre_ffw_norm": stack("post_attention_layernorm"),
        "q": stack("self_attn.q_proj", WIDTH, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM),
        "kv": np.stack([stack(f"self_attn.{n}_proj", WIDTH, KV_HEADS, HEAD_DIM) for n in "kv"], 1),
        "out": stack("self_attn.o_proj", KV_HEADS, HEADS // KV_HEADS, HEAD_DIM, WIDTH),
        "gating": np.stack([stack(f"mlp.{n}_proj", WIDTH, HIDDEN) for n in ("gate", "up")], 1),
        "linear": stack("mlp.down_proj", HIDDEN, WIDTH),
    }  # fmt: skip
    return {"embedder": w["embed_tokens.weight"], "layers": layers, "final_norm": w["norm.weight"]}


def rms_norm(scale, x):
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + 1e-6) * (1 + scale)


def rope(x, positions):
    fraction = 2 * jnp.arange(0, HEAD_DIM // 2) / HEAD_DIM
    angles = positions[:, None] / 10_000**fraction
    angles = angles.reshape(len(positions), *[1] * (x.ndim - 3), -1)
    first, second = jnp.split(x, 2, axis=-1)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(p, x, positions):
    q = rope(jnp.einsum("btd,dkgh->btkgh", x, p["q"]), positions) * HEAD_DIM**-0.5
    k, v = jnp.einsum("bsd,cdkh->cbskh", x, p["kv"])
    logits = jnp.einsum("btkgh,bskh->bkgts", q, rope(k, positions))
    causal = positions[:, None] >= positions[None, :]
    logits = jnp.where(causal, logits, -2.3819763e38)
    probs = jax.nn.softmax(logits, axis=-1)
    encoded = jnp.einsum("bkgts,bskh->btkgh", probs, v)
    return jnp.einsum("btkgh,kghd->btd", encoded, p["out"])


def feed_forward(p, x):
    gate, up = jnp.einsum("btd,cdf->cbtf", x, p["gating"])
    return (jax.nn.gelu(gate) * up) @ p["linear"]


def gemma(p, ids):
    x = p["embedder"][ids]
    x = x * jnp.sqrt(WIDTH)
    positions = jnp.arange(ids.shape[1])

    def layer(x, p):
        x = x + attend(p, rms_norm(p["pre_attention_norm"], x), positions)
        x = x + feed_forward(p, rms_norm(p["pre_ffw_norm"], x))
        return x, None

    x, _ = jax.lax.scan(layer, x, p["layers"])
    return rms_norm(p["final_norm"], x)
