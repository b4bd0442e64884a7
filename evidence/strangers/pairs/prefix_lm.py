"""An image prefix seen both ways and text seen causally: torch masks against flax.linen ones."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flax.linen as fnn
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import Draw, to_jax, to_torch

D, H, IMAGE, TEXT = 14, 2, 4, 5
N = IMAGE + TEXT


def weights(seed=721):
    d = Draw(seed)
    return d.mat(3 * D, D) * 1.5, d.mat(D, D)


def inputs(cast):
    d = Draw(722)
    return cast(d.data(2, IMAGE, D)), cast(d.data(2, TEXT, D))


def side_torch():
    w_qkv, w_out = to_torch(weights())

    def attend(image, text):
        x = torch.cat([image, text], 1)
        mask = torch.ones(N, N, dtype=torch.bool).tril()
        mask[:, :IMAGE] = True
        q, k, v = (x @ w_qkv.T).unflatten(-1, (3, H, -1)).movedim(2, 0).transpose(2, 3)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return x + y @ w_out.T

    return attend, inputs(to_torch)


def prefix_mask(b, wrong):
    kind = jnp.concatenate([jnp.zeros((b, IMAGE), int), jnp.ones((b, TEXT), int)], 1)
    group = jnp.cumsum(kind, axis=1)
    if wrong:
        return fnn.make_causal_mask(kind)  # !wrong
    return fnn.make_attention_mask(group, group, jnp.greater_equal)


def attend(params, image, text, wrong=False):
    w_qkv, w_out = params
    x = jnp.concatenate([image, text], 1)
    q, k, v = jnp.moveaxis((x @ w_qkv.T).reshape(len(x), N, 3, H, -1), 2, 0)
    y = fnn.dot_product_attention(q, k, v, mask=prefix_mask(len(x), wrong), force_fp32_for_softmax=False)
    return x + y.reshape(x.shape) @ w_out.T


def side_linen():
    return attend, (to_jax(weights()), *inputs(to_jax))


def side_wrong():
    return (lambda p, a, b: attend(p, a, b, wrong=True)), (to_jax(weights()), *inputs(to_jax))
