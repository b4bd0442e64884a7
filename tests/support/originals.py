"""Three of the models that this project rebuilds, written in PyTorch alone as their documents describe
them, with the loop that trains them: a third party to both twins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from vit_config import ViTConfig
from vit_config.parameters import parameters


class Pair(NamedTuple):
    """A parameter here and its place in the twins' arrays."""

    tensor: nn.Parameter
    name: str
    index: tuple[int, ...] = ()
    transposed: bool = False


class Original(nn.Module):
    """A model that exchanges its parameters with the twins."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.cfg = cfg

    def pairs(self) -> Iterator[Pair]:
        """Pair every parameter with the twins'."""
        raise NotImplementedError

    @torch.no_grad()
    def load(self, arrays: dict[str, np.ndarray]) -> Original:
        """Take the twins' parameters, and their type."""
        self.to(torch.from_numpy(next(iter(arrays.values()))).dtype)
        for tensor, name, index, transposed in self.pairs():
            value = torch.tensor(arrays[name][index])
            tensor.copy_((value.T if transposed else value).reshape(tensor.shape))
        return self

    def common(self) -> dict[str, np.ndarray]:
        """Return the parameters as the twins take them."""
        shapes = {name: each.shape for name, each in parameters(self.cfg).items()}
        dtype = next(self.parameters()).detach().numpy().dtype
        arrays = {name: np.full(shape, np.nan, dtype) for name, shape in shapes.items()}
        for tensor, name, index, transposed in self.pairs():
            value = tensor.detach().numpy()
            arrays[name][index] = (value.T if transposed else value).reshape(arrays[name][index].shape)
        return arrays


def of_layer(layer: nn.Module, name: str) -> Iterator[Pair]:
    """Pair the weight and the bias of a layer."""
    yield from (Pair(p, f"{name}.{leaf}") for leaf, p in layer.named_parameters())


# the exercise: heads that are split first, positions that are fixed, a softmax inside


class HeadsFirst(nn.Module):
    """Attention that splits the width first: three d x d layers per head, no output projection."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.d = width // heads
        self.q, self.k, self.v = (
            nn.ModuleList([nn.Linear(self.d, self.d) for _ in range(heads)]) for _ in "qkv"
        )

    def forward(self, x):
        heads = []
        for i, (q, k, v) in enumerate(zip(self.q, self.k, self.v, strict=True)):
            part = x[..., i * self.d : (i + 1) * self.d]
            weights = torch.softmax(q(part) @ k(part).transpose(1, 2) / math.sqrt(self.d), dim=-1)
            heads.append(weights @ v(part))
        return torch.cat(heads, dim=-1)

    def pairs(self, name: str) -> Iterator[Pair]:
        """Pair each head's layers with their slices of the packed ones."""
        for which, layers in enumerate((self.q, self.k, self.v)):
            for head, layer in enumerate(layers):
                yield Pair(layer.weight, f"{name}.qkv_weight", (which, head), transposed=True)
                yield Pair(layer.bias, f"{name}.qkv_bias", (which, head))


