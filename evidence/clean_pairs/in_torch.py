"""The model in PyTorch, in several hands; each function makes a `Side` of weights by timm's names."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from evidence.clean_pairs import torch_parts as P
from evidence.clean_pairs.jax_parts import order
from evidence.clean_pairs.style import EVERY, PLAIN, RIGHT, Side, Style


class Embedding(nn.Module):
    """Patches by a convolution, tokens in front of them, positions."""

    def __init__(self, size, wrong):
        super().__init__()
        self.size, self.wrong = size, wrong
        self.proj = nn.Conv2d(3, size.width, size.patch, size.patch)
        self.held = nn.ParameterDict({"pos_embed": torch.zeros(1, size.positions, size.width)})
        for name, count in (("cls_token", size.class_token), ("reg_token", size.registers)):
            if count:
                self.held[name] = nn.Parameter(torch.zeros(1, int(count), size.width))

    def forward(self, x):
        # torch.export keeps the lines of modules, not those of the functions that they call
        # wrong: channels reversed, constants of pixels, pixels transposed
        x = self.proj(P.pixels(x, self.wrong)).flatten(2).transpose(1, 2)
        # wrong: positions shifted
        return P.assemble(self.held, x, self.size, self.wrong)


def act(size, wrong=RIGHT, i=None):
    """The activation as a module."""
    return nn.ReLU() if size.relu else nn.GELU("tanh" if wrong("tanh gelu", i) else "none")


class Factors(nn.Module):
    """A layer scale."""

    def __init__(self, width, wrong, i):
        super().__init__()
        self.gamma, self.wrong, self.i = nn.Parameter(torch.ones(width)), wrong, i

    def forward(self, x):
        gamma = self.gamma.detach() if self.wrong("detached gamma", self.i) else self.gamma
        return x * gamma  # wrong: detached gamma


class MultiheadBlock(nn.Module):
    def __init__(self, size, wrong, i):
        super().__init__()
        self.wrong, self.i = wrong, i
        first = 1e-5 if wrong("epsilon", i) else size.epsilon
        self.n1, self.n2 = nn.LayerNorm(size.width, first), nn.LayerNorm(size.width, size.epsilon)
        self.attn = nn.MultiheadAttention(size.width, size.heads, batch_first=True)
        layers = nn.Linear(size.width, size.hidden), nn.Linear(size.hidden, size.width)
        self.mlp = nn.Sequential(layers[0], act(size, wrong, i), layers[1])
        scaled = size.gamma is not None
        self.g1, self.g2 = (Factors(size.width, wrong, i) if scaled else nn.Identity() for _ in "12")

    def forward(self, x):
        y = self.n1(x)  # wrong: epsilon
        y = self.g1(self.attn(y, y, y, need_weights=False)[0])
        skip = x.detach() if self.wrong("detached skip", self.i) else x
        x = y if self.wrong("no residual", self.i) else skip + y  # wrong: detached skip
        y = self.n2(x)  # wrong: no residual
        y = y.detach() if self.wrong("detached mlp", self.i) else y
        return x + self.g2(self.mlp(y))  # wrong: tanh gelu, detached mlp, no residual


class Multihead(nn.Module):
    """With `nn.MultiheadAttention`; `again` recomputes each block when it is differentiated."""

    def __init__(self, size, wrong, again=False):
        super().__init__()
        self.size, self.wrong, self.again = size, wrong, again
        self.embed = Embedding(size, wrong)
        depth = size.depth - wrong("last block not called")
        self.layers = nn.ModuleList(MultiheadBlock(size, wrong, i) for i in range(depth))
        self.norm = nn.LayerNorm(size.width, size.epsilon)
        self.head = nn.Linear(size.width, size.classes)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        x = x if self.wrong("no last norm") else self.norm(x)
        # wrong: no last norm, last block not called, second token, prefix in mean
        return self.head(P.pool(x, self.size, self.wrong))


def outer(w):
    """What is outside of the blocks of a model with an `Embedding`."""
    state = {f"embed.proj.{leaf}": w[f"patch_embed.proj.{leaf}"] for leaf in ("weight", "bias")}
    state |= {f"embed.held.{n}": w[n] for n in ("cls_token", "reg_token", "pos_embed") if n in w}
    return state | {n: w[n] for n in ("norm.weight", "norm.bias", "head.weight", "head.bias")}


def renamed(w, size, names, wrong=RIGHT):
    """Weights of the blocks by other names; `{}` stands for the block's number."""
    return {
        f"{new.format(i)}.{leaf}": w[f"blocks.{which}.{old}.{leaf}"]
        for i, which in enumerate(order(size, wrong))
        for old, new in names.items()
        for leaf in ("weight", "bias")
        if f"blocks.{which}.{old}.{leaf}" in w
    }


