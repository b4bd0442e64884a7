"""The timm ViT as a functional Keras 3 model on the JAX backend, against einsum torch."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np
import torch
from keras import layers

from draw import FLOAT64, to_jax, to_torch
from timm_vit import CLASSES, GRID, HEADS, HIDDEN, PATCH, WIDTH, checkpoint, images

if FLOAT64:
    keras.config.set_floatx("float64")


@keras.saving.register_keras_serializable("pairs")
class Tokens(layers.Layer):
    """Puts the class token in front and adds the positions."""

    def build(self, shape):
        self.cls = self.add_weight(shape=(1, 1, WIDTH), name="cls")
        self.pos = self.add_weight(shape=(1, shape[1] + 1, WIDTH), name="pos")

    def call(self, x):
        cls = keras.ops.broadcast_to(self.cls, (keras.ops.shape(x)[0], 1, WIDTH))
        return keras.ops.concatenate([cls, x], axis=1) + self.pos


def norm(name):
    return layers.LayerNormalization(epsilon=1e-6, name=name)


def build(norm=norm, pool=lambda x: x[:, 0], depth=3):
    image = keras.Input((3, GRID[0] * PATCH, GRID[1] * PATCH))
    x = layers.Permute((2, 3, 1))(image)
    x = layers.Conv2D(WIDTH, PATCH, strides=PATCH, name="stem")(x)
    x = Tokens(name="tokens")(layers.Reshape((-1, WIDTH))(x))
    for i in range(depth):
        y = norm(f"b{i}_norm1")(x)
        x = layers.Add()([x, layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"b{i}_attn")(y, y)])
        y = layers.Dense(HIDDEN, activation="gelu", name=f"b{i}_fc1")(norm(f"b{i}_norm2")(x))
        x = layers.Add()([x, layers.Dense(WIDTH, name=f"b{i}_fc2")(y)])
    x = norm("norm")(x)
    return keras.Model(image, layers.Dense(CLASSES, name="head")(pool(x)))


def load(model, sd, depth=3):
    linear = lambda n: [sd[n + ".weight"].T, sd[n + ".bias"]]
    put = lambda layer, values: model.get_layer(layer).set_weights(values)
    put("stem", [sd["patch_embed.proj.weight"].transpose(2, 3, 1, 0), sd["patch_embed.proj.bias"]])
    put("tokens", [sd["cls_token"], sd["pos_embed"]])
    for i in range(depth):
        pre = f"blocks.{i}."
        for n in ("norm1", "norm2"):
            put(f"b{i}_{n}", [sd[f"{pre}{n}.weight"], sd[f"{pre}{n}.bias"]])
        w, b = sd[pre + "attn.qkv.weight"], sd[pre + "attn.qkv.bias"]
        parts = []
        for j in range(3):
            rows = slice(j * WIDTH, (j + 1) * WIDTH)
            parts += [w[rows].T.reshape(WIDTH, HEADS, -1), b[rows].reshape(HEADS, -1)]
        put(f"b{i}_attn", parts + [sd[pre + "attn.proj.weight"].T.reshape(HEADS, -1, WIDTH), sd[pre + "attn.proj.bias"]])
        put(f"b{i}_fc1", linear(pre + "mlp.fc1"))
        put(f"b{i}_fc2", linear(pre + "mlp.fc2"))
    put("norm", [sd["norm.weight"], sd["norm.bias"]])
    put("head", linear("head"))
    return model


def einsum_vit(x, sd, pool="cls"):
    """The same as one torch function over the state dict."""
    ln = lambda x, n: torch.nn.functional.layer_norm(x, (WIDTH,), sd[n + ".weight"], sd[n + ".bias"], 1e-6)
    x = x.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
    x = torch.einsum("bcijyx,dcyx->bijd", x, sd["patch_embed.proj.weight"]) + sd["patch_embed.proj.bias"]
    x = torch.cat([sd["cls_token"].repeat(len(x), 1, 1), x.flatten(1, 2)], 1) + sd["pos_embed"]
    for i in range(3):
        pre = f"blocks.{i}."
        w = sd[pre + "attn.qkv.weight"].view(3, HEADS, -1, WIDTH)
        b = sd[pre + "attn.qkv.bias"].view(3, HEADS, 1, -1)
        q, k, v = torch.einsum("bnd,shcd->sbhnc", ln(x, pre + "norm1"), w) + b[:, None]
        a = torch.softmax(torch.einsum("bhqc,bhkc->bhqk", q, k) / q.shape[-1] ** 0.5, -1)
        o = torch.einsum("bhqk,bhkc,dhc->bqd", a, v, sd[pre + "attn.proj.weight"].view(WIDTH, HEADS, -1))
        x = x + o + sd[pre + "attn.proj.bias"]
        h = torch.einsum("bnd,md->bnm", ln(x, pre + "norm2"), sd[pre + "mlp.fc1.weight"]) + sd[pre + "mlp.fc1.bias"]
        h = 0.5 * h * (1 + torch.erf(h / np.sqrt(2)))
        x = x + torch.einsum("bnm,dm->bnd", h, sd[pre + "mlp.fc2.weight"]) + sd[pre + "mlp.fc2.bias"]
    x = ln(x, "norm")
    x = x[:, 0] if pool == "cls" else x[:, 1:].mean(1)
    return x @ sd["head.weight"].T + sd["head.bias"]


def side_torch():
    sd = to_torch(checkpoint())
    return (lambda x: einsum_vit(x, sd)), (to_torch(images()),)


def side_torch_mean():
    sd = to_torch(checkpoint())
    return (lambda x: einsum_vit(x, sd, pool="mean")), (to_torch(images()),)


def side_keras():
    return load(build(), checkpoint()), (to_jax(images()),)
