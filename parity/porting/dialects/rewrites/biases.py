"""Rewrites of biases: no bias is a bias of zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.porting.dialects.rewrites.rewrite import (
    Arrays,
    ModelState,
    Rewrite,
    all_equal,
    constant,
    find_in_blocks,
    require,
)
from parity.porting.dialects.transfer import change_when_read
from parity.porting.formats.base import Stored


def zero_bias(field: str, weights: tuple[str, ...], where: str) -> Rewrite:
    """Return a rewrite that adds missing biases as zeros, or leaves out biases of zeros."""

    def rewrite(state: ModelState, allowed: Any) -> ModelState:
        require(state.config.block != "parallel" or field not in ("attention_out_bias", "mlp_bias"))
        layers = [n for leaf in weights for (n,) in find_in_blocks(state, f"{leaf}.weight")]
        layers += [f"{leaf}.weight" for leaf in weights if f"{leaf}.weight" in state.arrays]
        biases = {name.removesuffix("weight") + "bias": state.arrays[name] for name in layers}
        if not getattr(state.config, field):
            new = {name: constant((w.shape[0],), 0.0, w) for name, w in biases.items()}
            return state.rewritten(f"{where}: biases of zeros added", {field: True}, new)
        for name in biases:
            require(all_equal(state.arrays[name], 0.0), f"{name} is not zero")
        return state.rewritten(f"{where}: biases of zeros left out", {field: False}, {})

    return rewrite


def qkv_bias(state: ModelState, allowed: Any) -> ModelState:
    """Add missing biases of q, k and v as zeros, or leave out biases of zeros."""
    cfg = state.config
    require(cfg.attention != "per_head" and cfg.block != "parallel")
    if not cfg.qkv_bias:
        weights = {w: state.arrays[w] for (w,) in find_in_blocks(state, "attn.qkv.weight")}
        new = {
            w.removesuffix("weight") + "bias": constant((s.shape[0],), 0.0, s)
            for w, s in weights.items()
        }
        return state.rewritten("q, k, v: biases of zeros added", {"qkv_bias": True, "k_bias": True}, new)
    for leaf in ("attn.qkv.bias", "attn.q_bias", "attn.v_bias"):
        for (name,) in find_in_blocks(state, leaf):
            require(all_equal(state.arrays[name], 0.0), f"{name} is not zero")
    changes = {"qkv_bias": False, "k_bias": True}
    return state.rewritten("q, k, v: biases of zeros left out", changes, {})


def k_bias(state: ModelState, allowed: Any) -> ModelState:
    """Add a bias of zeros to keys if q and v have one, or leave out a bias of zeros of the keys."""
    cfg = state.config
    new: Arrays = {}
    if not cfg.k_bias:
        for q, v, joint in find_in_blocks(state, "attn.q_bias", "attn.v_bias", "attn.qkv.bias"):
            a, b = state.arrays[q], state.arrays[v]

            def join(values: np.ndarray, b: Stored = b) -> np.ndarray:
                last = b.load()
                return np.concatenate([values, np.zeros_like(last), last])

            new[joint] = change_when_read(a, join, (a.shape[0] + 2 * b.shape[0],))
        return state.rewritten("keys: a bias of zeros added", {"k_bias": True}, new)
    for joint, q, v in find_in_blocks(state, "attn.qkv.bias", "attn.q_bias", "attn.v_bias"):
        kv = cfg.kv_heads[int(joint.split(".")[1])] * cfg.head_dim
        whole = state.arrays[joint]
        width = whole.shape[0] - 2 * kv
        require(not np.any(whole.load()[width : width + kv]), f"the keys' part of {joint} is not zero")
        new[q] = change_when_read(whole, lambda values, n=width: values[:n].copy(), (width,))
        new[v] = change_when_read(whole, lambda values, n=width + kv: values[n:].copy(), (kv,))
    return state.rewritten("keys: a bias of zeros left out", {"k_bias": False}, new)
