"""Mistakes in norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.faults.operations import setting
from parity.faults.models import NORM, NORMS, layer_norm
from parity.faults.registry import fault
from parity.faults.twin import Here


@fault("LayerNorm epsilon ten times too large", NORM, "epsilon", at=NORMS, norm="layernorm")
def _norm_epsilon(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, epsilon=10.0)


@fault("the unbiased variance, divided by n - 1", NORM, "one-scale-too-many", at=NORMS, norm="layernorm")
def _unbiased_variance(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, lost=1)


@fault("the gain of norms as 1 + weight", NORM, "one-term-too-many", at=NORMS, norm="layernorm")
def _gain_plus_one(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, offset=1.0)


@fault("LayerNorm without its bias", NORM, "bias-left-out", at=NORMS, norm="layernorm")
def _norm_without_bias(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, biased=False)


@fault("LayerNorm that does not subtract the mean", NORM, "RMS-norm-for-layer-norm", at=NORMS,
       norm="layernorm")  # fmt: skip
def _uncentred_norm(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, centred=False)


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
    with setting(here, norm=None):
        return forward(images, **options)
