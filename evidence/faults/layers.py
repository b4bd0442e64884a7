"""Mistakes in linear layers: weights, biases, the precision of products; and dropout that stays on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.faults.operations import apply, constant
from parity.faults.registry import fault
from parity.faults.twin import Here

FC1, ACT = "blocks.{i}.mlp.fc1", "blocks.{i}.mlp.act"


@fault("the square output projection of attention not transposed", "blocks.{i}.attn.proj",
       "parameter", twin="jax", attention_out_proj=True, attention_head_dim=None)  # fmt: skip
def _transposed_projection(here: Here, linear: Callable, x: Any) -> Any:
    return apply(here, x, here.twin.weight(here.module).T, here.twin.bias(here.module))


@fault("the bias of queries, keys and values unused", "blocks.{i}.attn.qkv", "bias-left-out",
       qkv_bias=True, k_bias=True)  # fmt: skip
def _unused_qkv_bias(here: Here, linear: Callable, x: Any) -> Any:
    return apply(here, x, here.twin.weight(here.module), None)


@fault("the bias of attention's output projection unused", "blocks.{i}.attn.proj", "bias-left-out",
       attention_out_proj=True, attention_out_bias=True)  # fmt: skip
def _unused_projection_bias(here: Here, linear: Callable, x: Any) -> Any:
    return apply(here, x, here.twin.weight(here.module), None)


@fault("the bias of the second MLP layer unused", "blocks.{i}.mlp.fc2", "bias-left-out", mlp_bias=True)
def _unused_bias(here: Here, linear: Callable, x: Any) -> Any:
    return apply(here, x, here.twin.weight(here.module), None)


@fault("the bias of the first MLP layer added twice", FC1, "one-parameter-too-many", mlp_bias=True)
def _doubled_bias(here: Here, linear: Callable, x: Any) -> Any:
    return linear(x) + here.twin.bias(here.module)


def _rounded(x: Any, bits: int) -> Any:
    """Round `x` to that many significant bits, by Veltkamp's splitting, whose gradient is that of x."""
    double = "float64" in str(x.dtype)
    scaled = x * (2.0 ** ((53 if double else 24) - bits) + 1.0)
    return scaled - (scaled - x)


@fault("the first MLP layer multiplied in bfloat16", FC1, "rounded-operands")
def _bfloat16_product(here: Here, linear: Callable, x: Any) -> Any:
    weight = here.twin.weight(here.module)
    return apply(here, _rounded(x, 8), _rounded(weight, 8), here.twin.bias(here.module))


@fault("the first MLP layer multiplied in TF32", FC1, "rounded-operands")
def _tf32_product(here: Here, linear: Callable, x: Any) -> Any:
    weight = here.twin.weight(here.module)
    return apply(here, _rounded(x, 11), _rounded(weight, 11), here.twin.bias(here.module))


@fault("an activation computed in float32 (seen in float64)", ACT, "number-type or factor")
def _float32_activation(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.cast(act(here.twin.cast(x, "float32")), str(x.dtype).removeprefix("torch."))


@fault("dropout of the MLP active in evaluation", "blocks.{i}.mlp.drop1", "one-factor-too-many")
def _active_dropout(here: Here, drop: Callable, x: Any, **options: Any) -> Any:
    keep = np.random.default_rng(0).random(tuple(x.shape)) < 0.9
    return x * constant(here, keep / 0.9, x)


@fault("stochastic depth active in evaluation", "blocks.{i}.drop_path1", "one-factor-too-many")
def _active_drop_path(here: Here, drop: Callable, x: Any, **options: Any) -> Any:
    keep = np.arange(x.shape[0]) % 2 == 0  # every second image
    return x * constant(here, keep / 0.9, x).reshape(-1, *(1,) * (x.ndim - 1))
