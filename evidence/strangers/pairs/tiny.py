"""A one-block token classifier for the training steps: a torch module and a JAX function over a nested dict."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, N, IN, CLASSES, BATCH = 9, 5, 6, 7, 6


def state_dict(seed=201):
    d = Draw(seed)
    return {"pos_embed": d.vec(N, D), "embed.weight": d.mat(D, IN), "embed.bias": d.vec(D),
            "norm.weight": d.gain(D), "norm.bias": d.vec(D), "qkv.weight": d.mat(3 * D, D) * 1.5,
            "proj.weight": d.mat(D, D), "proj.bias": d.vec(D), "norm_out.weight": d.gain(D), "norm_out.bias": d.vec(D),
            "head.weight": d.mat(CLASSES, D), "head.bias": d.vec(CLASSES)}


def batches(cast, steps=2, batch=BATCH, seed=202):
    """(steps, batch, N, IN) tokens and (steps, batch) labels."""
    d = Draw(seed)
    return cast(d.data(steps, batch, N, IN)), cast(d.ids(CLASSES, steps, batch))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(N, D))
        self.embed, self.norm, self.norm_out = nn.Linear(IN, D), nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj, self.head = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D), nn.Linear(D, CLASSES)

    def features(self, x):
        x = self.embed(x) + self.pos_embed
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return self.norm_out(x).mean(1)

    def forward(self, x):
        return self.head(self.features(x))


def net():
    model = Net()
    model.load_state_dict(to_torch(state_dict()))
    return model.train()


def named(model):
    return {k: v.detach().clone() for k, v in model.named_parameters()}


def params():
    """The state dict as a nested dict with (in, out) kernels."""
    sd, tree = state_dict(), {}
    for name, value in sd.items():
        *path, leaf = name.split(".")
        node = tree
        for p in path:
            node = node.setdefault(p, {})
        if leaf == "weight":
            leaf, value = ("kernel", value.T) if value.ndim == 2 else ("scale", value)
        node[leaf] = value
    return to_jax(tree)


def layer_norm(p, x):
    mu = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def features(p, x):
    x = x @ p["embed"]["kernel"] + p["embed"]["bias"] + p["pos_embed"]
    q, k, v = jnp.split(layer_norm(p["norm"], x) @ p["qkv"]["kernel"], 3, axis=-1)
    a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / D**0.5, axis=-1)
    x = x + a @ v @ p["proj"]["kernel"] + p["proj"]["bias"]
    return layer_norm(p["norm_out"], x).mean(-2)


def logits(p, x):
    return features(p, x) @ p["head"]["kernel"] + p["head"]["bias"]


def cross_entropy(p, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(p, x)), y[:, None], 1).mean()


def train_torch(make_optimizer, after=lambda model, optimizer: None):
    """The plain loop: one step per batch."""
    def run(xs, ys):
        model = net()
        optimizer = make_optimizer(model)
        losses = []
        for x, y in zip(xs, ys):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            after(model, optimizer)
            losses.append(loss.detach())
        return torch.stack(losses), named(model)

    return run


def train_optax(tx, loss=cross_entropy):
    """The plain loop with an optax transformation, params as first input."""
    import optax

    def run(params, xs, ys):
        opt_state, losses = tx.init(params), []
        for x, y in zip(xs, ys):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            updates, opt_state = tx.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
            losses.append(value)
        return jnp.stack(losses), params

    return run
