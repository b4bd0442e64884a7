"""Rewrites of the final norm, the pooling and the head."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.porting.dialects.rewrites.rewrite import (
    CannotRewriteError,
    ModelState,
    allows,
    require,
)
from parity.porting.dialects.transfer import change_when_read


def final_norm(state: ModelState, allowed: Any) -> ModelState:
    """Move the final norm before or after the pooling of a class token."""
    cfg = state.config
    target = {"pre_pool": "post_pool", "post_pool": "pre_pool"}.get(cfg.final_norm)
    require(target is not None and allows(allowed, target))
    same = cfg.pool == "class" and not cfg.distill_token
    require(same, f"pool = {cfg.pool} of normalised tokens is not that pool, normalised")
    there, here = ("norm", "fc_norm") if target == "pre_pool" else ("fc_norm", "norm")
    leaves = [leaf for leaf in ("weight", "bias") if f"{here}.{leaf}" in state.arrays]
    new = {f"{there}.{leaf}": state.arrays[f"{here}.{leaf}"] for leaf in leaves}
    note = (
        "final norm: of every token" if target == "pre_pool" else "final norm: of the class token alone"
    )
    return state.rewritten(note, {"final_norm": target}, new)


def pool(state: ModelState, allowed: Any) -> ModelState:
    """Turn a head on class token or mean into one on both, with zero weights for the other, or back."""
    cfg = state.config
    halves = ("class", "mean")
    others = [each for each in halves if each != cfg.pool and allows(allowed, each)]
    if (
        cfg.num_classes == 0
        and cfg.head_hidden is None
        and cfg.pool in halves
        and cfg.class_token
        and others
    ):
        raise CannotRewriteError(
            "without a head its tokens are the same whatever is pooled; to take another vector, give"
            f" --override pool={others[0]}"
        )
    require(cfg.num_classes > 0 and cfg.head_hidden is None and not cfg.distill_token)
    D, head = cfg.hidden_size, state.arrays["head.weight"]
    if cfg.pool in halves:
        fits = cfg.class_token and cfg.final_norm != "post_pool" and not cfg.pool_prefix
        require(fits and allows(allowed, "class_mean"))
        order = -1 if cfg.pool == "mean" else 1

        def widen(weight: np.ndarray) -> np.ndarray:
            return np.concatenate([weight, np.zeros_like(weight)][::order], axis=1)

        new = {"head.weight": change_when_read(head, widen, (cfg.num_classes, 2 * D))}
        note = f"head: weights of zeros added for the {halves[order > 0]}"
        return state.rewritten(note, {"pool": "class_mean"}, new)
    require(cfg.pool == "class_mean")
    weights = dict(zip(halves, np.split(head.load(), 2, axis=1), strict=True))
    for half, other in (halves, halves[::-1]):
        if allows(allowed, half) and not np.any(weights[other]):
            at = halves.index(half) * D

            def narrow(weight: np.ndarray, at: int = at) -> np.ndarray:
                return weight[:, at : at + D].copy()

            part = change_when_read(head, narrow, (cfg.num_classes, D))
            note = f"head: weights of zeros left out for the {other}"
            return state.rewritten(note, {"pool": half}, {"head.weight": part})
    raise CannotRewriteError(f"its head sees both; {TAKE_OFF}")


def head_hidden(state: ModelState, allowed: Any) -> ModelState:
    """Refuse: no other layer replaces the tanh layer; a model without its head does not need it."""
    raise CannotRewriteError(TAKE_OFF)


TAKE_OFF = "--num-classes 0 takes it off"
