"""nn.TransformerEncoder with a padding mask, against Flax Linen with nn.remat and nn.scan."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flax.linen as fnn
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from draw import Draw, to_jax, to_torch

D, H, M, DEPTH, N = 15, 3, 26, 3, 7
LENGTHS = np.array([7, 4])


def weights(seed=61):
    d = Draw(seed)
    return [{
        "self_attn.in_proj_weight": d.mat(3 * D, D), "self_attn.in_proj_bias": d.vec(3 * D),
        "self_attn.out_proj.weight": d.mat(D, D), "self_attn.out_proj.bias": d.vec(D),
        "linear1.weight": d.mat(M, D), "linear1.bias": d.vec(M), "linear2.weight": d.mat(D, M), "linear2.bias": d.vec(D),
        "norm1.weight": d.gain(D), "norm1.bias": d.vec(D), "norm2.weight": d.gain(D), "norm2.bias": d.vec(D),
    } for _ in range(DEPTH)]


def tokens():
    return Draw(62).data(2, N, D)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, H, M, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.register_buffer("lengths", torch.from_numpy(LENGTHS))

    def forward(self, x):
        padding = torch.arange(N)[None] >= self.lengths[:, None]
        y = self.encoder(x, src_key_padding_mask=padding)
        return y.masked_fill(padding[..., None], 0.0)


def side_torch():
    model = Encoder()
    model.encoder.load_state_dict({f"layers.{i}.{k}": torch.from_numpy(v)
                                   for i, w in enumerate(weights()) for k, v in w.items()})
    return model.eval(), (to_torch(tokens()),)


class Layer(fnn.Module):
    prenorm: bool = False

    @fnn.compact
    def __call__(self, x, mask):
        attn = fnn.MultiHeadDotProductAttention(H, name="attn", force_fp32_for_softmax=False)
        ln1, ln2 = fnn.LayerNorm(epsilon=1e-5, name="ln1"), fnn.LayerNorm(epsilon=1e-5, name="ln2")
        mlp = fnn.Sequential([fnn.Dense(M, name="up"), lambda h: fnn.gelu(h, approximate=False), fnn.Dense(D, name="down")])
        if self.prenorm:
            x = x + attn(ln1(x), mask=mask)  # !wrong
            return x + mlp(ln2(x)), None  # !wrong
        x = ln1(x + attn(x, mask=mask))
        return ln2(x + mlp(x)), None


class Stack(fnn.Module):
    prenorm: bool = False

    @fnn.compact
    def __call__(self, x, valid):
        mask = fnn.make_attention_mask(jnp.ones_like(valid), valid)
        layers = fnn.scan(fnn.remat(Layer, prevent_cse=False), variable_axes={"params": 0}, split_rngs={"params": True},
                          in_axes=fnn.broadcast, length=DEPTH)
        x, _ = layers(self.prenorm, name="layers")(x, mask)
        return jnp.where(valid[..., None], x, 0.0)


def convert(ws):
    s = {k: np.stack([w[k] for w in ws]) for k in ws[0]}
    wqkv = s["self_attn.in_proj_weight"].reshape(DEPTH, 3, H, D // H, D).transpose(1, 0, 4, 2, 3)
    bqkv = s["self_attn.in_proj_bias"].reshape(DEPTH, 3, H, D // H).swapaxes(0, 1)
    attn = {n: {"kernel": wqkv[i], "bias": bqkv[i]} for i, n in enumerate(("query", "key", "value"))}
    attn["out"] = {"kernel": s["self_attn.out_proj.weight"].swapaxes(1, 2).reshape(DEPTH, H, D // H, D),
                   "bias": s["self_attn.out_proj.bias"]}
    dense = lambda n: {"kernel": s[n + ".weight"].swapaxes(1, 2), "bias": s[n + ".bias"]}
    norm = lambda n: {"scale": s[n + ".weight"], "bias": s[n + ".bias"]}
    return to_jax({"params": {"layers": {"attn": attn, "up": dense("linear1"), "down": dense("linear2"),
                                         "ln1": norm("norm1"), "ln2": norm("norm2")}}})


def valid():
    return jnp.arange(N)[None] < LENGTHS[:, None]


def side_linen():
    model = Stack()
    return (lambda variables, x: model.apply(variables, x, valid())), (convert(weights()), to_jax(tokens()))


def side_wrong():
    model = Stack(prenorm=True)
    return (lambda variables, x: model.apply(variables, x, valid())), (convert(weights()), to_jax(tokens()))
