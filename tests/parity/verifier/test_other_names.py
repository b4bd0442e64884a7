"""Mistakes in one of two models whose names tell nothing: each has its cause, or honestly none."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from parity.verifier.causes.skips import too_many_of_a_part
from parity.verifier.compare import compare

D, H, P, N = 24, 4, 2, 6
ANGLES = torch.arange(1, N + 1)[:, None] * torch.tensor([1.0, 0.3, 0.1])
ROWS = {"patches": [-1] * P + [*range(N)], "first": [*range(N)] + [-1] * P}


class Mixer(nn.Module):
    """Self-attention; the halves of q and k are turned by angles."""

    def __init__(self, order, turned):
        super().__init__()
        self.num_heads, self.order, self.turned = H, order, turned
        self.a, self.z = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def turn(self, x, sin, cos):
        none = torch.tensor(ROWS[self.turned])[:, None] < 0
        sin, cos = (
            torch.where(none, still, part[ROWS[self.turned]]) for still, part in ((0.0, sin), (1.0, cos))
        )
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, sin, cos):
        B, T, _ = x.shape
        q, k, v = self.a(x).view(B, T, 3, H, -1).permute(2, 0, 3, 1, 4)
        q, k = self.turn(q, sin, cos), self.turn(k, sin, cos)
        y = (q @ k.mT * (D // H) ** -0.5).softmax(-1) @ v
        return self.z(y[:, self.order].transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    """A block with its norms before the branches, or behind the sums."""

    def __init__(self, order, turned, behind):
        super().__init__()
        self.one, self.two, self.behind = nn.LayerNorm(D), nn.LayerNorm(D), behind
        self.mixer, self.up, self.down = Mixer(order, turned), nn.Linear(D, 32), nn.Linear(32, D)

    def forward(self, x, sin, cos):
        if self.behind:
            x = self.one(x + self.mixer(x, sin, cos))
            return self.two(x + self.down(self.up(x)))
        x = x + self.mixer(self.one(x), sin, cos)
        return x + self.down(self.up(self.two(x)))


class Probe(nn.Module):
    """Attention pooling."""

    def __init__(self, first):
        super().__init__()
        self.num_heads, self.first = H, first
        self.probe = nn.Parameter(torch.zeros(1, 1, D))
        self.query, self.key, self.value, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x):
        parts = (self.query(self.probe), self.key(x[:, self.first :]), self.value(x[:, self.first :]))
        q, k, v = (each.view(len(each), -1, H, D // H).transpose(1, 2) for each in parts)
        y = (q @ k.mT * (D // H) ** -0.5).softmax(-1) @ v
        return self.out(y.reshape(len(x), D))


class Net(nn.Module):
    """A small classifier of 8 x 12 images; the logits of its two heads are averaged."""

    def __init__(
        self, order=(0, 1, 2, 3), turned="patches", behind=False, probe=None, last="before", used=2
    ):
        super().__init__()
        self.first, self.used, self.when = nn.Parameter(torch.zeros(1, P, D)), used, last
        self.cut = nn.Conv2d(3, D, 4, 4)
        self.layers = nn.ModuleList(Layer(list(order), turned, behind) for _ in range(2))
        self.last, self.pool = nn.LayerNorm(D), None if probe is None else Probe(probe)
        self.ends = nn.ModuleList(nn.Linear(D, 17) for _ in range(2))

    def forward(self, images):
        x = self.cut(images).flatten(2).mT
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        for layer in self.layers:
            x = layer(x, ANGLES.sin().to(x), ANGLES.cos().to(x))
        x = self.last(x) if self.when == "before" else x
        x = x[:, P:].mean(1) if self.pool is None else self.pool(x)
        x = self.last(x) if self.when == "behind" else x
        return sum(end(x) for end in self.ends[: self.used]) / self.used


def diagnosed(right, wrong):
    """Two models on the same weights."""
    a, b = Net(**right).double().eval(), Net(**wrong).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in a.parameters():
            parameter.copy_(parameter.new_empty(parameter.shape).normal_(0, 0.4, generator=generator))
    b.load_state_dict(a.state_dict())
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 12))
    return compare((a, images), (b, images))


@pytest.mark.parametrize(
    ("right", "wrong", "name", "said"),
    [
        ({}, {"order": (2, 0, 3, 1)}, "permuted", "axis 1 of"),
        ({"last": "behind"}, {"last": "never"}, "norm-left-out", "only A has"),
        ({}, {"used": 1}, "left-out", "only A has"),
    ],
)
def test_mistakes_of_models_with_other_names(right, wrong, name, said):
    comparison = diagnosed(right, wrong)
    (place,) = comparison.places
    assert (place.rule, comparison.backward) == (name, None)
    assert place.message.startswith(said)


def test_a_norm_behind_the_pooling_is_a_step_in_another_order():
    comparison = diagnosed({}, {"last": "behind"})
    assert comparison.causes == ("steps exchanged",)
    lines = [line.text for line in comparison.places[0].b.lines]
    assert any("self.last" in each or ".mean(1)" in each for each in lines)


def test_where_nothing_parts_no_row_has_a_step_of_its_own():
    same = np.ones((3, 5))
    assert too_many_of_a_part(SimpleNamespace(value_a=same, value_b=same, b=None), None) is None
