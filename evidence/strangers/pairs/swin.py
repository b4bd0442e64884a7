"""Two Swin blocks (plain and shifted) and patch merging: torch against einops-heavy JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, GH, GW, WH, WW = 12, 3, 6, 9, 2, 3
SHIFT = (1, 2)


def weights(seed=81):
    d = Draw(seed)
    blocks = [{"norm1": (d.gain(D), d.vec(D)), "qkv": (d.mat(3 * D, D), d.vec(3 * D)), "proj": (d.mat(D, D), d.vec(D)),
               "table": d.data((2 * WH - 1) * (2 * WW - 1), H), "norm2": (d.gain(D), d.vec(D)),
               "fc1": (d.mat(20, D), d.vec(20)), "fc2": (d.mat(D, 20), d.vec(D))} for _ in range(2)]
    return {"blocks": blocks, "merge_norm": (d.gain(4 * D), d.vec(4 * D)), "reduction": d.mat(2 * D - 1, 4 * D)}


def tokens():
    return Draw(82).data(2, GH * GW, D)


def window_partition(x):
    b, h, w, c = x.shape
    return x.view(b, h // WH, WH, w // WW, WW, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, WH * WW, c)


def window_reverse(x):
    b = x.shape[0] // (GH // WH * (GW // WW))
    return x.view(b, GH // WH, GW // WW, WH, WW, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, GH, GW, -1)


def relative_index():
    coords = torch.stack(torch.meshgrid(torch.arange(WH), torch.arange(WW), indexing="ij")).flatten(1)
    rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
    rel[:, :, 0] += WH - 1
    rel[:, :, 1] += WW - 1
    rel[:, :, 0] *= 2 * WW - 1
    return rel.sum(-1)


def shift_mask():
    img = torch.zeros(1, GH, GW, 1)
    count = 0
    for hs in (slice(0, -WH), slice(-WH, -SHIFT[0]), slice(-SHIFT[0], None)):
        for ws in (slice(0, -WW), slice(-WW, -SHIFT[1]), slice(-SHIFT[1], None)):
            img[:, hs, ws] = count
            count += 1
    win = window_partition(img).squeeze(-1)
    diff = win[:, None, :] - win[:, :, None]
    return diff.masked_fill(diff != 0, -100.0).masked_fill(diff == 0, 0.0)


class SwinBlock(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.fc1, self.fc2 = nn.Linear(D, 20), nn.Linear(20, D)
        self.table = nn.Parameter(torch.empty((2 * WH - 1) * (2 * WW - 1), H))
        self.register_buffer("index", relative_index(), persistent=False)
        self.register_buffer("mask", shift_mask() if shift else None, persistent=False)

    def attend(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        attn = (q * (D // H) ** -0.5) @ k.transpose(-2, -1)
        attn = attn + self.table[self.index.view(-1)].view(t, t, H).permute(2, 0, 1)
        if self.mask is not None:
            nw = self.mask.shape[0]
            attn = (attn.view(n // nw, nw, H, t, t) + self.mask[None, :, None]).view(-1, H, t, t)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(n, t, D))

    def forward(self, x):
        y = self.norm1(x).view(-1, GH, GW, D)
        if self.shift:
            y = torch.roll(y, (-SHIFT[0], -SHIFT[1]), dims=(1, 2))
        y = window_reverse(self.attend(window_partition(y)))
        if self.shift:
            y = torch.roll(y, SHIFT, dims=(1, 2))
        x = x + y.flatten(1, 2)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(SwinBlock(False), SwinBlock(True))
        self.norm = nn.LayerNorm(4 * D)
        self.reduction = nn.Linear(4 * D, 2 * D - 1, bias=False)

    def forward(self, x):
        x = self.blocks(x).view(-1, GH, GW, D)
        if GW % 2:
            x = F.pad(x, (0, 0, 0, GW % 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x))


def side_torch():
    model, w = Stage(), to_torch(weights())
    sd = {"norm.weight": w["merge_norm"][0], "norm.bias": w["merge_norm"][1], "reduction.weight": w["reduction"]}
    for i, b in enumerate(w["blocks"]):
        for k, v in b.items():
            sd |= {f"blocks.{i}.{k}": v} if k == "table" else {f"blocks.{i}.{k}.weight": v[0], f"blocks.{i}.{k}.bias": v[1]}
    model.load_state_dict(sd)
    return model.eval(), (to_torch(tokens()),)


# The same by einops; each part can be replaced.
def ln(x, p):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]


def bias_table(table):
    """(H, t, t) from the table seen as a (2WH-1, 2WW-1) grid of offsets."""
    y, x = np.divmod(np.arange(WH * WW), WW)
    grid = rearrange(table, "(y x) h -> h y x", y=2 * WH - 1)
    return grid[:, y[:, None] - y[None] + WH - 1, x[:, None] - x[None] + WW - 1]


def regions():
    """Numbers the pictures' parts that may see each other after the roll, window by window."""
    y = np.repeat([0, 1, 2], [GH - WH, WH - SHIFT[0], SHIFT[0]])
    x = np.repeat([0, 1, 2], [GW - WW, WW - SHIFT[1], SHIFT[1]])
    return rearrange(3 * y[:, None] + x, "(i y) (j x) -> (i j) (y x)", y=WH, x=WW)


def blocked():
    r = regions()
    return np.where(r[:, :, None] == r[:, None, :], 0.0, -100.0)


def roll(x, sign):
    return jnp.roll(x, (sign * SHIFT[0], sign * SHIFT[1]), (1, 2))


def merge(x):
    x = jnp.pad(x, ((0, 0), (0, 0), (0, GW % 2), (0, 0)))
    return rearrange(x, "b (h y) (w x) d -> b h w (x y d)", y=2, x=2)


def block(x, p, shifted, bias=bias_table, mask=blocked, back=lambda y: roll(y, 1)):
    y = rearrange(ln(x, p["norm1"]), "b (h w) d -> b h w d", h=GH)
    if shifted:
        y = roll(y, -1)
    y = rearrange(y, "b (i y) (j x) d -> b (i j) (y x) d", y=WH, x=WW)
    q, k, v = rearrange(y @ p["qkv"][0].T + p["qkv"][1], "b n t (s h c) -> s b n h t c", s=3, h=H)
    a = jnp.einsum("bnhqc,bnhkc->bnhqk", q, k) * (D // H) ** -0.5 + bias(p["table"])
    if shifted:
        a = a + mask()[:, None]
    y = jnp.einsum("bnhqk,bnhkc->bnqhc", jax.nn.softmax(a, -1), v)
    y = rearrange(y, "b n t h c -> b n t (h c)") @ p["proj"][0].T + p["proj"][1]
    y = rearrange(y, "b (i j) (y x) d -> b (i y) (j x) d", i=GH // WH, y=WH)
    if shifted:
        y = back(y)
    x = x + rearrange(y, "b h w d -> b (h w) d")
    h = jax.nn.gelu(ln(x, p["norm2"]) @ p["fc1"][0].T + p["fc1"][1], approximate=False)
    return x + h @ p["fc2"][0].T + p["fc2"][1]


def stage(params, x, merge=merge, **parts):
    for i, p in enumerate(params["blocks"]):
        x = block(x, p, shifted=i % 2 == 1, **parts)
    x = merge(rearrange(x, "b (h w) d -> b h w d", h=GH))
    return ln(x, params["merge_norm"]) @ params["reduction"].T


def side_einops():
    return stage, (to_jax(weights()), to_jax(tokens()))
