"""A masked autoencoder's middle: keep some tokens, fill with mask tokens, put back, decode, loss on what was hidden."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
from torch import nn

from draw import Draw, to_jax, to_torch

N, D, PIX, KEEP = 13, 10, 17, 4


def weights(seed=121):
    d = Draw(seed)
    return {"mask_token": d.vec(1, 1, D), "pos": d.vec(1, N, D), "enc": (d.mat(D, D), d.vec(D)), "pred": (d.mat(PIX, D), d.vec(PIX))}


def inputs(cast):
    d = Draw(122)
    noise = d.rng.permuted(d.rng.random((1, N)).repeat(3, 0), axis=1).astype(d.data(1).dtype)
    return cast(d.data(3, N, D)), cast(d.data(3, N, PIX, around=0.4)), cast(noise)


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask_token, self.pos = nn.Parameter(torch.empty(1, 1, D)), nn.Parameter(torch.empty(1, N, D))
        self.enc, self.pred = nn.Linear(D, D), nn.Linear(D, PIX)

    def forward(self, x, target, noise):
        shuffle = noise.argsort(1)
        restore = shuffle.argsort(1)
        kept = torch.gather(x + self.pos, 1, shuffle[:, :KEEP, None].expand(-1, -1, D))
        y = torch.tanh(self.enc(kept))
        y = torch.cat([y, self.mask_token.expand(len(x), N - KEEP, -1)], 1)
        y = torch.gather(y, 1, restore[..., None].expand(-1, -1, D)) + self.pos
        pred = self.pred(y)
        hidden = (restore >= KEEP).to(x.dtype)
        mean, var = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
        loss = ((pred - (target - mean) / (var + 1e-6) ** 0.5) ** 2).mean(-1)
        return pred, (loss * hidden).sum() / hidden.sum()


def side_torch():
    model, w = MAE(), to_torch(weights())
    model.load_state_dict({"mask_token": w["mask_token"], "pos": w["pos"], "enc.weight": w["enc"][0], "enc.bias": w["enc"][1],
                           "pred.weight": w["pred"][0], "pred.bias": w["pred"][1]})
    return model.eval(), inputs(to_torch)


def one(p, x, target, noise, place="restore", ddof=1, everywhere=False):
    """One picture, by one-hot matrices instead of gathers."""
    rank = (noise[:, None] > noise[None]).sum(1)
    pick = jax.nn.one_hot(rank, N, dtype=x.dtype).T
    y = jnp.tanh((pick @ (x + p["pos"][0]))[:KEEP] @ p["enc"][0].T + p["enc"][1])
    y = jnp.concatenate([y, jnp.tile(p["mask_token"][0], (N - KEEP, 1))])
    y = (pick.T if place == "restore" else pick) @ y + p["pos"][0]
    pred = y @ p["pred"][0].T + p["pred"][1]
    centred = target - target.mean(-1, keepdims=True)
    goal = centred / jnp.sqrt(jnp.var(target, -1, ddof=ddof, keepdims=True) + 1e-6)
    loss = jnp.mean((pred - goal) ** 2, -1)
    return pred, jnp.mean(loss) if everywhere else jnp.sum(loss, where=rank >= KEEP) / (N - KEEP)


def mae(p, x, target, noise, **options):
    pred, loss = jax.vmap(lambda *a: one(p, *a, **options))(x, target, noise)
    return pred, loss.mean()


def side_jax():
    return mae, (to_jax(weights()), *inputs(to_jax))
