"""CaiT's talking-heads attention: a torch module against einsums for one example under torch.func.vmap."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
from torch import nn

from draw import Draw, to_torch

D, H = 15, 3
C = D // H


def weights(seed=331):
    d = Draw(seed)
    return to_torch({"qkv.weight": d.mat(3 * D, D) * 1.4, "qkv.bias": d.vec(3 * D), "proj_l.weight": d.mat(H, H), "proj_l.bias": d.vec(H),
                     "proj_w.weight": d.mat(H, H), "proj_w.bias": d.vec(H), "proj.weight": d.mat(D, D), "proj.bias": d.vec(D)})


class TalkingHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.proj_l, self.proj_w = nn.Linear(H, H), nn.Linear(H, H)

    def forward(self, x):
        B, N, _ = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, H, C).permute(2, 0, 3, 1, 4)
        attn = (q * C**-0.5) @ k.transpose(-2, -1)
        attn = self.proj_l(attn.permute(0, 2, 3, 1)).softmax(dim=-2)
        attn = self.proj_w(attn).permute(0, 3, 1, 2)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, D))


def side_module():
    model = TalkingHeads()
    model.load_state_dict(weights())
    return model.eval(), (to_torch(Draw(332).data(2, 7, D)),)


def one(p, x, wrong=False):
    q, k, v = torch.einsum("nd,shcd->shnc", x, p["qkv.weight"].view(3, H, C, D)) + p["qkv.bias"].view(3, H, 1, C)
    logits = torch.einsum("hqc,hkc->hqk", q, k) / C**0.5
    talk = lambda a, n: torch.einsum("gh,hqk->gqk", p[n + ".weight"], a) + p[n + ".bias"][:, None, None]
    if wrong:
        a = talk(talk(logits, "proj_l"), "proj_w").softmax(-1)  # !wrong
    else:
        a = talk(talk(logits, "proj_l").softmax(-1), "proj_w")
    return torch.einsum("hqk,hkc,dhc->qd", a, v, p["proj.weight"].view(D, H, C)) + p["proj.bias"]


def side_func():
    return torch.func.vmap(one, in_dims=(None, 0)), (weights(), to_torch(Draw(332).data(2, 7, D)))


def side_wrong():
    run = torch.func.vmap(lambda p, x: one(p, x, wrong=True), in_dims=(None, 0))
    return run, (weights(), to_torch(Draw(332).data(2, 7, D)))
