"""What users may hand to `parity diff`: small models in PyTorch, each with one thing that is odd."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

X = np.random.default_rng(0).standard_normal((2, 7))


class Net(nn.Module):
    def __init__(self, inputs=7, width=5, depth=2):
        super().__init__()
        torch.manual_seed(0)
        self.fc1 = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc2(self.features(x))

    def features(self, x):
        x = self.fc1(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.norm(x)


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor


class Returning(Net):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return self.kind(super().forward(x), x)


class NotFinite(Net):
    def features(self, x):
        return super().features(x) * torch.full((5,), torch.nan, dtype=x.dtype)


class Masked(Net):
    """Weights its features by a softmax of theirs, to which a mask is added in a module of its own."""

    def __init__(self, places):
        super().__init__()
        self.softmax = nn.Softmax(-1)
        self.places = places

    def features(self, x):
        x = super().features(x)
        mask = torch.zeros_like(x[0])
        mask[self.places] = -torch.inf
        return x * self.softmax(x + mask)


class CalledTwice(Net):
    def features(self, x):
        x = self.fc1(x)
        for _ in self.blocks:
            x = torch.tanh(self.blocks[0](x))
        return self.norm(x)


class AddsInSecondCall(CalledTwice):
    """Wrong between the two calls of one module."""

    def features(self, x):
        x = torch.tanh(self.blocks[0](self.fc1(x)))
        return self.norm(torch.tanh(self.blocks[0](x + 0.1)))


class Raising(Net):
    def forward(self, x):
        raise KeyError("pixel_values\nof the processor")


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.net = nn.Embedding(13, 5), Net(inputs=5)

    def forward(self, numbers):
        return self.net(self.embedding(numbers))


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(3, 4)


def plain():
    return Net().eval(), X


def training():
    return Net().train(), X


def deeper():
    return Net(depth=4).eval(), X


def wider():
    return Net(width=11).eval(), X


def larger_input():
    return Net(inputs=9).eval(), np.zeros((2, 9))


def a_tuple():
    return Returning(lambda y, x: (y, x)).eval(), X


def a_dict():
    return Returning(lambda y, x: {"logits": y, "hidden": x}).eval(), X


def a_dataclass():
    return Returning(Output).eval(), X


def a_model_output():
    from tests.support.hf_models import transformers

    kind = transformers.modeling_outputs.ImageClassifierOutput
    return Returning(lambda y, x: kind(logits=y, hidden_states=(x,))).eval(), X


def no_tensor():
    return Returning(lambda y, x: "crane").eval(), X


def not_finite():
    return NotFinite().eval(), X


def masked():
    return Masked([1, 3]).eval(), X


def masked_elsewhere():
    return Masked([1, 4]).eval(), X


def masked_more():
    return Masked([1, 3, 4]).eval(), X


def never_called():
    return Unused().eval(), X


def called_twice():
    return CalledTwice().eval(), X


def wrong_in_second_call():
    return AddsInSecondCall().eval(), X


def raises():
    raise RuntimeError("no weights here\nand a second line")


def raising_model():
    return Raising().eval(), X


def alone():
    return Net().eval()


def no_model():
    return 5, X


def three_things():
    return Net().eval(), X, X


def wrong_shape():
    return Net().eval(), X[:, :6]


def tokens():
    return Tokens().eval(), np.array([[1, 2], [3, 12]])


def float16():
    return Net().half().eval(), X.astype(np.float16)


def bfloat16():
    return Net().bfloat16().eval(), torch.from_numpy(X).bfloat16()


number = 5
