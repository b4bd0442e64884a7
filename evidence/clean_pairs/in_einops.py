"""The model in PyTorch with einops and einsum; heads outside or inside, compiled too."""

from __future__ import annotations

import functools

import torch
from einops import rearrange
from einops.layers.torch import Rearrange
from torch import nn

from evidence.clean_pairs import torch_parts as P
from evidence.clean_pairs.in_torch import MODULES, renamed, thirds
from evidence.clean_pairs.style import PLAIN, RIGHT, Side, Style


class EinopsAttention(nn.Module):
    """Three projections; heads inside, (d h), where `inside` says so."""

    def __init__(self, size, wrong, i, inside):
        super().__init__()
        self.size, self.wrong, self.i = size, wrong, i
        self.order = "(d h)" if inside else "(h d)"
        self.q, self.k, self.v, self.out = (nn.Linear(size.width, size.width) for _ in range(4))

    def forward(self, x):
        wrong, i, size = self.wrong, self.i, self.size
        heads = f"b n {self.order} -> b h n d"
        q, k, v = (rearrange(p(x), heads, h=size.heads) for p in (self.q, self.k, self.v))
        scale = size.width**-0.5 if wrong("scale of width", i) else size.head_dim**-0.5
        q = q if wrong("no scale", i) else q * scale  # wrong: scale of width
        scores = torch.einsum("bhid,bhjd->bhij", q, k)  # wrong: no scale
        if wrong("causal mask", i):
            # wrong: causal mask
            scores = scores.masked_fill(~torch.ones_like(scores[0, 0]).bool().tril(), -torch.inf)
        share = scores.softmax(-1)  # wrong: causal mask, no scale
        share = share.detach() if wrong("detached attention", i) else share
        y = torch.einsum("bhij,bhjd->bhid", share, v)  # wrong: detached attention
        y = (
            y.reshape(x.shape)
            if wrong("head order", i)
            else rearrange(y, f"b h n d -> b n {self.order}")
        )
        return self.out(y)  # wrong: head order


class EinopsBlock(nn.Module):
    def __init__(self, size, wrong, i, inside):
        super().__init__()
        self.size, self.wrong, self.i = size, wrong, i
        first = 1e-5 if wrong("epsilon", i) else size.epsilon
        self.n1, self.n2 = nn.LayerNorm(size.width, first), nn.LayerNorm(size.width, size.epsilon)
        self.attn = EinopsAttention(size, wrong, i, inside)
        self.wide, self.narrow = nn.Linear(size.width, size.hidden), nn.Linear(size.hidden, size.width)

    def forward(self, x):
        y = self.attn(self.n1(x))  # wrong: epsilon
        x = y if self.wrong("no residual", self.i) else y + x
        y = self.n2(x)  # wrong: no residual
        y = y.detach() if self.wrong("detached mlp", self.i) else y
        y = P.gelu(self.wide(y), self.size, self.wrong, self.i)  # wrong: detached mlp
        return self.narrow(y) + x  # wrong: no residual


class EinopsViT(nn.Module):
    def __init__(self, size, wrong, inside):
        super().__init__()
        self.size, self.wrong = size, wrong
        patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=size.patch, q=size.patch)
        self.embed = nn.Sequential(patches, nn.Linear(3 * size.patch**2, size.width))
        if size.class_token:
            self.cls = nn.Parameter(torch.zeros(size.width))
        self.pos = nn.Parameter(torch.zeros(size.positions, size.width))
        depth = size.depth - wrong("last block not called")
        self.blocks = nn.ModuleList(EinopsBlock(size, wrong, i, inside) for i in range(depth))
        self.norm = nn.LayerNorm(size.width, size.epsilon)
        self.head = nn.Linear(size.width, size.classes)

    def forward(self, x):
        x = self.embed(P.pixels(x, self.wrong))
        if self.size.class_token:
            x = torch.cat((self.cls.expand(x.shape[0], 1, -1), x), dim=1)
        x += self.pos.roll(1, 0) if self.wrong("positions shifted") else self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(P.pool(x, self.size, self.wrong)) if not self.size.mean
                         # wrong: last block not called
                         else P.pool(self.norm(x), self.size, self.wrong))  # fmt: skip


def inside_out(rows, size):
    """Rows of a projection (h d) in the order (d h)."""
    return rows.unflatten(0, (size.heads, size.head_dim)).transpose(0, 1).reshape(rows.shape)


def einops_model(w, size, wrong=RIGHT, inside=False, finish=None):
    """einops and einsum, a linear layer over patches, three projections."""
    kernel = w["patch_embed.proj.weight"].permute(0, 2, 3, 1).reshape(size.width, -1)
    state = {"embed.1.weight": kernel, "embed.1.bias": w["patch_embed.proj.bias"],
             "pos": w["pos_embed"][0]}  # fmt: skip
    state |= {"cls": w["cls_token"].reshape(-1)} if size.class_token else {}
    state |= {n: w[n] for n in ("norm.weight", "norm.bias", "head.weight", "head.bias")}
    at = "blocks.{}."
    state |= renamed(w, size, {"norm1": f"{at}n1", "norm2": f"{at}n2", "attn.proj": f"{at}attn.out",
                               "mlp.fc1": f"{at}wide", "mlp.fc2": f"{at}narrow"}, wrong)  # fmt: skip
    apart = thirds(w, size, "blocks.{}.attn.{}", wrong)
    state |= {name: inside_out(third, size) if inside else third for name, third in apart.items()}
    if inside:
        outs = [name for name in state if name.endswith("attn.out.weight")]
        state |= {name: inside_out(state[name].T, size).T for name in outs}
    return Side(EinopsViT(size, wrong, inside), state, finish)


EINOPS = MODULES | {
    "scale of width", "no scale", "causal mask", "detached attention", "head order", "quick gelu",
}  # fmt: skip


def _compiled(model, x):
    return torch.compile(model, backend="aot_eager")


partial = functools.partial
STYLES = [
    Style("einops", "torch, modules", einops_model, PLAIN, EINOPS),
    Style("einops, (d h) heads", "torch, modules", partial(einops_model, inside=True), PLAIN, EINOPS),
    Style("torch.compile", "torch, transformed", partial(einops_model, finish=_compiled), PLAIN, EINOPS),
]
