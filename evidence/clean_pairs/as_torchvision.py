"""The model as torchvision writes it, with its names, in code of our own."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from evidence.clean_pairs.in_torch import renamed
from evidence.clean_pairs.jax_parts import order
from evidence.clean_pairs.style import RIGHT, Side, Style


class MLPBlock(nn.Sequential):
    def __init__(self, size, wrong, i):
        act = nn.ReLU() if size.relu else nn.GELU("tanh" if wrong("tanh gelu", i) else "none")
        layers = [nn.Linear(size.width, size.hidden), act, nn.Dropout(0.1)]
        super().__init__(*layers, nn.Linear(size.hidden, size.width), nn.Dropout(0.1))


class EncoderBlock(nn.Module):
    def __init__(self, size, wrong, i):
        super().__init__()
        self.wrong, self.i = wrong, i
        first = 1e-5 if wrong("epsilon", i) else size.epsilon
        self.ln_1, self.ln_2 = nn.LayerNorm(size.width, first), nn.LayerNorm(size.width, size.epsilon)
        self.self_attention = nn.MultiheadAttention(
            size.width, size.heads, dropout=0.1, batch_first=True
        )
        self.dropout, self.mlp = nn.Dropout(0.1), MLPBlock(size, wrong, i)

    def forward(self, given):
        x = self.ln_1(given)  # wrong: epsilon
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x)
        x = x if self.wrong("no residual", self.i) else x + given
        return x + self.mlp(self.ln_2(x))  # wrong: tanh gelu, no residual


class Encoder(nn.Module):
    def __init__(self, size, wrong):
        super().__init__()
        self.wrong = wrong
        self.pos_embedding = nn.Parameter(torch.empty(1, size.positions, size.width))
        self.dropout = nn.Dropout(0.1)
        depth = size.depth - wrong("last block not called")
        blocks: OrderedDict[str, nn.Module]
        blocks = OrderedDict((f"encoder_layer_{i}", EncoderBlock(size, wrong, i)) for i in range(depth))
        self.layers = nn.Sequential(blocks)
        self.ln = nn.LayerNorm(size.width, 1e-5 if wrong("last epsilon") else size.epsilon)

    def forward(self, x):
        positions = self.pos_embedding
        positions = positions.roll(1, 1) if self.wrong("positions shifted") else positions
        x = self.layers(self.dropout(x + positions))  # wrong: positions shifted
        return self.ln(x)  # wrong: last block not called, last epsilon


class VisionTransformer(nn.Module):
    def __init__(self, size, wrong):
        super().__init__()
        self.size = size
        self.conv_proj = nn.Conv2d(3, size.width, kernel_size=size.patch, stride=size.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size.width))
        self.encoder = Encoder(size, wrong)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(size.width, size.classes)))
        self.wrong = wrong

    def forward(self, x):
        x = self.conv_proj(x).reshape(len(x), self.size.width, self.size.patches).permute(0, 2, 1)
        x = self.encoder(torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1))
        return self.heads(x[:, 1 if self.wrong("second token") else 0])


OUTER = {"patch_embed.proj": "conv_proj", "norm": "encoder.ln", "head": "heads.head"}


def torchvision(w, size, wrong=RIGHT):
    """The names and the order of operations of torchvision."""
    at = "encoder.layers.encoder_layer_{}."
    names = {"norm1": "ln_1", "norm2": "ln_2", "attn.proj": "self_attention.out_proj",
             "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.3"}  # fmt: skip
    state = renamed(w, size, {old: at + new for old, new in names.items()}, wrong)
    for leaf in ("weight", "bias"):
        for old, new in OUTER.items():
            state[f"{new}.{leaf}"] = w[f"{old}.{leaf}"]
        for i, which in enumerate(order(size, wrong)):
            name = f"{at.format(i)}self_attention.in_proj_{leaf}"
            state[name] = w[f"blocks.{which}.attn.qkv.{leaf}"]
    state |= {"class_token": w["cls_token"], "encoder.pos_embedding": w["pos_embed"]}
    return Side(VisionTransformer(size, wrong), state)


FAULTS = frozenset({
    "epsilon", "last epsilon", "tanh gelu", "no residual", "last block not called", "layers reversed",
    "layers as strings", "positions shifted", "second token",
})  # fmt: skip
STYLES = [Style("as in torchvision", "torch, libraries", torchvision, frozenset({"relu"}), FAULTS)]
