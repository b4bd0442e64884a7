"""Operations on an array (3, 5), each in JAX and in PyTorch, with some values of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from jax import lax

ROWS, WIDTH = 3, 5
MATRIX = np.random.default_rng(7).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 2
KERNEL = np.random.default_rng(8).standard_normal((ROWS, ROWS, 3)).astype(np.float32) / 2


class Written(NamedTuple):
    """One operation in both frameworks; both map (3, 5) and the arguments to (3, 5)."""

    jax: Callable[..., Any]
    torch: Callable[..., Any]
    choices: Sequence[tuple[Any, ...]] = ((),)
    """Arguments to choose from."""


ACTIVATIONS = {
    "gelu": (partial(jax.nn.gelu, approximate=False), F.gelu),
    "gelu tanh": (jax.nn.gelu, partial(F.gelu, approximate="tanh")),
    "relu": (jax.nn.relu, F.relu),
    "relu6": (jax.nn.relu6, F.relu6),
    "silu": (jax.nn.silu, F.silu),
    "tanh": (jnp.tanh, torch.tanh),
    "sigmoid": (jax.nn.sigmoid, torch.sigmoid),
    "softplus": (jax.nn.softplus, F.softplus),
    "elu": (jax.nn.elu, F.elu),
    "mish": (jax.nn.mish, F.mish),
}


def _scan(x, reverse, decay):
    start = jnp.zeros(WIDTH, x.dtype)
    return lax.scan(lambda c, row: (decay * c + row, c + row), start, x, reverse=reverse)[1]


def _loop(x, reverse, decay):
    carry, rows = torch.zeros(WIDTH, dtype=x.dtype), [x] * ROWS
    for i in reversed(range(ROWS)) if reverse else range(ROWS):
        carry, rows[i] = decay * carry + x[i], carry + x[i]
    return torch.stack(rows)


def _norm(x, axis, epsilon):
    centred = x - x.mean(axis, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(axis, keepdims=True) + epsilon)


def _layer_norm(x, axis, epsilon):
    if axis:
        return F.layer_norm(x, (WIDTH,), eps=epsilon)
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + epsilon).sqrt()


def _attention(x, scale, causal):
    scores = scale * x @ x.T
    return (
        jax.nn.softmax(jnp.where(jnp.tri(ROWS, dtype=bool), scores, -jnp.inf) if causal else scores) @ x
    )


def _fused(x, scale, causal):
    x = x[None, None]
    return F.scaled_dot_product_attention(x, x, x, is_causal=causal, scale=scale)[0, 0]


def _conv(x, dilation):
    return lax.conv_general_dilated(
        x[None], jnp.asarray(KERNEL), (1,), [(dilation, dilation)], rhs_dilation=(dilation,),
        dimension_numbers=("NCH", "OIH", "NCH"),
    )[0]  # fmt: skip


def _conv1d(x, dilation):
    kernel = torch.from_numpy(KERNEL).to(x.dtype)
    return F.conv1d(x[None], kernel, padding=dilation, dilation=dilation)[0]


def _pool(x, largest):
    window = partial(
        lax.reduce_window, x, window_dimensions=(1, 3), window_strides=(1, 1), padding="SAME"
    )
    if largest:
        return window(init_value=-jnp.inf, computation=lax.max)
    return window(init_value=0.0, computation=lax.add) / 3


def _pool1d(x, largest):
    return F.max_pool1d(x[None], 3, 1, 1)[0] if largest else F.avg_pool1d(x[None], 3, 1, 1)[0]


def _with_row(x, i, number):
    return torch.cat([x[:i], torch.full((1, WIDTH), number, dtype=x.dtype), x[i + 1 :]])


AXES = ((0,), (1,))
OPERATIONS = {
    "times": Written(lambda x, k: k * x, lambda x, k: k * x, ((1.5,), (0.7,), (-1.0,))),
    "plus": Written(lambda x, k: x + k, lambda x, k: x + k, ((0.5,), (-0.25,))),
    "power": Written(lambda x, k: x**k, lambda x, k: x**k, ((2,), (3,))),
    "activation": Written(
        lambda x, name: ACTIVATIONS[name][0](x),
        lambda x, name: ACTIVATIONS[name][1](x),
        [(name,) for name in ACTIVATIONS],
    ),
    "norm": Written(_norm, _layer_norm, ((1, 1e-5), (1, 1e-3), (0, 1e-5))),
    "softmax": Written(jax.nn.softmax, torch.softmax, AXES),
    "linear": Written(
        lambda x, turned: x @ (MATRIX.T if turned else MATRIX),
        lambda x, turned: F.linear(x, torch.from_numpy(MATRIX if turned else MATRIX.T).to(x.dtype)),
        ((False,), (True,)),
    ),
    "gram": Written(lambda x: 0.1 * (x @ x.T) @ x, lambda x: 0.1 * x @ (x.T @ x)),
    "roll": Written(jnp.roll, torch.roll, ((1, 0), (1, 1), (2, 1))),
    "flip": Written(jnp.flip, lambda x, axis: x.flip(axis), AXES),
    "reshape": Written(
        lambda x, first: x.reshape(WIDTH, ROWS).T if first else x.T.reshape(ROWS, WIDTH),
        lambda x, first: x.reshape(WIDTH, ROWS).T if first else x.T.reshape(ROWS, WIDTH),
        ((True,), (False,)),
    ),
    "scan": Written(_scan, _loop, ((False, 0.5), (True, 0.5), (False, 0.3))),
    "running sum": Written(jnp.cumsum, torch.cumsum, AXES),
    "minus mean": Written(
        lambda x, axis: x - x.mean(axis, keepdims=True),
        lambda x, axis: x - x.mean(axis, keepdim=True),
        AXES,
    ),
    "minus largest": Written(
        lambda x, axis: x - x.max(axis, keepdims=True),
        lambda x, axis: x - x.amax(axis, keepdim=True),
        AXES,
    ),
    "sort": Written(jnp.sort, lambda x, axis: x.sort(axis).values, AXES),
    "pad": Written(
        lambda x, number: jnp.pad(x, ((0, 0), (1, 0)), constant_values=number)[:, :WIDTH],
        lambda x, number: F.pad(x, (1, 0), value=number)[:, :WIDTH],
        ((0.0,), (1.0,)),
    ),
    "rows": Written(
        lambda x, rows: x[jnp.array(rows)],
        lambda x, rows: x[torch.tensor(rows)],
        (([0, 2, 1],), ([2, 1, 0],), ([0, 1, 1],)),
    ),
    "set row": Written(lambda x, i, k: x.at[i].set(k), _with_row, ((0, 1.0), (1, 1.0), (1, 2.0))),
    "where": Written(
        lambda x, least, slope: jnp.where(x > least, x, slope * x),
        lambda x, least, slope: torch.where(x > least, x, slope * x),
        ((0.0, 0.1), (0.0, 0.2), (0.3, 0.1)),
    ),
    "clip": Written(lambda x, k: jnp.clip(x, -k, k), lambda x, k: x.clamp(-k, k), ((0.8,), (1.0,))),
    "logarithm": Written(
        lambda x, k: jnp.log1p(k * jnp.abs(x)), lambda x, k: torch.log1p(k * x.abs()), ((1.0,), (2.0,))
    ),
    "convolution": Written(_conv, _conv1d, ((1,), (2,))),
    "pooling": Written(_pool, _pool1d, ((False,), (True,))),
    "attention": Written(_attention, _fused, ((0.447, False), (0.447, True), (1.0, False))),
}
