"""SigLIP's attention pooling head and linear classifier: torch against haiku."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, M, CLASSES = 14, 2, 19, 5


def weights(seed=411):
    d = Draw(seed)
    return {"probe": d.data(1, 1, D), "attention.in_proj_weight": d.mat(3 * D, D), "attention.in_proj_bias": d.vec(3 * D),
            "attention.out_proj.weight": d.mat(D, D), "attention.out_proj.bias": d.vec(D), "layernorm.weight": d.gain(D),
            "layernorm.bias": d.vec(D), "fc1.weight": d.mat(M, D), "fc1.bias": d.vec(M), "fc2.weight": d.mat(D, M), "fc2.bias": d.vec(D)}


def tokens(cast):
    return (cast(Draw(412).data(3, 7, D)),)


class PoolingHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.probe = nn.Parameter(torch.empty(1, 1, D))
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)
        self.layernorm, self.fc1, self.fc2 = nn.LayerNorm(D, eps=1e-6), nn.Linear(D, M), nn.Linear(M, D)

    def forward(self, x):
        y = self.attention(self.probe.repeat(len(x), 1, 1), x, x)[0]
        y = y + self.fc2(F.gelu(self.fc1(self.layernorm(y)), approximate="tanh"))
        return y[:, 0]


def side_torch():
    head = PoolingHead()
    head.load_state_dict(to_torch(weights()))
    return head.eval(), tokens(to_torch)


def pooled(x, wrong=False):
    probe = hk.get_parameter("probe", (1, 1, D), init=jnp.zeros)
    probe = jnp.broadcast_to(probe, (x.shape[0], 1, D))
    y = hk.MultiHeadAttention(H, D // H, w_init=jnp.zeros, name="attention")(probe, x, x)
    z = hk.LayerNorm(-1, True, True, eps=1e-6, name="layernorm")(y)
    h = hk.Linear(D, name="fc2")(jax.nn.gelu(hk.Linear(M, name="fc1")(z)))
    y = z + h if wrong else y + h  # !wrong
    return y.squeeze(1)


def params():
    w = weights()
    p = {"~": {"probe": w["probe"]}, "layernorm": {"scale": w["layernorm.weight"], "offset": w["layernorm.bias"]}}
    qkv = zip(("query", "key", "value"), w["attention.in_proj_weight"].reshape(3, D, D), w["attention.in_proj_bias"].reshape(3, D))
    p |= {"attention/" + n: {"w": m.T, "b": b} for n, m, b in qkv}
    for to, name in (("attention/linear", "attention.out_proj"), ("fc1", "fc1"), ("fc2", "fc2")):
        p[to] = {"w": w[name + ".weight"].T, "b": w[name + ".bias"]}
    return to_jax(p)


def side_haiku():
    return hk.without_apply_rng(hk.transform(pooled)).apply, (params(), *tokens(to_jax))


def side_wrong():
    net = hk.without_apply_rng(hk.transform(lambda x: pooled(x, wrong=True)))
    return net.apply, (params(), *tokens(to_jax))
