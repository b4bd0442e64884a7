"""mae with indices taken along the axis."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp

from draw import to_jax
from mae import KEEP, N, inputs, weights


def mae(p, x, target, noise, wrong=True):
    ids = jnp.argsort(noise, axis=1)
    back = jnp.argsort(ids, axis=1)
    take = lambda a, i: jnp.take_along_axis(a, i[..., None], axis=1)
    y = jnp.tanh(take(x + p["pos"], ids[:, :KEEP]) @ p["enc"][0].T + p["enc"][1])
    y = jnp.concatenate([y, jnp.broadcast_to(p["mask_token"], (x.shape[0], N - KEEP, y.shape[-1]))], axis=1)
    y = take(y, ids if wrong else back) + p["pos"]  # !wrong
    pred = y @ p["pred"][0].T + p["pred"][1]
    goal = (target - target.mean(-1, keepdims=True)) / jnp.sqrt(target.var(-1, ddof=1, keepdims=True) + 1e-6)
    hidden = back >= KEEP
    return pred, jnp.mean(jnp.square(pred - goal).mean(-1), where=hidden)


def side_wrong():
    return mae, (to_jax(weights()), *inputs(to_jax))


def side_right():
    return (lambda *a: mae(*a, wrong=False)), (to_jax(weights()), *inputs(to_jax))
