"""Adam with L2 in the gradient (torch) against an nnx.Optimizer."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp
import optax
import torch
from flax import nnx
from torch import nn

from draw import Draw, to_jax, to_torch

SIZES = (13, 11, 6)


def weights(seed=231):
    d = Draw(seed)
    return {f"fc{i}": (d.mat(o, n), d.vec(o)) for i, (n, o) in enumerate(zip(SIZES, SIZES[1:]))}


def data(cast):
    d = Draw(232)
    return cast(d.data(8, SIZES[0])), cast(d.data(8, SIZES[-1]))


def side_torch():
    def step(x, target):
        w = to_torch(weights())
        net = nn.ModuleDict({k: nn.Linear(v[0].shape[1], v[0].shape[0]) for k, v in w.items()})
        net.load_state_dict({f"{k}.{n}": t for k, v in w.items() for n, t in zip(("weight", "bias"), v)})
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.2)
        losses = []
        for _ in range(2):
            loss = (net["fc1"](torch.tanh(net["fc0"](x))) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, {k: v.detach() for k, v in net.named_parameters()}

    return step, data(to_torch)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.fc0, self.fc1 = nnx.Linear(*SIZES[:2], rngs=rngs), nnx.Linear(*SIZES[1:], rngs=rngs)
        for name, (w, b) in to_jax(weights()).items():
            getattr(self, name).kernel.set_value(w.T)
            getattr(self, name).bias.set_value(b)

    def __call__(self, x):
        return self.fc1(jnp.tanh(self.fc0(x)))


def train(tx):
    def step(x, target):
        model = Net(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        losses = []
        for _ in range(2):
            loss, grads = nnx.value_and_grad(lambda m: jnp.mean(jnp.square(m(x) - target)))(model)
            optimizer.update(model, grads)
            losses.append(loss)
        return losses, {n: {"kernel": getattr(model, n).kernel[...], "bias": getattr(model, n).bias[...]} for n in ("fc0", "fc1")}

    return step, data(to_jax)


def side_nnx():
    return train(optax.chain(optax.add_decayed_weights(0.2), optax.adam(0.01)))


def side_wrong():
    return train(optax.adamw(0.01, weight_decay=0.2))  # !wrong
