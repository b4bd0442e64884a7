"""Residual blocks with stochastic depth, used in evaluation: per-sample drop in a module against keep-probability scaling."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_torch

D, M, DEPTH, RATE = 13, 17, 3, 0.3


def state(seed=31):
    d = Draw(seed)
    sd = {}
    for i in range(DEPTH):
        sd |= {f"{i}.norm.weight": d.gain(D), f"{i}.norm.bias": d.vec(D), f"{i}.up.weight": d.mat(M, D),
               f"{i}.up.bias": d.vec(M), f"{i}.down.weight": d.mat(D, M), f"{i}.down.bias": d.vec(D)}
    return to_torch(sd)


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training:
            return x
        keep = 1 - self.rate
        mask = x.new_empty(x.shape[0], *[1] * (x.ndim - 1)).bernoulli_(keep)
        return x * mask / keep


class Residual(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, M), nn.Linear(M, D)
        self.drop = DropPath(rate)

    def forward(self, x):
        return x + self.drop(self.down(F.relu(self.up(self.norm(x)))))


def side_module():
    model = nn.Sequential(*[Residual(r.item()) for r in torch.linspace(0, RATE, DEPTH)])
    model.load_state_dict(state())
    return model.eval(), (to_torch(Draw(32).data(2, 5, D)),)


def stack(p, x, training=False, wrong=False):
    """The same blocks as a function of a state dict, one example at a time."""
    for i in range(DEPTH):
        h = F.layer_norm(x, (D,), p[f"{i}.norm.weight"], p[f"{i}.norm.bias"])
        h = F.linear(F.relu(F.linear(h, p[f"{i}.up.weight"], p[f"{i}.up.bias"])), p[f"{i}.down.weight"], p[f"{i}.down.bias"])
        keep = 1 - RATE * i / (DEPTH - 1)
        if training:
            h = h * torch.bernoulli(torch.tensor(keep)) / keep
        elif wrong:
            h = h * keep  # !wrong
        x = x + h
    return x


def side_wrong():
    return torch.func.vmap(lambda x: stack(state(), x, wrong=True)), (to_torch(Draw(32).data(2, 5, D)),)


def side_right():
    return torch.func.vmap(lambda x: stack(state(), x)), (to_torch(Draw(32).data(2, 5, D)),)
