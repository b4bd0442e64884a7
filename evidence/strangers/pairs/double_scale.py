"""A block with queries scaled before attention: an explicit softmax, and the fused function."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_torch

D, H = 21, 3


def weights(seed=711):
    d = Draw(seed)
    return to_torch({"norm.weight": d.gain(D), "norm.bias": d.vec(D), "query.weight": d.mat(D, D) * 1.5, "query.bias": d.vec(D),
                     "key_value.weight": d.mat(2 * D, D) * 1.5, "key_value.bias": d.vec(2 * D), "out.weight": d.mat(D, D), "out.bias": d.vec(D)})


class ScaledAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.query, self.key_value, self.out = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.scale = (D // H) ** -0.5

    def heads(self, x):
        y = self.norm(x)
        q = self.query(y) * self.scale
        return (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in (q, *self.key_value(y).chunk(2, -1)))

    def forward(self, x):
        q, k, v = self.heads(x)
        y = torch.softmax(q @ k.mT, dim=-1) @ v
        return x + self.out(y.transpose(1, 2).flatten(-2))


class Fused(ScaledAttention):
    def forward(self, x):
        q, k, v = self.heads(x)
        y = F.scaled_dot_product_attention(q, k, v)  # !wrong
        return x + self.out(y.transpose(1, 2).flatten(-2))


def side(module):
    model = module()
    model.load_state_dict(weights())
    return model.eval(), (to_torch(Draw(712).data(2, 5, D)),)


def side_explicit():
    return side(ScaledAttention)


def side_wrong():
    return side(Fused)
