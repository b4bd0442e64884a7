"""The digits by a Vision Transformer in one file of JAX; `digits_torch.py` is the same in PyTorch.

    python -m evidence.speedruns.digits_jax [EPOCHS]

Nothing of this package is used. Parameters and batches are drawn by numpy, so both files take the same
steps; `python -m evidence.speedruns.table` runs both and compares their curves.
"""

import math
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

D, DEPTH, HEADS, M, PATCH = 64, 3, 4, 128, 2
EPOCHS, BATCH, PEAK, WARMUP, DECAY, BETAS, EPS = 60, 64, 3e-3, 0.1, 0.1, (0.9, 0.98), 1e-8


def load():
    """Even numbers to train on, odd ones to test: (N, 8, 8) in [-1, 1] and (N,)."""
    digits: Any = load_digits()
    images, labels = (digits.images / 8 - 1).astype(np.float32), digits.target.astype(np.int32)
    return (images[::2], labels[::2]), (images[1::2], labels[1::2])


def draw(seed=0):
    """The parameters, weights as (in, out)."""
    rng = np.random.default_rng(seed)

    def linear(name, rows, columns):
        weight = rng.normal(0, rows**-0.5, (rows, columns))
        return {f"{name}.w": weight, f"{name}.b": np.zeros(columns)}

    params = linear("embed", PATCH * PATCH, D) | {"pos": rng.normal(0, 0.02, ((8 // PATCH) ** 2, D))}
    for i in range(DEPTH):
        shapes = {"qkv": (D, 3 * D), "proj": (D, D), "fc1": (D, M), "fc2": (M, D)}
        for name, shape in shapes.items():
            params |= linear(f"{i}.{name}", *shape)
        for name in ("norm1", "norm2"):
            params |= {f"{i}.{name}.w": np.ones(D), f"{i}.{name}.b": np.zeros(D)}
    params |= {"norm.w": np.ones(D), "norm.b": np.zeros(D)} | linear("head", D, 10)
    return {name: value.astype(np.float32) for name, value in params.items()}


def batches(images, labels, epochs, seed=1):
    """Shuffled batches; along each axis two images of five are moved by a pixel."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            padded = np.pad(images[chosen], ((0, 0), (1, 1), (1, 1)), constant_values=-1)
            places = rng.choice([0, 1, 1, 1, 2], (BATCH, 2))
            moved = [x[r : r + 8, c : c + 8] for x, (r, c) in zip(padded, places, strict=True)]
            yield np.stack(moved), labels[chosen]


def rates(steps):
    """The learning rate of each step: linear warm-up, then a cosine."""
    warm = round(WARMUP * steps)
    for step in range(steps):
        if step < warm:
            yield PEAK * (step + 1) / warm
        else:
            yield PEAK * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2


def forward(p, images):
    """(B, 8, 8) to logits (B, 10)."""

    def linear(name, x):
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name, x):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-6) * p[f"{name}.w"] + p[f"{name}.b"]

    B, n = len(images), 8 // PATCH
    x = images.reshape(B, n, PATCH, n, PATCH).transpose(0, 1, 3, 2, 4).reshape(B, n * n, PATCH * PATCH)
    x = linear("embed", x) + p["pos"]  # (B, N, D)
    for i in range(DEPTH):
        qkv = linear(f"{i}.qkv", norm(f"{i}.norm1", x)).reshape(B, n * n, 3, HEADS, D // HEADS)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)  # (B, h, N, d)
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (D // HEADS) ** -0.5, -1)  # (B, h, N, N)
        x = x + linear(f"{i}.proj", (weights @ v).transpose(0, 2, 1, 3).reshape(B, n * n, D))
        hidden = jax.nn.gelu(linear(f"{i}.fc1", norm(f"{i}.norm2", x)), approximate=False)
        x = x + linear(f"{i}.fc2", hidden)
    return linear("head", norm("norm", x).mean(1))


def loss(params, images, labels):
    """The mean cross entropy."""
    logits = jax.nn.log_softmax(forward(params, images))
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(params, first, second, images, labels, rate, count):
    """AdamW, matrices decayed."""
    value, grads = jax.value_and_grad(loss)(params, images, labels)
    (a, b), new = BETAS, {}
    for name, g in grads.items():
        first[name] = a * first[name] + (1 - a) * g
        second[name] = b * second[name] + (1 - b) * g * g
        update = first[name] / (1 - a**count) / (jnp.sqrt(second[name] / (1 - b**count)) + EPS)
        decay = DECAY if name.endswith(".w") and g.ndim == 2 else 0.0
        new[name] = params[name] - rate * (update + decay * params[name])
    return new, first, second, value


def train(epochs=EPOCHS):
    """Losses of all steps, the accuracy on the other half, and seconds, compiling included."""
    (images, labels), (others, answers) = load()
    params = jax.tree.map(jnp.asarray, draw())
    first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    steps = epochs * (len(images) // BATCH)
    since, losses = time.perf_counter(), []
    pairs = zip(rates(steps), batches(images, labels, epochs), strict=True)
    for count, (rate, batch) in enumerate(pairs, 1):
        params, first, second, value = step(params, first, second, *batch, rate, float(count))
        losses.append(value)
    right = np.asarray(jax.jit(forward)(params, others)).argmax(-1) == answers
    return np.array(losses, np.float64), float(right.mean()), time.perf_counter() - since


if __name__ == "__main__":
    losses, accuracy, seconds = train(int(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS)
    print(f"loss {losses[-14:].mean():.4f}  accuracy {accuracy:.4f}  {seconds:.1f} s")
