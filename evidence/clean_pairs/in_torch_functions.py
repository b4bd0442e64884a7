"""The model in PyTorch as functions of a dictionary: fused, mapped, by hand, with its own derivative."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from evidence.clean_pairs import torch_parts as P
from evidence.clean_pairs.jax_parts import EXTRA
from evidence.clean_pairs.style import RIGHT, Side, Style


def functional(w, size, wrong=RIGHT):
    """A function of a dictionary of tensors, with fused attention."""
    return Side(lambda w, x: P.forward(w, x, size, wrong), w)


def mapped(w, size, wrong=RIGHT):
    """torch.vmap over single images."""
    return Side(lambda w, x: torch.vmap(lambda one: P.forward(w, one[None], size, wrong)[0])(x), w)


def _by_hand(p, x, size, wrong, i):
    run = functools.partial(P.block, norm=P.norm_by_hand, attend=P.attend_by_hand)
    return checkpoint(run, p, x, size, wrong, i, use_reentrant=False)


def by_hand(w, size, wrong=RIGHT):
    """Norms and softmax by hand, heads under vmap, each block recomputed."""
    return Side(lambda w, x: P.forward(w, x, size, wrong, _by_hand, P.norm_by_hand), w)


class Gelu(torch.autograd.Function):
    """With a derivative by hand."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        density = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
        return grads[0] * (0.5 * (1 + torch.erf(x / 2**0.5)) + x * density)


class WrongGelu(Gelu):
    """With a mistake in it."""

    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        density = torch.exp(-0.5 * x * x) / torch.pi**0.5  # wrong: custom gradient
        return grads[0] * (0.5 * (1 + torch.erf(x / 2**0.5)) + x * density)  # wrong: custom gradient


def _own_gelu(p, x, size, wrong, i):
    y = P.norm(x, p, "norm1", size, wrong, i)
    x = x + P.gamma(p, P.attend(p, y, size, wrong, i), 1, wrong, i)
    y = P.norm(x, p, "norm2", size, wrong, i)
    y = F.linear(y, p["mlp.fc1.weight"], p["mlp.fc1.bias"])
    gelu = WrongGelu if wrong("custom gradient", i) else Gelu
    y = F.relu(y) if size.relu else gelu.apply(y)
    return x + P.gamma(p, F.linear(y, p["mlp.fc2.weight"], p["mlp.fc2.bias"]), 2, wrong, i)


def own_gradient(w, size, wrong=RIGHT):
    """torch.autograd.Function for GELU."""
    return Side(lambda w, x: P.forward(w, x, size, wrong, _own_gelu), w)


FUSED_ALONE = frozenset({
    "n - 1", "rms", "head order", "packing", "no scale", "causal mask", "no gain", "every epsilon",
    "detached gain", "weight transposed",
})  # fmt: skip
BY_HAND = (P.FAULTS - FUSED_ALONE) | P.BY_HAND | {"gammas exchanged", "detached gamma"}
OWN = frozenset({"custom gradient", "epsilon", "packing", "weight transposed", "n - 1"})
STYLES = [
    Style("functional torch", "torch, functions", functional, faults=P.FAULTS | EXTRA),
    Style("torch.vmap", "torch, transformed", mapped, faults=P.FAULTS | EXTRA),
    Style("norms and softmax by hand", "torch, functions", by_hand, faults=BY_HAND),
    Style("autograd.Function", "torch, functions", own_gradient, faults=OWN),
]
