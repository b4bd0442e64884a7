"""Mistakes between the last block and the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.faults.operations import setting
from parity.faults.registry import fault
from parity.faults.twin import Here


@fault("the mean of all tokens pooled instead of what the schema says", "pool",
       "operation or reduction", pool=lambda kind: kind in ("class", "mean"))  # fmt: skip
def _wrong_pool(here: Here, pool: Callable, x: Any) -> Any:
    return x.mean(axis=1)


@fault("the largest value of all tokens pooled", "pool", "operation or reduction",
       pool=lambda kind: kind in ("class", "mean"))  # fmt: skip
def _max_pool(here: Here, pool: Callable, x: Any) -> Any:
    return here.xp.amax(x, 1)


@fault("the first token pooled instead of the mean", "pool", "reduction", pool="mean")
def _first_token_pooled(here: Here, pool: Callable, x: Any) -> Any:
    return x[:, 0]


@fault("attention pooling sees the class token and registers", "attn_pool", None, pool="map",
       pool_prefix=False, num_prefix_tokens=bool)  # fmt: skip
def _pooled_prefix(here: Here, attn_pool: Callable, x: Any) -> Any:
    with setting(here, first_pooled=0):
        return attn_pool(x)


@fault("the final norm after the pooling instead of before", "", "norm-left-out",
       final_norm="pre_pool", pool="mean")  # fmt: skip
def _norm_behind_the_pooling(here: Here, forward: Callable, images: Any, **options: Any) -> Any:
    norm = here.module.norm
    with setting(here, norm=None, fc_norm=norm):
        return forward(images, **options)


@fault("no tanh after the layer before the head", "", "activation", method="classify",
       head_hidden=bool, num_classes=bool, distill_token=False)  # fmt: skip
def _missing_tanh(here: Here, classify: Callable, x: Any, pooled: Any, **draw: Any) -> Any:
    model = here.module
    return model.head(model.head_drop(model.pre_logits(pooled), **draw))[None]


@fault("the logits are the class head's alone", "", "reduction or left-out",
       method="classify", distill_token=True, num_classes=bool)  # fmt: skip
def _ignored_distillation_head(here: Here, classify: Callable, *args: Any, **draw: Any) -> Any:
    return classify(*args, **draw)[:1]
