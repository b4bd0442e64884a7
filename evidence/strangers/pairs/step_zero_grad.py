"""Gradients of two heads' losses in one step, plain torch against plain torch."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_torch

IN, D, A, B = 11, 9, 5, 3


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        d = Draw(621)
        self.trunk, self.kind, self.place = nn.Linear(IN, D), nn.Linear(D, A), nn.Linear(D, B)
        for layer in (self.trunk, self.kind, self.place):
            layer.weight.data = to_torch(d.mat(*layer.weight.shape))
            layer.bias.data = to_torch(d.vec(*layer.bias.shape))

    def forward(self, x):
        h = F.leaky_relu(self.trunk(x), 0.1)
        return self.kind(h), self.place(h)


def inputs():
    d = Draw(622)
    return to_torch(d.data(7, IN)), to_torch(d.ids(A, 7)), to_torch(d.data(7, B))


def criterion(model, x, kind, place):
    a, b = model(x)
    return F.cross_entropy(a, kind), F.smooth_l1_loss(b, place)


def side_sum():
    def run(x, kind, place):
        model = TwoHeads()
        optimizer = torch.optim.SGD(model.parameters(), 0.3)
        losses = []
        for _ in range(2):
            first, second = criterion(model, x, kind, place)
            optimizer.zero_grad()
            (first + 0.5 * second).backward()
            optimizer.step()
            losses += [first.detach(), second.detach()]
        return torch.stack(losses), {n: p.detach() for n, p in model.named_parameters()}

    return run, inputs()


def run_twice(x, kind, place, wrong=False):
    """Two backward passes that add up in .grad."""
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    losses = []
    for _ in range(2):
        first, second = criterion(model, x, kind, place)
        first.backward(retain_graph=True)
        second.mul(0.5).backward()
        optimizer.step()
        if wrong:
            for head in (model.kind, model.place):  # !wrong
                head.zero_grad()
        else:
            optimizer.zero_grad()
        losses += [first.detach(), second.detach()]
    return torch.stack(losses), dict(model.state_dict())


def side_twice():
    return run_twice, inputs()


def side_wrong():
    return (lambda *a: run_twice(*a, wrong=True)), inputs()
