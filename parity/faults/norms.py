"""Mistakes in norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.faults.registry import fault
from parity.faults.twin import Here

NORM = "blocks.{i}.norm1"
NORMS = (NORM, "blocks.{i}.norm2")


def _layer_norm(
    here: Here,
    x: Any,
    *,
    epsilon: float = 1.0,
    one_pass: bool = False,
    centred: bool = True,
    lost: int = 0,
    offset: float = 0.0,
    biased: bool = True,
) -> Any:
    """Compute a LayerNorm (arXiv 1607.06450) with deliberate mistakes.

    Args:
        epsilon: factor of the module's own epsilon.
        one_pass: whether the variance is E[x^2] - E[x]^2.
        centred: whether the mean is subtracted, from the values and in their variance.
        lost: degrees of freedom that the variance leaves out.
        offset: number added to the gain.
        biased: whether the bias is added.
    """
    twin, norm = here.twin, here.module
    wide = twin.widened(x)
    mean = wide.mean(axis=-1, keepdims=True) if centred else here.xp.zeros_like(wide[..., :1])
    if one_pass:
        variance = (wide * wide).mean(axis=-1, keepdims=True) - mean * mean
    else:
        variance = ((wide - mean) ** 2).mean(axis=-1, keepdims=True)
    size = x.shape[-1]
    variance = variance * (size / (size - lost))
    y = (wide - mean) / here.xp.sqrt(variance + epsilon * twin.epsilon(norm))
    y = y * (twin.widened(twin.weight(norm)) + offset)
    y = y + twin.widened(twin.bias(norm)) if biased else y
    return twin.cast(y, str(x.dtype).removeprefix("torch."))


@fault("LayerNorm epsilon ten times too large", NORM, "epsilon", at=NORMS, norm="layernorm")
def _norm_epsilon(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, epsilon=10.0)


@fault(
    "the one-pass variance E[x^2] - E[x]^2 (in float64 it needs --token-offset 1000 to be seen)",
    NORM,
    None,
    at=NORMS,
    twin="jax",
    norm="layernorm",
)
def _fast_variance(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, one_pass=True)


@fault("the unbiased variance, divided by n - 1", NORM, "one-scale-too-many", at=NORMS, norm="layernorm")
def _unbiased_variance(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, lost=1)


@fault("the gain of norms as 1 + weight", NORM, "one-term-too-many", at=NORMS, norm="layernorm")
def _gain_plus_one(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, offset=1.0)


@fault("LayerNorm without its bias", NORM, "bias-left-out", at=NORMS, norm="layernorm")
def _norm_without_bias(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, biased=False)


@fault("LayerNorm that does not subtract the mean", NORM, "RMS-norm-for-layer-norm", at=NORMS,
       norm="layernorm")  # fmt: skip
def _uncentred_norm(here: Here, norm: Callable, x: Any) -> Any:
    return _layer_norm(here, x, centred=False)


@fault("no norm before attention", NORM, "norm-left-out")
def _missing_norm(here: Here, norm: Callable, x: Any) -> Any:
    return x


@fault(
    "no norm of queries and keys",
    "blocks.{i}.attn.q_norm",
    "norm-left-out",
    at=("blocks.{i}.attn.q_norm", "blocks.{i}.attn.k_norm"),
    qk_norm=True,
)
def _missing_qk_norm(here: Here, norm: Callable, x: Any) -> Any:
    return x


@fault("no final norm", "", "norm-left-out", final_norm="pre_pool")
def _missing_final_norm(here: Here, forward: Callable, images: Any, **options: Any) -> Any:
    with here.twin.setting(here.module, norm=None):
        return forward(images, **options)
