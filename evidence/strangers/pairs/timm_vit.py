"""A plain ViT in the manner of timm: conv stem, class token, fused qkv, pre-norm blocks."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_torch

WIDTH, HEADS, HIDDEN, CLASSES, PATCH, GRID = 15, 3, 23, 7, 7, (2, 3)


def checkpoint(depth=3, seed=11):
    """A state dict as it would lie in a .pth file."""
    d = Draw(seed)
    sd = {
        "patch_embed.proj.weight": d.mat(WIDTH, 3, PATCH, PATCH, fan=147),
        "patch_embed.proj.bias": d.vec(WIDTH),
        "cls_token": d.vec(1, 1, WIDTH),
        "pos_embed": d.vec(1, 1 + GRID[0] * GRID[1], WIDTH),
    }
    for i in range(depth):
        b = f"blocks.{i}."
        for norm in ("norm1", "norm2"):
            sd[b + norm + ".weight"], sd[b + norm + ".bias"] = d.gain(WIDTH), d.vec(WIDTH)
        for name, out, inp in [("attn.qkv", 3 * WIDTH, WIDTH), ("attn.proj", WIDTH, WIDTH),
                               ("mlp.fc1", HIDDEN, WIDTH), ("mlp.fc2", WIDTH, HIDDEN)]:
            sd[b + name + ".weight"], sd[b + name + ".bias"] = d.mat(out, inp), d.vec(out)
    sd["norm.weight"], sd["norm.bias"] = d.gain(WIDTH), d.vec(WIDTH)
    sd["head.weight"], sd["head.bias"] = d.mat(CLASSES, WIDTH), d.vec(CLASSES)
    return sd


def images(seed=12, batch=2):
    return Draw(seed).data(batch, 3, GRID[0] * PATCH, GRID[1] * PATCH)


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, HIDDEN)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + GRID[0] * GRID[1], WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def make(depth=3):
    model = VisionTransformer(depth)
    model.load_state_dict(to_torch(checkpoint(depth)))
    return model.eval()


def side_torch():
    return make(), (to_torch(images()),)


def side_torch_deep():
    return make(depth=12), (to_torch(images()),)
