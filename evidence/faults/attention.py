"""Mistakes in attention: between the projection to queries, keys and values and the one back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.faults.operations import constant, setting, softmax
from parity.faults.registry import fault
from parity.faults.twin import Here

ATTN = "blocks.{i}.attn"
ORDINARY: dict[str, Any] = {"attention": "fused", "block": "pre_norm"}
UNGROUPED: dict[str, Any] = {**ORDINARY, "num_kv_heads": lambda heads: not heads}


@fault("queries and keys swapped", ATTN, "transposed", method="mix", **UNGROUPED)
def _swapped_q_and_k(here: Here, mix: Callable, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return mix(k, q, v, **options)


@fault("keys and values swapped", ATTN, "other-value-read", method="mix", **ORDINARY)
def _swapped_k_and_v(here: Here, mix: Callable, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return mix(q, v, k, **options)


@fault("q, k, v of each head side by side: (h, 3, d) read for (3, h, d)", ATTN,
       "axis-split-the-other-way-round", method="split_heads", **UNGROUPED)  # fmt: skip
def _interleaved_qkv(here: Here, split_heads: Callable, x: Any) -> Any:
    parts = split_heads(x)
    B, N, h, d = parts[0].shape
    packed = here.xp.concatenate([part.reshape(B, N, h * d) for part in parts], axis=-1)
    packed = packed.reshape(B, N, h, 3, d)
    return tuple(packed[:, :, :, i] for i in range(3))


@fault("attention scaled by the whole width instead of one head's", ATTN, "one-scale-too-many",
       method="mix", num_heads=lambda heads: heads > 1)  # fmt: skip
def _attention_scale(here: Here, mix: Callable, q: Any, *args: Any, **options: Any) -> Any:
    return mix(q * q.shape[2] ** -0.5, *args, **options)  # (B, N, h, d): h times too wide


@fault("attention not scaled", ATTN, "scale-left-out", method="mix", block="pre_norm")
def _missing_attention_scale(here: Here, mix: Callable, q: Any, *args: Any, **options: Any) -> Any:
    return mix(q * q.shape[-1] ** 0.5, *args, **options)


@fault(
    "attention scaled twice",
    ATTN,
    "one-scale-too-many or other-value-read",
    method="mix",
    block="pre_norm",
)
def _doubled_attention_scale(here: Here, mix: Callable, q: Any, *args: Any, **options: Any) -> Any:
    return mix(q * q.shape[-1] ** -0.5, *args, **options)


@fault("heads joined in reverse order", ATTN, "reversed", method="mix", block="pre_norm",
       num_heads=lambda heads: heads > 1)  # fmt: skip
def _permuted_heads(here: Here, mix: Callable, *args: Any, **options: Any) -> Any:
    y, weights = mix(*args, **options)  # (B, N, h, d)
    return here.xp.flip(y, (2,)), weights


@fault("heads joined as (d, h) instead of (h, d)", ATTN, "axis-split-the-other-way-round",
       method="mix", block="pre_norm", num_heads=lambda heads: heads > 1)  # fmt: skip
def _heads_joined_inside_out(here: Here, mix: Callable, *args: Any, **options: Any) -> Any:
    y, weights = mix(*args, **options)  # (B, N, h, d)
    return here.xp.swapaxes(y, 2, 3), weights


@fault("another number of heads of the same joint width", ATTN, None, method="mix",
       **{**UNGROUPED, "rel_pos_bias": False})  # fmt: skip
def _number_of_heads(here: Here, mix: Callable, q: Any, k: Any, v: Any, **options: Any) -> Any:
    B, N, h, d = q.shape
    wrong = next(count for count in range(h + 1, h * d + 1) if (h * d) % count == 0)
    return mix(*(x.reshape(B, N, wrong, -1) for x in (q, k, v)), **options)


@fault("softmax over the queries instead of the keys", ATTN, "axis", method="mix", **UNGROUPED)
def _softmax_over_queries(
    here: Here, mix: Callable, q: Any, k: Any, v: Any, *, bias: Any, **options: Any
) -> Any:
    logits = here.xp.einsum("bnhd,bmhd->bhnm", q / math.sqrt(q.shape[-1]), k)
    weights = softmax(here, logits if bias is None else logits + bias, -2)
    return here.xp.einsum("bhnm,bmhd->bnhd", weights, v), weights


@fault("the bias of the keys ignored", ATTN, None, method="split_heads",
       unseen="it adds the same q b^T to every logit of a query, which softmax ignores",
       qkv_bias=True, k_bias=True, rope=lambda rope: rope is None, qk_norm=False,
       **ORDINARY)  # fmt: skip
def _ignored_key_bias(here: Here, split_heads: Callable, x: Any) -> Any:
    q, k, v = split_heads(x)
    width = math.prod(q.shape[2:])
    bias = here.twin.bias(here.module.qkv)[width : width + math.prod(k.shape[2:])]
    return q, k - bias.reshape(k.shape[2:]), v


@fault("heads of keys and values repeated as a whole, not each for its neighbours", ATTN,
       "axis-split-the-other-way-round", method="mix", num_kv_heads=bool)  # fmt: skip
def _tiled_kv_heads(here: Here, mix: Callable, q: Any, k: Any, v: Any, **options: Any) -> Any:
    groups = q.shape[2] // k.shape[2]
    return mix(q, *(here.xp.concatenate([x] * groups, axis=2) for x in (k, v)), **options)


@fault("the lambda of differential attention counts blocks from one", ATTN, "number",
       method="mix", attention="differential")  # fmt: skip
def _lambda_of_the_next_block(here: Here, mix: Callable, *args: Any, **options: Any) -> Any:
    index = int(here.path.split(".")[1])
    with setting(here, lambda_init=0.8 - 0.6 * math.exp(-0.3 * (index + 1))):
        return mix(*args, **options)


@fault("the class token and registers rotated along with the patches", ATTN,
       "one-step-too-many-of-a-part", rope=bool, num_prefix_tokens=bool)  # fmt: skip
def _rotated_prefix(here: Here, attn: Callable, x: Any, *, rotation: Any, **options: Any) -> Any:
    extra = x.shape[1] - rotation.sin.shape[1]
    wider = (here.xp.concatenate([part[:, :extra], part], axis=1) for part in rotation)
    return attn(x, rotation=type(rotation)(*wider), **options)


@fault("rotary pairs of halves taken for neighbours, or the other way round", ATTN, "rotary-pairs",
       rope=lambda rope: rope is not None and rope.kind != "mixed")  # fmt: skip
def _rotary_pairs(here: Here, attn: Callable, *args: Any, **options: Any) -> Any:
    other = {"half": "interleaved", "interleaved": "half"}[here.module.pairs]
    with setting(here, pairs=other):
        return attn(*args, **options)


@fault("rotary coordinates half a patch off", "rope", "table",
       rope=lambda rope: rope is not None and rope.kind != "mixed")  # fmt: skip
def _rotary_offset(here: Here, rope: Callable, *args: Any) -> Any:
    options = here.module.rope
    with setting(here, rope=options.replace(offset=options.offset + 0.5)):
        return rope(*args)


@fault("relative positions read from key to query", "blocks.{i}.attn.rel_pos_bias",
       "transposed", rel_pos_bias=True)  # fmt: skip
def _transposed_relative_positions(here: Here, rel_pos_bias: Callable) -> Any:
    return here.xp.swapaxes(rel_pos_bias(), -1, -2)


@fault("no relative positions", "blocks.{i}.attn", "term-left-out", method="mix",
       rel_pos_bias=True)  # fmt: skip
def _missing_relative_positions(here: Here, mix: Callable, *args: Any, bias: Any, **options: Any) -> Any:
    return mix(*args, bias=None, **options)


@fault(
    "each query with a temperature of its own",
    ATTN,
    "one-factor-too-many",
    method="mix",
    block="pre_norm",
)
def _temperature_per_token(here: Here, mix: Callable, q: Any, *args: Any, **options: Any) -> Any:
    wave = 1 + 0.3 * np.sin(1.0 + np.arange(q.shape[1]))[:, None, None]
    return mix(q * constant(here, wave, q), *args, **options)
