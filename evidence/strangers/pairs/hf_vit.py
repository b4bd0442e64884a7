"""transformers' ViTModel with a classifier, against Equinox with eqx.nn.MultiheadAttention."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from torch import nn
from transformers import ViTConfig, ViTModel

from draw import Draw, to_jax, to_torch

D, H, M, DEPTH, CLASSES = 15, 3, 23, 2, 5
CONFIG = dict(hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=H, intermediate_size=M, image_size=(14, 21),
              patch_size=7, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-12)


def weights(seed=91):
    d = Draw(seed)
    lin = lambda n, o, i: {n + ".weight": d.mat(o, i), n + ".bias": d.vec(o)}
    ln = lambda n: {n + ".weight": d.gain(D), n + ".bias": d.vec(D)}
    e = "embeddings."
    sd = {e + "cls_token": d.vec(1, 1, D), e + "position_embeddings": d.vec(1, 7, D),
          e + "patch_embeddings.projection.weight": d.mat(D, 3, 7, 7, fan=147),
          e + "patch_embeddings.projection.bias": d.vec(D)}
    for i in range(DEPTH):
        pre = f"layers.{i}."
        for n in "qkvo":
            sd |= lin(f"{pre}attention.{n}_proj", D, D)
        sd |= ln(pre + "layernorm_before") | ln(pre + "layernorm_after")
        sd |= lin(pre + "mlp.fc1", M, D) | lin(pre + "mlp.fc2", D, M)
    return sd | ln("layernorm") | lin("classifier", CLASSES, D)


def pixels():
    return Draw(92).data(2, 3, 14, 21)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = ViTModel(ViTConfig(**CONFIG, attn_implementation="eager"), add_pooling_layer=False)
        self.classifier = nn.Linear(D, CLASSES)

    def forward(self, pixel_values):
        return self.classifier(self.vit(pixel_values).last_hidden_state[:, 0])


def side_hf():
    model = Classifier()
    model.load_state_dict({k if k.startswith("classifier") else "vit." + k: v for k, v in to_torch(weights()).items()})
    return model.eval(), (to_torch(pixels()),)


class Layer(eqx.Module):
    before: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    after: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, key, attention_bias=True):
        a, b = jax.random.split(key)
        self.before, self.after = eqx.nn.LayerNorm(D, eps=1e-12), eqx.nn.LayerNorm(D, eps=1e-12)
        bias = {f"use_{n}_bias": attention_bias for n in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(H, D, **bias, key=a)
        self.mlp = eqx.nn.MLP(D, D, M, depth=1, activation=lambda x: jax.nn.gelu(x, approximate=False), key=b)

    def __call__(self, x):
        y = jax.vmap(self.before)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(lambda t: self.mlp(self.after(t)))(x)


class ViT(eqx.Module):
    stem: eqx.nn.Conv2d
    cls: jax.Array
    pos: jax.Array
    layers: list[Layer]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key, layer=Layer):
        keys = jax.random.split(key, DEPTH + 2)
        self.stem = eqx.nn.Conv2d(3, D, 7, 7, key=keys[0])
        self.cls, self.pos = jnp.zeros((1, D)), jnp.zeros((7, D))
        self.layers = [layer(k) for k in keys[2:]]
        self.norm, self.head = eqx.nn.LayerNorm(D, eps=1e-12), eqx.nn.Linear(D, CLASSES, key=keys[1])

    def __call__(self, image):
        x = self.stem(image).reshape(D, -1).T
        x = jnp.concatenate([self.cls, x]) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[0]))


def load(model, sd):
    """Swaps each array of the model for that of the state dict; norms and linears share the names weight, bias."""
    def both(get, name):
        nonlocal model
        w, b = sd[name + ".weight"], sd[name + ".bias"]
        model = eqx.tree_at(lambda m: get(m).weight, model, w)
        if get(model).bias is not None:
            model = eqx.tree_at(lambda m: get(m).bias, model, b.reshape(get(model).bias.shape))

    sd = to_jax(sd)
    both(lambda m: m.stem, "embeddings.patch_embeddings.projection")
    model = eqx.tree_at(lambda m: (m.cls, m.pos), model, (sd["embeddings.cls_token"][0], sd["embeddings.position_embeddings"][0]))
    for i in range(DEPTH):
        pre = f"layers.{i}."
        both(lambda m: m.layers[i].before, pre + "layernorm_before")
        both(lambda m: m.layers[i].after, pre + "layernorm_after")
        for short, long in zip("qkvo", ("query", "key", "value", "output")):
            both(lambda m: getattr(m.layers[i].attention, long + "_proj"), f"{pre}attention.{short}_proj")
        both(lambda m: m.layers[i].mlp.layers[0], pre + "mlp.fc1")
        both(lambda m: m.layers[i].mlp.layers[1], pre + "mlp.fc2")
    both(lambda m: m.norm, "layernorm")
    both(lambda m: m.head, "classifier")
    return model


def side_eqx():
    return jax.vmap(load(ViT(jax.random.key(0)), weights())), (to_jax(pixels()),)
