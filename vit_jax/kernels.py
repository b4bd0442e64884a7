"""Scaled dot-product attention: one reference path in any precision, and named fast kernels."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError
from vit_jax.drop import Dropout
from vit_jax.rules import softmax_product

KERNELS = ("auto", "reference", "xla", "cudnn")
"""``reference`` is plain einsum and softmax, which XLA fuses; ``xla`` and ``cudnn`` are
`jax.nn.dot_product_attention`, which computes in float32 even for float64 inputs. ``auto`` is
``reference``: on a CPU it is faster than ``xla`` (docs/performance.md), and ``cudnn`` takes half
precision on a GPU alone."""

CUDNN_TOKENS = 8
"""The multiple to which token counts are padded for cuDNN: its gradients need even counts.
The times of 2, 8 and 64 differ no more than two runs do (docs/performance.md)."""


def padding_bias(valid: jax.Array, dtype: Any) -> jax.Array:
    """Return the bias (B, 1, 1, M) by which `attend` sees the valid (B, M) tokens alone.

    It is half the lowest number: a sum with a logit does not overflow, and where no token is valid
    the weights are finite.
    """
    lowest = jnp.finfo(dtype).min / 2
    return jnp.where(valid, 0, lowest).astype(dtype)[:, None, None]


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    bias: jax.Array | None = None,
    scale: float | None = None,
    kernel: str = "reference",
    drop: Dropout | None = None,
    rngs: nnx.Rngs | None = None,
) -> tuple[jax.Array, jax.Array | None]:
    """Compute softmax(scale q k^T + bias) v (arXiv 1706.03762, equation 1).

    Args:
        q: (B, N, h, d).
        k, v: (B, M, h / groups, d); each of their heads serves a group of neighbouring query heads.
        bias: (h, N, M) or (B, 1, 1, M), added to the logits.
        scale: None is 1 / sqrt(d).
        kernel: one of `KERNELS`.
        drop: dropout on the weights.

    Returns:
        The heads' outputs (B, N, h, d), and the weights (B, h, N, M) before dropout - None from a
        fast kernel, which never forms them.

    Raises:
        InputError: a fast kernel while attention weights are dropped.
    """
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    groups = q.shape[2] // k.shape[2]
    if groups > 1:
        k, v = (jnp.repeat(x, groups, axis=2) for x in (k, v))  # (B, M, h, d)
    if kernel in ("auto", "reference"):
        # heads first, the layout of batched products: else XLA transposes for each product, both ways
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q * factor, k, v))  # (B, h, N or M, d)
        logits = jnp.einsum("bhnd,bhmd->bhnm", q, k)
        logits = logits if bias is None else logits + bias
        wide = jnp.promote_types(logits.dtype, jnp.float32)  # never a softmax in half precision
        weights = jax.nn.softmax(logits.astype(wide), axis=-1).astype(v.dtype)
        # an inactive dropout is not called: recording its call would have the weights formed
        dropped_weights = drop(weights, rngs=rngs) if drop is not None and drop.active else weights
        if dropped_weights is weights and v.dtype == wide:
            y = softmax_product(logits, v)
        else:
            y = jnp.einsum("bhnm,bhmd->bhnd", dropped_weights, v)
        return jnp.swapaxes(y, 1, 2), weights  # (B, N, h, d)
    if rngs is not None and drop is not None and drop.rate:
        raise InputError(
            f"kernel = {kernel!r} cannot drop attention weights, but dropout_attention = {drop.rate};"
            ' use kernel = "reference" or dropout_attention = 0'
        )
    if bias is not None:
        bias = bias if bias.ndim == 4 else bias[None]
        bias = jnp.broadcast_to(
            bias, (*bias.shape[:2], q.shape[1], k.shape[1])
        )  # (1 or B, h or 1, N, M)
    run = _cudnn if kernel == "cudnn" else jax.nn.dot_product_attention
    # the kernel wants values as wide as keys; those of differential heads are twice as wide
    parts = jnp.split(v, v.shape[-1] // k.shape[-1], axis=-1)
    mixed = [run(q, k, part, bias, scale=factor, implementation=kernel) for part in parts]  # type: ignore[call-overload]
    return jnp.concatenate(mixed, axis=-1), None


def _cudnn(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None, **how: Any) -> jax.Array:
    """Run cuDNN's attention on any number of tokens, padded to a multiple of `CUDNN_TOKENS`; cuDNN's
    own mask leaves the padding out. Shapes are those of `attend`, except the bias, of four axes."""
    B, N, M = q.shape[0], q.shape[1], k.shape[1]
    more_q, more_k = -N % CUDNN_TOKENS, -M % CUDNN_TOKENS
    if not more_q and not more_k:
        return jax.nn.dot_product_attention(q, k, v, bias, **how)
    if bias is not None:
        bias = jnp.pad(bias, ((0, 0), (0, 0), (0, more_q), (0, more_k)))
    q, k, v = (
        jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0)))
        for x, more in ((q, more_q), (k, more_k), (v, more_k))
    )
    lengths = {
        "query_seq_lengths": jnp.full(B, N, jnp.int32),
        "key_value_seq_lengths": jnp.full(B, M, jnp.int32),
    }
    return jax.nn.dot_product_attention(q, k, v, bias, **lengths, **how)[:, :N]
