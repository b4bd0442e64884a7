"""BERT of transformers (arXiv 1810.04805), with a padding mask and segments, in Linen."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

import jax.numpy as jnp
from flax import linen as nn

from evidence.families.drawn import drawn, layer, norm, tokens, weights, within

WIDTH, HEADS, HIDDEN, DEPTH, VOCABULARY = 30, 5, 47, 2, 61
IDS = tokens(2, 7, VOCABULARY)
MASK = tokens(2, 7, 1)
MASK[1, 5:] = 0
SEGMENTS = tokens(2, 7, 2)


def original():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, max_position_embeddings=13, attn_implementation="eager",
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}
    return drawn(BertModel(config)), inputs


def port(model):
    return Bert(), {"params": params(weights(model))}, (IDS, MASK, SEGMENTS)


def params(w):
    embeddings = within(w, "embeddings.")
    tree = {
        name: {"embedding": embeddings[f"{name}_embeddings.weight"]}
        for name in ("word", "position", "token_type")
    }
    tree |= {"norm": norm(embeddings, "LayerNorm"), "pooler": layer(w, "pooler.dense")}
    for i in range(DEPTH):
        tree[f"layer_{i}"] = block(within(w, f"encoder.layer.{i}."))
    return tree


def block(w):
    attention = {}
    for name in ("query", "key", "value"):
        kernel, bias = layer(w, f"attention.self.{name}").values()
        kernel, bias = kernel.reshape(WIDTH, HEADS, -1), bias.reshape(HEADS, -1)
        attention[name] = {"kernel": kernel, "bias": bias}
    out = layer(w, "attention.output.dense")
    attention["out"] = {"kernel": out["kernel"].reshape(HEADS, -1, WIDTH), "bias": out["bias"]}
    return {
        "attention": attention, "attention_norm": norm(w, "attention.output.LayerNorm"),
        "wide": layer(w, "intermediate.dense"), "narrow": layer(w, "output.dense"),
        "norm": norm(w, "output.LayerNorm"),
    }  # fmt: skip


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        size = (HEADS, WIDTH // HEADS)
        query, key, value = (nn.DenseGeneral(size, name=n)(x) for n in ("query", "key", "value"))
        scores = jnp.einsum("...qhd,...khd->...hqk", query, key) / jnp.sqrt(size[1])
        weights = nn.softmax(scores + mask, axis=-1)
        y = jnp.einsum("...hqk,...khd->...qhd", weights, value)
        return nn.DenseGeneral(WIDTH, axis=(-2, -1), name="out")(y)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = Attention(name="attention")(x, mask)
        x = nn.LayerNorm(epsilon=1e-12, name="attention_norm")(x + y)
        y = nn.gelu(nn.Dense(HIDDEN, name="wide")(x), approximate=False)
        y = nn.Dense(WIDTH, name="narrow")(y)
        return nn.LayerNorm(epsilon=1e-12, name="norm")(y + x)


class Bert(nn.Module):
    @nn.compact
    def __call__(self, ids, mask, segments):
        positions = jnp.arange(ids.shape[1])[None]
        x = nn.Embed(VOCABULARY, WIDTH, name="word")(ids)
        x = x + nn.Embed(2, WIDTH, name="token_type")(segments)
        x = x + nn.Embed(13, WIDTH, name="position")(positions)
        x = nn.LayerNorm(epsilon=1e-12, name="norm")(x)
        mask = (1.0 - mask[:, None, None, :]) * jnp.finfo(jnp.float32).min
        for i in range(DEPTH):
            x = Layer(name=f"layer_{i}")(x, mask)
        pooled = jnp.tanh(nn.Dense(WIDTH, name="pooler")(x[:, 0]))
        return {"last_hidden_state": x, "pooler_output": pooled}
