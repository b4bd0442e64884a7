"""Llama of transformers (arXiv 2302.13971) with its head, in Linen under scan and remat."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from evidence.families.drawn import drawn, layer, tokens, weights

WIDTH, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, DEPTH, VOCABULARY = 24, 6, 2, 4, 41, 3, 67
IDS = tokens(2, 7, VOCABULARY)
MASK = tokens(2, 7, 1)
MASK[1, 5:] = 0


def original():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, intermediate_size=HIDDEN, pad_token_id=0, rms_norm_eps=1e-5,
        attn_implementation="eager", tie_word_embeddings=False,
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": MASK, "use_cache": False}
    return drawn(LlamaForCausalLM(config)), inputs


def port(model):
    return Llama(), {"params": params(weights(model))}, (IDS, MASK)


def params(w):
    names = {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
        "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    }  # fmt: skip
    norms = {"input_norm": "input_layernorm", "post_norm": "post_attention_layernorm"}
    path = "model.layers.{}.{}"
    stacked = {
        ours: {"kernel": np.stack([layer(w, path.format(i, name))["kernel"] for i in range(DEPTH)])}
        for ours, name in names.items()
    }
    for ours, name in norms.items():
        stacked[ours] = {"scale": np.stack([w[path.format(i, name) + ".weight"] for i in range(DEPTH)])}
    return {
        "embed": {"embedding": w["model.embed_tokens.weight"]}, "layers": stacked,
        "norm": {"scale": w["model.norm.weight"]}, "lm_head": layer(w, "lm_head"),
    }  # fmt: skip


def rotate(x, cos, sin):
    """x: (batch, length, heads, head_dim); halves, not pairs, as in transformers."""
    half = x.shape[-1] // 2
    turned = jnp.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * cos[:, :, None] + turned * sin[:, :, None]


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, mask, cos, sin):
        y = nn.RMSNorm(epsilon=1e-5, name="input_norm")(x)
        x = x + self.attend(y, mask, cos, sin)
        y = nn.RMSNorm(epsilon=1e-5, name="post_norm")(x)
        gate = nn.Dense(HIDDEN, use_bias=False, name="gate")(y)
        up = nn.Dense(HIDDEN, use_bias=False, name="up")(y)
        return x + nn.Dense(WIDTH, use_bias=False, name="down")(nn.silu(gate) * up), None

    def attend(self, x, mask, cos, sin):
        def heads(name, count):
            return nn.Dense(count * HEAD_DIM, use_bias=False, name=name)(x).reshape(
                *x.shape[:2], count, -1
            )

        q, k, v = heads("q", HEADS), heads("k", KV_HEADS), heads("v", KV_HEADS)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (jnp.repeat(each, HEADS // KV_HEADS, axis=2) for each in (k, v))
        y = nn.dot_product_attention(q, k, v, mask=mask)
        return nn.Dense(WIDTH, use_bias=False, name="o")(y.reshape(*x.shape[:2], -1))


class Llama(nn.Module):
    @nn.compact
    def __call__(self, ids, mask):
        x = nn.Embed(VOCABULARY, WIDTH, name="embed")(ids)
        positions = jnp.arange(ids.shape[1])
        frequencies = 1.0 / 10000.0 ** (jnp.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = jnp.tile(jnp.outer(positions, frequencies), 2)[None]
        mask = nn.combine_masks(
            nn.make_causal_mask(ids), nn.make_attention_mask(jnp.ones_like(mask), mask)
        )
        scan = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True},
                       in_axes=cast(Any, nn.broadcast), length=DEPTH)  # fmt: skip
        x, _ = scan(name="layers")(x, mask, jnp.cos(angles), jnp.sin(angles))
        x = nn.RMSNorm(epsilon=1e-5, name="norm")(x)
        return nn.Dense(VOCABULARY, use_bias=False, name="lm_head")(x)
