"""Rewrites of the patch projection's layout, gated MLPs, layer scales and shared keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.porting.dialects.rewrites.rewrite import (
    Arrays,
    ModelState,
    all_equal,
    allows,
    constant,
    find_in_blocks,
    first,
    require,
)
from parity.porting.dialects.transfer import change_when_read
from vit_config.parameters import parameters


def patch_embed(state: ModelState, allowed: Any) -> ModelState:
    """Convert between a kernel (D, C, ph, pw) and a matrix (D, values of a patch) of patches."""
    cfg = state.config
    options = (
        ("linear_hwc", "linear_chw") if cfg.patch_input_norm else ("conv", "linear_hwc", "linear_chw")
    )
    target = next((each for each in options if allows(allowed, each)), None)
    require(target is not None, "patches are normalised before the projection")
    D, C, (ph, pw) = cfg.hidden_size, cfg.in_channels, cfg.patch_size
    name = "patch_embed.proj.weight"

    def relayout(weight: np.ndarray) -> np.ndarray:
        if cfg.patch_embed == "linear_hwc":
            weight = weight.reshape(-1, ph, pw, C).transpose(0, 3, 1, 2)
        weight = weight.reshape(-1, C, ph, pw)
        if target == "linear_hwc":
            weight = weight.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(weight if target == "conv" else weight.reshape(len(weight), -1))

    shape = (D, C, ph, pw) if target == "conv" else (D, C * ph * pw)
    note = f"patch projection: {cfg.patch_embed} laid out as {target}"
    new = {name: change_when_read(state.arrays[name], relayout, shape)}
    for leaf in ("weight", "bias"):  # a norm of the flattened patch is permuted alike
        if (norm := f"patch_embed.norm_in.{leaf}") in state.arrays:
            values = state.arrays[norm]
            new[norm] = change_when_read(values, lambda each: relayout(each[None])[0], values.shape)
    return state.rewritten(note, {"patch_embed": target}, new)


def mlp(state: ModelState, allowed: Any) -> ModelState:
    """Join the layers of gate and value into a packed one, the gate first, or split it."""
    cfg = state.config
    require(not cfg.linear_bounds, "gate and value have bounds of their own")
    new: Arrays = {}
    if cfg.mlp == "swiglu" and allows(allowed, "swiglu_packed"):
        for leaf in ("weight", "bias"):
            names = find_in_blocks(state, f"mlp.fc1_g.{leaf}", f"mlp.fc1_x.{leaf}", f"mlp.fc1.{leaf}")
            for gate, value, packed in names:
                a, b = state.arrays[gate], state.arrays[value]
                new[packed] = change_when_read(
                    a, lambda g, b=b: np.concatenate([g, b.load()]), (2 * cfg.mlp_dim, *a.shape[1:])
                )
        return state.rewritten("gate and value joined into one layer", {"mlp": "swiglu_packed"}, new)
    require(cfg.mlp == "swiglu_packed" and allows(allowed, "swiglu"))
    for leaf in ("weight", "bias"):
        names = find_in_blocks(state, f"mlp.fc1.{leaf}", f"mlp.fc1_g.{leaf}", f"mlp.fc1_x.{leaf}")
        for packed, *apart in names:
            whole = state.arrays[packed]
            for half, name in enumerate(apart):
                new[name] = change_when_read(
                    whole,
                    lambda w, half=half: np.ascontiguousarray(np.split(w, 2)[half]),
                    (cfg.mlp_dim, *whole.shape[1:]),
                )
    return state.rewritten("gate and value taken apart into two layers", {"mlp": "swiglu"}, new)


def layer_scale(state: ModelState, allowed: Any) -> ModelState:
    """Add layer scales of ones, or leave out layer scales of ones."""
    cfg = state.config
    require(cfg.block == "pre_norm")
    if cfg.layer_scale is None:
        changes = {"layer_scale": 1.0, "layer_scale_on": "both"}
        names = [n for n in parameters(cfg.replace(**changes)) if n.endswith("gamma")]
        new = {name: constant((cfg.hidden_size,), 1.0, first(state)) for name in names}
        return state.rewritten("layer scales of ones added", changes, new)
    for name in state.arrays:
        require(not name.endswith("gamma") or all_equal(state.arrays[name], 1.0), f"{name} is not one")
    changes = {"layer_scale": None, "layer_scale_on": "both"}
    return state.rewritten("layer scales of ones left out", changes, {})


def layer_scale_on(state: ModelState, allowed: Any) -> ModelState:
    """Add layer scales of ones to MLPs that have none."""
    cfg = state.config
    require(cfg.layer_scale_on == "attention")
    changes = {"layer_scale_on": "both"}
    names = [name for name in parameters(cfg.replace(**changes)) if name not in state.arrays]
    new = {name: constant((cfg.hidden_size,), 1.0, first(state)) for name in names}
    return state.rewritten("layer scales of ones added to the MLPs", changes, new)


def num_kv_heads(state: ModelState, allowed: Any) -> ModelState:
    """Repeat keys and values that several query heads share, once for each head."""
    cfg = state.config
    require(allows(allowed, None))
    d, width = cfg.head_dim, cfg.attention_width
    new: Arrays = {}
    for leaf, joined in (("attn.qkv.weight", True), ("attn.qkv.bias", True), ("attn.v_bias", False)):
        for (name,) in find_in_blocks(state, leaf):
            kv = cfg.kv_heads[int(name.split(".")[1])]
            whole, queries = state.arrays[name], width if joined else 0

            def repeat(values: np.ndarray, kv: int = kv, queries: int = queries) -> np.ndarray:
                shared = values[queries:].reshape(-1, d, *values.shape[1:])  # keys' heads, values' heads
                wide = np.repeat(shared, cfg.num_heads // kv, axis=0)
                return np.concatenate([values[:queries], wide.reshape(-1, *values.shape[1:])])

            new[name] = change_when_read(
                whole, repeat, (3 * width if joined else width, *whole.shape[1:])
            )
    return state.rewritten("shared keys and values written once per head", {"num_kv_heads": None}, new)
