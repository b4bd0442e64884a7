"""T5 of transformers (arXiv 1910.10683), encoder and decoder, as functions of a state dict."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np

from evidence.families.drawn import drawn, tokens, weights, within

WIDTH, HEADS, HEAD_DIM, HIDDEN, DEPTH, VOCABULARY, BUCKETS, FARTHEST = 22, 3, 5, 37, 2, 61, 8, 11
IDS, TARGETS = tokens(2, 13, VOCABULARY), tokens(2, 7, VOCABULARY)
MASK = tokens(2, 13, 1)
MASK[1, 10:] = 0


def original():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=HEAD_DIM, d_ff=HIDDEN, num_layers=DEPTH,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=FARTHEST,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": MASK, "decoder_input_ids": TARGETS, "use_cache": False}
    return drawn(T5ForConditionalGeneration(config)), inputs


def port(model):
    return t5, (weights(model), IDS, MASK, TARGETS)


def rms_norm(w, name, x):
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]


def buckets(distance, both_ways):
    """The row of the table for how far a key is behind a query: one by one, then by logarithm."""
    count, first = BUCKETS, 0
    if both_ways:
        count = BUCKETS // 2
        first = count * (distance > 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)
    exact = count // 2
    log = jnp.log(distance / exact) / np.log(FARTHEST / exact)
    large = exact + (log * (count - exact)).astype(int)
    return first + jnp.where(distance < exact, distance, jnp.minimum(large, count - 1))


def position_bias(w, length, both_ways):
    i = jnp.arange(length)
    table = w["block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    return table[buckets(i[None, :] - i[:, None], both_ways)].transpose(2, 0, 1)


def attend(w, x, source, bias):
    def heads(name, x):
        return (x @ w[f"{name}.weight"].T).reshape(*x.shape[:2], HEADS, HEAD_DIM).swapaxes(1, 2)

    scores = heads("q", x) @ heads("k", source).swapaxes(-1, -2)
    y = jax.nn.softmax(scores + bias, axis=-1) @ heads("v", source)
    return y.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ w["o.weight"].T


def feed_forward(w, x):
    y = rms_norm(w, "layer_norm", x)
    gate = jax.nn.gelu(y @ w["DenseReluDense.wi_0.weight"].T, approximate=True)
    return x + (gate * (y @ w["DenseReluDense.wi_1.weight"].T)) @ w["DenseReluDense.wo.weight"].T


def hidden(mask):
    return jnp.where(mask, 0.0, jnp.finfo(jnp.float32).min)


def encode(w, ids, mask):
    x = w["embed_tokens.weight"][ids]
    bias = position_bias(w, ids.shape[1], True) + hidden(mask[:, None, None, :] > 0)
    for i in range(DEPTH):
        y = rms_norm(w, f"block.{i}.layer.0.layer_norm", x)
        x = x + attend(within(w, f"block.{i}.layer.0.SelfAttention."), y, y, bias)
        x = feed_forward(within(w, f"block.{i}.layer.1."), x)
    return rms_norm(w, "final_layer_norm", x)


def decode(w, ids, encoded, mask):
    x = w["embed_tokens.weight"][ids]
    i = jnp.arange(ids.shape[1])
    bias = position_bias(w, ids.shape[1], False) + hidden(i[:, None] >= i[None, :])
    across = hidden(mask[:, None, None, :] > 0)
    for i in range(DEPTH):
        y = rms_norm(w, f"block.{i}.layer.0.layer_norm", x)
        x = x + attend(within(w, f"block.{i}.layer.0.SelfAttention."), y, y, bias)
        y = rms_norm(w, f"block.{i}.layer.1.layer_norm", x)
        x = x + attend(within(w, f"block.{i}.layer.1.EncDecAttention."), y, encoded, across)
        x = feed_forward(within(w, f"block.{i}.layer.2."), x)
    return rms_norm(w, "final_layer_norm", x)


def t5(w, ids, mask, targets):
    encoded = encode(within(w, "encoder."), ids, mask)
    decoded = decode(within(w, "decoder."), targets, encoded, mask)
    return {"logits": decoded @ w["lm_head.weight"].T, "encoder_last_hidden_state": encoded}