def position_table(rows: int, width: int) -> torch.Tensor:
    """PE[i, 2j] = sin(i / 10000^(2j/d)), PE[i, 2j+1] = cos of the same, in float64."""
    table = torch.zeros(rows, width, dtype=torch.float64)
    for i in range(rows):
        for j in range(width // 2):
            angle = i / 10000 ** (2 * j / width)
            table[i, 2 * j], table[i, 2 * j + 1] = math.sin(angle), math.cos(angle)
    return table


def patchify(images: torch.Tensor, patch: tuple[int, int]) -> torch.Tensor:
    """Cut images (B, C, H, W) into flattened patches, one slice at a time: (B, N, C ph pw)."""
    (ph, pw), (_, _, H, W) = patch, images.shape
    cut = [
        images[:, :, i : i + ph, j : j + pw].flatten(1) for i in range(0, H, ph) for j in range(0, W, pw)
    ]
    return torch.stack(cut, dim=1)


class ExerciseBlock(nn.Module):
    """Two residual lines."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D = cfg.hidden_size
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention = HeadsFirst(D, cfg.num_heads)
        self.mlp = nn.Sequential(nn.Linear(D, cfg.mlp_dim), nn.GELU(), nn.Linear(cfg.mlp_dim, D))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Exercise(Original):
    """The course exercise: probabilities (B, classes)."""

    blocks: Any

    def __init__(self, cfg: ViTConfig):
        super().__init__(cfg)
        D = cfg.hidden_size
        self.project = nn.Linear(cfg.in_channels * math.prod(cfg.patch_size), D)
        self.class_token = nn.Parameter(torch.rand(1, D))
        self.blocks = nn.ModuleList([ExerciseBlock(cfg) for _ in range(cfg.depth)])
        self.head = nn.Sequential(nn.Linear(D, cfg.num_classes), nn.Softmax(dim=-1))

    def forward(self, images):
        x = self.project(patchify(images, self.cfg.patch_size))
        x = torch.stack([torch.vstack([self.class_token, tokens]) for tokens in x])
        x = x + position_table(x.shape[1], x.shape[2]).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])

    def pairs(self):
        yield from of_layer(self.project, "patch_embed.proj")
        yield Pair(self.class_token, "cls_token")
        for i, block in enumerate(self.blocks):
            yield from of_layer(block.norm1, f"blocks.{i}.norm1")
            yield from block.attention.pairs(f"blocks.{i}.attn")
            yield from of_layer(block.norm2, f"blocks.{i}.norm2")
            yield from of_layer(block.mlp[0], f"blocks.{i}.mlp.fc1")
            yield from of_layer(block.mlp[2], f"blocks.{i}.mlp.fc2")
        yield from of_layer(self.head[0], "head")


# the other two: a convolution for patches, and torch's own attention


def of_attention(attention: nn.MultiheadAttention, name: str) -> Iterator[Pair]:
    """Pair torch's packed attention."""
    yield Pair(attention.in_proj_weight, f"{name}.qkv.weight")
    yield Pair(attention.in_proj_bias, f"{name}.qkv.bias")
    yield from of_layer(attention.out_proj, f"{name}.proj")


class PackedBlock(nn.Module):
    """A pre-norm block around torch's attention."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D, p = cfg.hidden_size, cfg.dropout_mlp_inner
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, cfg.num_heads, batch_first=True)
        layers = nn.Linear(D, cfg.mlp_dim), nn.GELU(), nn.Dropout(p), nn.Linear(cfg.mlp_dim, D)
        self.mlp = nn.Sequential(*layers, nn.Dropout(p))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Encoder(Original):
    """What the convolutional and the paper's model share: patches by a convolution, tokens and positions
    drawn standard normal, blocks, and a norm before the head."""

    norm_name = "norm"

    def __init__(self, cfg: ViTConfig):
        super().__init__(cfg)
        D = cfg.hidden_size
        self.patches = nn.Conv2d(cfg.in_channels, D, cfg.patch_size, cfg.patch_size)
        self.class_token = nn.Parameter(torch.randn(1, 1, D))
        self.positions = nn.Parameter(torch.randn(1, 1 + cfg.num_patches, D))
        self.dropped = nn.Dropout(cfg.dropout_embed)
        self.blocks = nn.ModuleList([PackedBlock(cfg) for _ in range(cfg.depth)])
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, cfg.num_classes))

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        x = self.dropped(x + self.positions[:, : x.shape[1]])  # a smaller image takes the leading rows
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])

    def pairs(self):
        yield from of_layer(self.patches, "patch_embed.proj")
        yield Pair(self.class_token, "cls_token")
        yield Pair(self.positions, "pos_embed")
        for i, block in enumerate(self.blocks):
            yield from of_layer(block.norm1, f"blocks.{i}.norm1")
            yield from of_attention(block.attention, f"blocks.{i}.attn")
            yield from of_layer(block.norm2, f"blocks.{i}.norm2")
            yield from of_layer(block.mlp[0], f"blocks.{i}.mlp.fc1")
            yield from of_layer(block.mlp[3], f"blocks.{i}.mlp.fc2")
        yield from of_layer(self.head[0], self.norm_name)
        yield from of_layer(self.head[1], "head")


class Convolutional(Encoder):
    """The repository with interchangeable parts, its patches convolutional."""


class Paper(Encoder):
    """The paper equation by equation: its head is a norm and a linear layer."""

    norm_name = "fc_norm"


ORIGINALS: dict[str, type[Original]] = {
    "mnist_exercise": Exercise,
    "mnist_conv_vit": Convolutional,
    "vit_paper": Paper,
}
"""Each model by the preset that is it."""


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[float]:
    """Train as all three documents do, and yield the loss of each step; what the model returns, be it
    probabilities, is given to cross entropy."""
    loss_fn = nn.CrossEntropyLoss()
    for images, labels in batches:
        model.train()
        loss = loss_fn(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images whose class has the highest output."""
    model.eval()
    return (model(images).argmax(dim=1) == labels).double().mean().item()