def thirds(w, size, name, wrong=RIGHT):
    """The rows of q, k and v apart; `name` has places for the block and for the letter."""
    return {
        f"{name.format(i, letter)}.{leaf}": third
        for i, which in enumerate(order(size, wrong))
        for leaf in ("weight", "bias")
        for letter, third in zip("qkv", w[f"blocks.{which}.attn.qkv.{leaf}"].chunk(3), strict=True)
    }


def _multihead_state(w, size, wrong):
    at = "layers.{}."
    names = {"norm1": f"{at}n1", "norm2": f"{at}n2", "attn.proj": f"{at}attn.out_proj",
             "mlp.fc1": f"{at}mlp.0", "mlp.fc2": f"{at}mlp.2"}  # fmt: skip
    state = outer(w) | renamed(w, size, names, wrong)
    for i, which in enumerate(order(size, wrong)):
        for leaf in ("weight", "bias"):
            state[f"layers.{i}.attn.in_proj_{leaf}"] = w[f"blocks.{which}.attn.qkv.{leaf}"]
        if size.gamma is not None:
            state |= {f"layers.{i}.g{n}.gamma": w[f"blocks.{which}.ls{n}.gamma"] for n in (1, 2)}
    return state


def multihead(w, size, wrong=RIGHT, again=False, finish=None):
    """nn.MultiheadAttention."""
    return Side(Multihead(size, wrong, again), _multihead_state(w, size, wrong), finish)


def exported(model, x):
    """torch.export."""
    return torch.export.export(model, (x,)).module()


class Encoder(nn.Module):
    def __init__(self, size, wrong):
        super().__init__()
        self.size, self.wrong, self.embed = size, wrong, Embedding(size, wrong)
        epsilon = 1e-5 if wrong("every epsilon") else size.epsilon
        layer = nn.TransformerEncoderLayer(size.width, size.heads, size.hidden, 0.0,
                                           "relu" if size.relu else "gelu", epsilon,
                                           batch_first=True, norm_first=True)  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, size.depth, enable_nested_tensor=False)
        self.norm, self.head = (
            nn.LayerNorm(size.width, size.epsilon),
            nn.Linear(size.width, size.classes),
        )

    def forward(self, x):
        x = self.encoder(self.embed(x))  # wrong: every epsilon, layers reversed, layers as strings
        return self.head(P.pool(self.norm(x), self.size, self.wrong))


def encoder_layer(w, size, wrong=RIGHT):
    """nn.TransformerEncoderLayer."""
    at = "encoder.layers.{}."
    names = {"norm1": f"{at}norm1", "norm2": f"{at}norm2", "attn.proj": f"{at}self_attn.out_proj",
             "mlp.fc1": f"{at}linear1", "mlp.fc2": f"{at}linear2"}  # fmt: skip
    state = outer(w) | renamed(w, size, names, wrong)
    for i, which in enumerate(order(size, wrong)):
        for leaf in ("weight", "bias"):
            name = f"{at.format(i)}self_attn.in_proj_{leaf}"
            state[name] = w[f"blocks.{which}.attn.qkv.{leaf}"]
    return Side(Encoder(size, wrong), state)


MODULES = frozenset({
    "epsilon", "tanh gelu", "detached mlp", "no residual", "last block not called", "layers reversed",
    "layers as strings", "channels reversed", "constants of pixels", "positions shifted",
    "prefix in mean", "second token",
})  # fmt: skip
MULTIHEAD = MODULES | {"detached skip", "no last norm", "detached gamma", "detached positions"}
ENCODER = frozenset({
    "every epsilon", "layers reversed", "layers as strings", "prefix in mean", "channels reversed",
    "second token", "positions shifted",
})  # fmt: skip
NO_NORM = EVERY - {"qk norm"}
partial = functools.partial
STYLES = [
    Style("nn.MultiheadAttention", "torch, modules", multihead, NO_NORM, MULTIHEAD),
    Style("nn.TransformerEncoderLayer", "torch, modules", encoder_layer, PLAIN, ENCODER),
    Style("checkpoint", "torch, transformed", partial(multihead, again=True), NO_NORM, MULTIHEAD),
    Style("torch.export", "torch, transformed", partial(multihead, finish=exported), NO_NORM, MULTIHEAD),
]
