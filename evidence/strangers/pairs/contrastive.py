"""CLIP's and SigLIP's losses on one batch of pairs: torch against optax."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

N, D = 5, 13


def inputs(cast):
    d = Draw(481)
    return cast(d.data(N, D)), cast(d.data(N, D)), cast(d.data(1, around=1.5)), cast(d.data(1, around=-3))


def side_torch():
    def losses(image, text, log_scale, bias):
        image, text = F.normalize(image, dim=-1), F.normalize(text, dim=-1)
        logits = log_scale.exp() * image @ text.T
        labels = torch.arange(N)
        clip = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        siglip = -F.logsigmoid((2 * torch.eye(N) - 1) * (logits + bias)).sum() / N
        return clip, siglip

    return losses, inputs(to_torch)


def logits_of(image, text, log_scale):
    unit = lambda v: v * jax.lax.rsqrt(jnp.sum(v * v, -1, keepdims=True))
    return jnp.einsum("id,jd->ij", unit(image), unit(text)) * jnp.exp(log_scale)


def side_optax():
    def losses(image, text, log_scale, bias):
        z, target = logits_of(image, text, log_scale), jnp.eye(N)
        clip = 0.5 * sum(optax.softmax_cross_entropy(m, target).mean() for m in (z, z.T))
        return clip, optax.sigmoid_binary_cross_entropy(z + bias, target).sum(-1).mean()

    return losses, inputs(to_jax)


def side_wrong():
    def losses(image, text, log_scale, bias):
        z = logits_of(image, text, log_scale)
        ids = jnp.arange(N)
        rows = optax.softmax_cross_entropy_with_integer_labels(z, ids)
        columns = -jnp.diagonal(jax.nn.log_softmax(z.T, axis=0))  # !wrong
        return (rows + columns).mean() / 2, optax.sigmoid_binary_cross_entropy(z + bias, jnp.eye(N)).sum(1).mean()

    return losses, inputs(to_jax)
