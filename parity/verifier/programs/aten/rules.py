"""Decompositions of torch's composite operators into the operations that JAX programs have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten


def _layer_norm(x, shape, weight, bias, eps):
    axes = list(range(x.ndim - len(shape), x.ndim))
    mean = aten.mean(x, axes, True)
    centred = x - mean
    variance = aten.mean(centred * centred, axes, True)
    scale = aten.rsqrt(variance + eps)
    out = centred * scale
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, scale


def _group_norm(x, weight, bias, n, c, hxw, groups, eps):
    grouped = x.reshape(n, groups, c // groups, -1)
    mean = aten.mean(grouped, [2, 3], True)
    centred = grouped - mean
    scale = aten.rsqrt(aten.mean(centred * centred, [2, 3], True) + eps)
    out = (centred * scale).reshape(x.shape)
    along = [1, c] + [1] * (x.ndim - 2)
    out = out if weight is None else out * weight.reshape(along)
    out = out if bias is None else out + bias.reshape(along)
    return out, mean.reshape(n, groups), scale.reshape(n, groups)


def _batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    along = [1, -1] + [1] * (x.ndim - 2)
    statistics = x.new_empty(0), x.new_empty(0)
    if training:
        n, axes = x.numel() // x.shape[1], [0, *range(2, x.ndim)]
        running, mean = (mean, var), aten.mean(x, axes)
        centred = x - mean.reshape(along)
        var = aten.mean(centred * centred, axes)
        if running[0] is not None:  # of the variance, that of a sample of n: over n - 1
            for old, new in zip(running, (mean, var * (n / max(n - 1, 1))), strict=True):
                old.copy_(old * (1 - momentum) + new * momentum)
        statistics = mean, aten.rsqrt(var + eps)
    out = (x - mean.reshape(along)) * aten.rsqrt(var + eps).reshape(along)
    out = out if weight is None else out * weight.reshape(along)
    out = out if bias is None else out + bias.reshape(along)
    return out, *statistics


def _batch_norm_no_training(x, weight, bias, mean, var, momentum, eps):
    return _batch_norm(x, weight, bias, mean, var, False, momentum, eps)


def _gelu(x, approximate="none"):
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + aten.tanh(inner))
    return 0.5 * x * (1 + aten.erf(x * math.sqrt(0.5)))


def _silu(x):
    return x * aten.sigmoid(x)


def _softmax(x, axis, *_):
    raised = aten.exp(x - aten.amax(x, [axis], True))
    return raised / aten.sum(raised, [axis], True)


def _safe_softmax(x, axis, dtype=None):
    """Rows that are masked entirely are zero; where there are none, nothing more is recorded."""
    with _disable_current_modes():
        masked = bool((x == -math.inf).all(axis).any())
    weights = _softmax(x, axis)
    if not masked:
        return weights
    return aten.where(aten.all(x == -math.inf, axis, True), x.new_zeros(()), weights)


def _log_softmax(x, axis, *_):
    shifted = x - aten.amax(x, [axis], True)
    return shifted - aten.log(aten.sum(aten.exp(shifted), [axis], True))


def _addmm(bias, a, b, *, beta=1, alpha=1):
    product = aten.mm(a, b)
    product = product if alpha == 1 else product * alpha
    return product + (bias if beta == 1 else bias * beta)


def _baddbmm(bias, a, b, *, beta=1, alpha=1):
    product = aten.bmm(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)


def _linear(x, weight, bias=None):
    out = aten.matmul(x, aten.t(weight))
    return out if bias is None else out + bias


def _convolution(x, weight, bias, *rest):
    if bias is None:
        return NotImplemented
    return aten.convolution(x, weight, None, *rest) + bias.reshape([-1] + [1] * (x.ndim - 2))


def _attention(q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None, **_):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = aten.matmul(q, aten.transpose(k, -2, -1)) * scale
    if causal:
        scores = aten.where(torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), scores, -math.inf)
    scores = scores if attn_mask is None else scores + attn_mask
    return aten.matmul(_softmax(scores, -1), v), scores


def _add(x, other, *, alpha=1):
    return NotImplemented if alpha == 1 else x + other * alpha


def _sub(x, other, *, alpha=1):
    return NotImplemented if alpha == 1 else x - other * alpha


def _lerp(x, end, weight):
    return x * (1 - weight) + end * weight


def _addcmul(x, one, other, *, value=1):
    product = one * other
    return x + (product if value == 1 else product * value)


def _addcdiv(x, one, other, *, value=1):
    quotient = one / other
    return x + (quotient if value == 1 else quotient * value)


def _into(operator: Any) -> Callable[..., Any]:
    """Return a rule that writes what a decomposed operator yields into its first argument."""

    def rule(x, *args, alpha=1, **kwargs):
        kwargs |= {} if alpha == 1 else {"alpha": alpha}
        if operator in (aten.add.Tensor, aten.sub.Tensor) and not kwargs:
            return NotImplemented
        return x.copy_(operator(x, *args, **kwargs))

    return rule


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_no_training,
    aten.gelu.default: _gelu,
    aten.silu.default: _silu,
    aten._softmax.default: _softmax,
    aten._safe_softmax.default: _safe_softmax,
    aten._log_softmax.default: _log_softmax,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _baddbmm,
    aten.linear.default: _linear,
    aten.convolution.default: _convolution,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten.add.Tensor: _add,
    aten.sub.Tensor: _sub,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.addcmul.default: _addcmul,
    aten.addcdiv.default: _addcdiv,
}

_FROM_TORCH = (
    "hardswish", "hardsigmoid", "hardtanh", "leaky_relu",
    "elu", "mish", "softplus", "glu",
    "std", "var", "var_mean", "std_mean", "nll_loss_forward",
    "nll_loss2d_forward", "nll_loss_backward", "mse_loss", "smooth_l1_loss",
    "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "native_layer_norm_backward",
    "native_group_norm_backward", "gelu_backward", "silu_backward", "_softmax_backward_data",
    "_log_softmax_backward_data", "sigmoid_backward", "tanh_backward", "threshold_backward",
    "mse_loss_backward", "embedding_dense_backward", "linalg_vector_norm", "norm",
    "logsumexp", "hardswish_backward", "hardsigmoid_backward", "leaky_relu_backward",
    "select_backward", "slice_backward", "addmv", "addr",
    "frobenius_norm", "xlogy", "logit", "dist",
)  # fmt: skip
for _name in _FROM_TORCH:
    _packet = getattr(aten, _name, None)
    for _overload in _packet.overloads() if _packet is not None else ():
        _operator = getattr(_packet, _overload)
        if _operator in decomposition_table and not _operator._schema.is_mutable:
            DECOMPOSITIONS.setdefault(_operator, decomposition_table[_operator])
DECOMPOSITIONS |= {
    writing: _into(operator)
    for writing, operator in (
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.sub_.Tensor, aten.sub.Tensor),
        (aten.addcmul_.default, aten.addcmul.default),
        (aten.addcdiv_.default, aten.addcdiv.default),
        (aten.lerp_.Scalar, aten.lerp.Scalar),
        (aten.lerp_.Tensor, aten.lerp.Tensor),
    )
}
