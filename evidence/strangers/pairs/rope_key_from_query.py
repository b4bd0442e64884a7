"""Rotary attention in torch, rewritten with real arithmetic by hand."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F

from draw import to_torch
from rope_axial import C, GH, GW, H, tokens, weights


def tables():
    f = 100.0 ** (-torch.arange(0, C, 4).to(torch.get_default_dtype()) / C)
    row, col = torch.meshgrid(torch.arange(GH).to(f), torch.arange(GW).to(f), indexing="ij")
    theta = torch.cat([col.reshape(-1, 1) * f, row.reshape(-1, 1) * f], 1).repeat_interleave(2, 1)
    return theta.cos(), theta.sin()


def turn(x, cos, sin):
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * cos + swapped * sin


def attention(x, qkv, proj, bias, wrong=False):
    b, n, d = x.shape
    q, k, v = (t.view(b, n, H, C).transpose(1, 2) for t in (x @ qkv.T).split(d, -1))
    cos, sin = tables()
    if wrong:
        k = turn(q, cos, sin)  # !wrong
        q = turn(q, cos, sin)
    else:
        q, k = turn(q, cos, sin), turn(k, cos, sin)
    return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d), proj, bias)


def side_wrong():
    w = to_torch(weights())
    return (lambda x: attention(x, **w, wrong=True)), (to_torch(tokens()),)


def side_right():
    w = to_torch(weights())
    return (lambda x: attention(x, **w)), (to_torch(tokens()),)
