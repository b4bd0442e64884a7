"""The model as torchvision writes it, with its names, in code of our own."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from evidence.clean_pairs import weights as W
from evidence.clean_pairs.in_torch import loaded, renamed


class MLPBlock(nn.Sequential):
    def __init__(self):
        layers = [nn.Linear(W.D, W.HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(W.HIDDEN, W.D)]
        super().__init__(*layers, nn.Dropout(0.1))


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(W.D, eps=W.EPSILON) for _ in range(2))
        self.self_attention = nn.MultiheadAttention(W.D, W.HEADS, dropout=0.1, batch_first=True)
        self.dropout, self.mlp = nn.Dropout(0.1), MLPBlock()

    def forward(self, given):
        x = self.ln_1(given)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + given
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, W.TOKENS, W.D))
        self.dropout = nn.Dropout(0.1)
        blocks: OrderedDict[str, nn.Module]
        blocks = OrderedDict((f"encoder_layer_{i}", EncoderBlock()) for i in range(W.DEPTH))
        self.layers, self.ln = nn.Sequential(blocks), nn.LayerNorm(W.D, eps=W.EPSILON)

    def forward(self, x):
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_proj = nn.Conv2d(W.C, W.D, kernel_size=W.PATCH, stride=W.PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, W.D))
        self.encoder = Encoder()
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(W.D, W.CLASSES)))

    def forward(self, x):
        n, _, h, w = x.shape
        x = self.conv_proj(x).reshape(n, W.D, (h // W.PATCH) * (w // W.PATCH)).permute(0, 2, 1)
        x = self.encoder(torch.cat([self.class_token.expand(n, -1, -1), x], dim=1))
        return self.heads(x[:, 0])


OUTER = {"patch_embed.proj": "conv_proj", "norm": "encoder.ln", "head": "heads.head"}


def torchvision(w):
    at = "encoder.layers.encoder_layer_{}."
    names = {"norm1": "ln_1", "norm2": "ln_2", "attn.proj": "self_attention.out_proj",
             "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.3"}  # fmt: skip
    state = renamed(w, {old: at + new for old, new in names.items()})
    for leaf in ("weight", "bias"):
        for old, new in OUTER.items():
            state[f"{new}.{leaf}"] = w[f"{old}.{leaf}"]
        for i in range(W.DEPTH):
            state[at.format(i) + f"self_attention.in_proj_{leaf}"] = w[f"blocks.{i}.attn.qkv.{leaf}"]
    state |= {"class_token": w["cls_token"], "encoder.pos_embedding": w["pos_embed"]}
    return loaded(VisionTransformer(), state), W.images()


STYLES = {"as in torchvision": torchvision}
