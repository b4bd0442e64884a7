"""MLP-Mixer with as many tokens as channels: torch against layer_stack in haiku."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk
import jax
import numpy as np
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D = N = 11
MT, MC, DEPTH = 7, 17, 3


def weights(seed=731):
    d = Draw(seed)
    return [{"norm1": (d.gain(D), d.vec(D)), "token1": (d.mat(MT, N), d.vec(MT)), "token2": (d.mat(N, MT), d.vec(N)),
             "norm2": (d.gain(D), d.vec(D)), "channel1": (d.mat(MC, D), d.vec(MC)), "channel2": (d.mat(D, MC), d.vec(D))} for _ in range(DEPTH)]


def tokens(cast):
    return (cast(Draw(732).data(2, N, D)),)


class MixerBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-6), nn.LayerNorm(D, eps=1e-6)
        self.token1, self.token2, self.channel1, self.channel2 = nn.Linear(N, MT), nn.Linear(MT, N), nn.Linear(D, MC), nn.Linear(MC, D)
        self.load_state_dict({f"{k}.{n}": v for k, pair in w.items() for n, v in zip(("weight", "bias"), pair)})

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)
        x = x + self.token2(F.gelu(self.token1(y))).transpose(1, 2)
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


def side_torch():
    return nn.Sequential(*map(MixerBlock, to_torch(weights()))).eval(), tokens(to_torch)


def mixer(x, wrong=False):
    gelu = lambda h: jax.nn.gelu(h, approximate=False)

    @hk.experimental.layer_stack(DEPTH, name="stack")
    def block(x):
        y = hk.LayerNorm(-1, True, True, eps=1e-6, name="norm1")(x).swapaxes(1, 2)
        y = hk.Linear(N, name="token2")(gelu(hk.Linear(MT, name="token1")(y)))
        x = x + (y if wrong else y.swapaxes(1, 2))  # !wrong
        y = hk.LayerNorm(-1, True, True, eps=1e-6, name="norm2")(x)
        return x + hk.Linear(D, name="channel2")(gelu(hk.Linear(MC, name="channel1")(y)))

    return block(x)


def params():
    ws = weights()
    out = {}
    for k in ws[0]:
        a, b = (np.stack([w[k][i] for w in ws]) for i in (0, 1))
        out["stack/" + k] = {"scale": a, "offset": b} if "norm" in k else {"w": a.swapaxes(1, 2), "b": b}
    return to_jax(out)


def side_haiku():
    return hk.without_apply_rng(hk.transform(mixer)).apply, (params(), *tokens(to_jax))


def side_wrong():
    net = hk.without_apply_rng(hk.transform(lambda x: mixer(x, wrong=True)))
    return net.apply, (params(), *tokens(to_jax))
