"""Scaled dot-product attention: one reference path in any precision, and a named fast kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional as F

from vit_config import InputError
from vit_torch.drop import Dropout

KERNELS = ("auto", "reference", "sdpa")
"""``reference`` is plain einsum and softmax; ``sdpa`` is torch's scaled_dot_product_attention, which
chooses the fastest implementation of the device. ``auto`` is ``sdpa`` for inference - gradients are off,
nothing is dropped and nobody asks for the weights - and ``reference`` otherwise."""

_asked: list[None] = []


@contextmanager
def weights_formed(wanted: bool) -> Iterator[None]:
    """Have ``auto`` form the attention weights within this context, if `wanted`."""
    # a list, since `torch.compile` follows no context variable; other threads may form weights in vain
    requests = [None] * wanted
    _asked.extend(requests)
    try:
        yield
    finally:
        del _asked[: len(requests)]


def padding_bias(valid: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the bias (B, 1, 1, M) by which `attend` sees the valid (B, M) tokens alone.

    It is half the lowest number: a sum with a logit does not overflow, and where no token is valid
    the weights are finite.
    """
    lowest = torch.finfo(dtype).min / 2
    bias = torch.zeros(valid.shape, dtype=dtype, device=valid.device)
    return bias.masked_fill(~valid, lowest)[:, None, None]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    scale: float | None = None,
    kernel: str = "reference",
    drop: Dropout | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
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
        k, v = (x.repeat_interleave(groups, dim=2) for x in (k, v))  # (B, M, h, d)
    rate = drop.rate if drop is not None and drop.training else 0.0
    if kernel == "auto":
        kernel = "reference" if torch.is_grad_enabled() or rate or _asked else "sdpa"
    if kernel == "reference":
        logits = torch.einsum("bnhd,bmhd->bhnm", q * factor, k)  # (B, h, N, M)
        logits = logits if bias is None else logits + bias
        wide = torch.promote_types(logits.dtype, torch.float32)  # never a softmax in half precision
        weights = torch.softmax(logits.to(wide), dim=-1).to(v.dtype)
        # an inactive dropout is not called, as in JAX, so that recordings of both have the same places
        dropped_weights = drop(weights) if drop is not None and drop.active else weights
        return torch.einsum("bhnm,bmhd->bnhd", dropped_weights, v), weights
    if rate:
        raise InputError(
            f"kernel = {kernel!r} cannot drop attention weights, but dropout_attention = {rate};"
            ' use kernel = "reference" or dropout_attention = 0'
        )
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, h, N, d)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=factor)
    return y.transpose(1, 2), None
