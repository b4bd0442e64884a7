"""What no pair compares is found by its numbers, or named; EQUAL is not said over it."""

import numpy as np
import torch
from torch import nn

from parity.verifier.diff import InProcess, compare_sides, subject_of

WIDTH = 6
X = np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype(np.float32)


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.q, self.k, self.head = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3), nn.Linear(3, 7)

    def forward(self, x):
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1)
        return self.head(torch.tanh(self.q(x)) * torch.tanh(self.k(x)))


class Port(nn.Module):
    """Another name for the class token, and one projection for two."""

    def __init__(self, *, detached):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.qk, self.head, self.detached = nn.Linear(WIDTH, 6), nn.Linear(3, 7), detached

    def forward(self, x):
        token = self.class_token.detach() if self.detached else self.class_token
        x = torch.cat([token.expand(len(x), -1, -1), x], 1)
        q, k = self.qk(x).chunk(2, -1)
        return self.head(torch.tanh(q) * torch.tanh(k))


def pair(*, detached):
    a, b = Reference(), Port(detached=detached)
    torch.manual_seed(0)
    for parameter in a.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        b.class_token.copy_(a.cls)
        b.qk.weight.copy_(torch.cat([a.q.weight, a.k.weight]))
        b.qk.bias.copy_(torch.cat([a.q.bias, a.k.bias]))
        b.head.load_state_dict(a.head.state_dict())
    return (InProcess(subject_of(n, (each, X)), dtype="float64") for n, each in (("a", a), ("b", b)))


def test_other_names_and_packed_projections_are_compared_as_sets_of_numbers():
    found = compare_sides(*pair(detached=False))
    assert found.equal
    assert not found.left_out
    assert found.tensors > 10


def test_a_gradient_that_stops_is_named_and_not_called_equal():
    found = compare_sides(*pair(detached=True))
    assert found.left_out == ("gradients: A's cls; B's class_token",)
