"""DINO's loss with a centred, sharpened teacher over two global and one local view: torch against JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

K, B, VIEWS, TS, TT, M = 9, 3, 3, 0.3, 0.2, 0.9


def inputs(cast):
    d = Draw(501)
    return cast(d.data(VIEWS * B, K)), cast(d.data(2 * B, K)), cast(d.data(1, K, scale=0.4))


def side_torch():
    def loss(student, teacher, center):
        student_out = (student / TS).chunk(VIEWS)
        teacher_out = F.softmax((teacher - center) / TT, dim=-1).detach().chunk(2)
        total, terms = 0.0, 0
        for iq, q in enumerate(teacher_out):
            for v in range(VIEWS):
                if v == iq:
                    continue
                total = total + torch.sum(-q * F.log_softmax(student_out[v], dim=-1), dim=-1).mean()
                terms += 1
        return total / terms, center * M + teacher.mean(0, keepdim=True) * (1 - M)

    return loss, inputs(to_torch)


def dino(student, teacher, center, wrong=False):
    new_center = M * center + (1 - M) * jnp.mean(teacher, axis=0, keepdims=True)
    q = jax.nn.softmax((teacher - center) / TT).reshape(2, B, K)
    logp = jax.nn.log_softmax(student / TS).reshape(VIEWS, B, K)
    pair = -jnp.einsum("ibk,jbk->ij", jax.lax.stop_gradient(q), logp) / B
    if wrong:
        return pair.mean(), new_center  # !wrong
    return jnp.mean(pair, where=jnp.arange(2)[:, None] != jnp.arange(VIEWS)), new_center


def side_jax():
    return dino, inputs(to_jax)


def side_wrong():
    return (lambda *a: dino(*a, wrong=True)), inputs(to_jax)
