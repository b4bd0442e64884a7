"""Channels first on one side, last on the other; blocks that are called after what they hold; gradients
that are zero in theory."""

import numpy as np
import torch
from torch import nn

from parity.verifier.compare import compare

WIDTH, TOKENS = 5, 12  # of 4 x 3 pixels
IMAGES = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8, 6)).astype(np.float32))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvBlock(nn.Module):
    """No convolution, though its name says so; its MLP has the layout of the other side's block."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.norm, self.gain = nn.LayerNorm(WIDTH), nn.Parameter(torch.zeros(WIDTH))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 7), nn.GELU(), nn.Linear(7, WIDTH))

    def forward(self, x):
        y = self.mlp(self.norm(self.conv(x).permute(0, 2, 3, 1)))
        return x + (self.gain * y).permute(0, 3, 1, 2)


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTH, 2, stride=2), ChannelNorm(WIDTH))
        self.stage = nn.Sequential(ConvBlock(), ChannelNorm(WIDTH), ConvBlock())
        self.mix, self.norm, self.head = (
            nn.Linear(TOKENS, TOKENS),
            ChannelNorm(WIDTH),
            nn.Linear(WIDTH, 3),
        )

    def forward(self, x):
        x = self.stage(self.stem(x))
        x = self.norm(self.mix(x.flatten(2)).unflatten(2, x.shape[2:]))
        return self.head(x.mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.depthwise, self.normalise, self.gain = of.conv, of.norm, of.gain
        self.expand, _, self.reduce = of.mlp

    def forward(self, x):
        y = self.depthwise(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        y = nn.functional.gelu(self.expand(self.normalise(y)))
        return x + self.gain * self.reduce(y)


def last_norm(of):
    norm = nn.LayerNorm(WIDTH)
    norm.load_state_dict(of.state_dict())
    return norm


class Last(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.patches, self.patch_norm = of.stem[0], last_norm(of.stem[1])
        self.layer_1, self.between, self.layer_2 = (
            Layer(of.stage[0]),
            last_norm(of.stage[1]),
            Layer(of.stage[2]),
        )
        self.mixing, self.mixing_bias = of.mix.weight, of.mix.bias
        self.last_norm, self.classify = last_norm(of.norm), of.head

    def forward(self, x):
        x = self.patch_norm(self.patches(x).permute(0, 2, 3, 1))
        x = self.layer_2(self.between(self.layer_1(x))).flatten(1, 2)
        x = self.last_norm(torch.einsum("ij,bjc->bic", self.mixing, x) + self.mixing_bias[:, None])
        return self.classify(x.mean(1))


def test_channels_first_and_last_are_compared_whole():
    torch.manual_seed(0)
    a = First()
    for parameter in a.parameters():
        nn.init.normal_(parameter)
    comparison = compare((a, IMAGES), (Last(a), IMAGES))
    assert comparison.equal, comparison.to_text()
    # the bias of the mixing, which the norm takes away, has no gradient
    assert comparison.backward.counts.outputs == 1 + len(list(a.parameters()))
    partners = {module.path: module.of_a for module in comparison.forward.modules}
    assert partners["layer_1"] == "stage.0"
