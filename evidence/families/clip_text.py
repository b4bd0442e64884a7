"""The text tower of CLIP in transformers (arXiv 2103.00020), in NNX with packed projections."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from evidence.families.drawn import drawn, given, tokens, weights, within

WIDTH, HEADS, HIDDEN, DEPTH, VOCABULARY, LENGTH = 24, 3, 37, 2, 59, 11
END = VOCABULARY - 1
IDS = tokens(2, LENGTH, VOCABULARY - 1)
IDS[0, 6:], IDS[1, 9:] = END, END
MASK = tokens(2, LENGTH, 1)
MASK[0, 7:] = 0


def original():
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, max_position_embeddings=13, eos_token_id=END, bos_token_id=0,
        attn_implementation="eager",
    )  # fmt: skip
    return drawn(CLIPTextModel(config)), {"input_ids": IDS, "attention_mask": MASK}


def port(model):
    w = weights(model)
    return TextTower(within(w, "text_model.") or w), (IDS, MASK)


def linear(weight, bias):
    return nnx.Linear(*weight.T.shape, kernel_init=given(weight.T), bias_init=given(bias),
                      rngs=nnx.Rngs(0))  # fmt: skip


def norm(w, name):
    return nnx.LayerNorm(WIDTH, epsilon=1e-5, scale_init=given(w[name + ".weight"]),
                         bias_init=given(w[name + ".bias"]), rngs=nnx.Rngs(0))  # fmt: skip


class Layer(nnx.Module):
    def __init__(self, w):
        packed = [np.concatenate([w[f"self_attn.{n}_proj.{kind}"] for n in "qkv"])
                  for kind in ("weight", "bias")]  # fmt: skip
        self.in_proj = linear(*packed)
        self.out_proj = linear(w["self_attn.out_proj.weight"], w["self_attn.out_proj.bias"])
        self.fc1 = linear(w["mlp.fc1.weight"], w["mlp.fc1.bias"])
        self.fc2 = linear(w["mlp.fc2.weight"], w["mlp.fc2.bias"])
        self.norm1, self.norm2 = norm(w, "layer_norm1"), norm(w, "layer_norm2")

    def attend(self, x, mask):
        batch, length, width = x.shape
        qkv = self.in_proj(x).reshape(batch, length, 3, HEADS, -1)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        scores = jnp.einsum("bqhc,bkhc->bhqk", q * q.shape[-1] ** -0.5, k)
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
        return self.out_proj(jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(batch, length, width))

    def __call__(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        y = self.fc1(self.norm2(x))
        y = y * nnx.sigmoid(1.702 * y)
        return x + self.fc2(y)


class TextTower(nnx.Module):
    def __init__(self, w):
        self.tokens = nnx.Param(jnp.asarray(w["embeddings.token_embedding.weight"]))
        self.positions = nnx.Param(jnp.asarray(w["embeddings.position_embedding.weight"]))
        self.layers = nnx.List(Layer(within(w, f"encoder.layers.{i}.")) for i in range(DEPTH))
        self.norm = norm(w, "final_layer_norm")

    def __call__(self, ids, mask):
        length = ids.shape[1]
        x = self.tokens[...][ids] + self.positions[...][:length]
        causal = jnp.tril(jnp.ones((length, length), bool))
        mask = causal & (mask[:, None, None, :] > 0)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        end = jnp.argmax(ids == END, axis=1)
        pooled = jnp.take_along_axis(x, end[:, None, None], axis=1)[:, 0]
        return {"last_hidden_state": x, "pooler_output": pooled}
