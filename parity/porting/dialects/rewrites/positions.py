"""Rewrites of position tables: fixed and missing ones as learned ones; rows of prefix tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from parity.porting.dialects.rewrites.rewrite import (
    Arrays,
    ModelState,
    allows,
    canonical,
    constant,
    first,
    require,
)
from parity.porting.dialects.transfer import change_when_read
from parity.porting.formats.base import Stored
from vit_config import ViTConfig
from vit_config.numerics.tables import fixed_position_table


def pos_embed(state: ModelState, allowed: Any) -> ModelState:
    """Write a fixed position table as a learned one, and a missing one as a learned one of zeros."""
    cfg = state.config
    require(allows(allowed, "learned") and cfg.pos_embed not in ("learned", "factorized"))
    table = fixed_position_table(cfg, cfg.grid)  # (rows, D)
    like = first(state)
    rows = cfg.num_patches if table is None else len(table)
    prefix = "none" if rows == cfg.num_patches else cfg.pos_embed_prefix
    if table is None:
        stored = constant((1, rows, cfg.hidden_size), 0.0, like)
    else:
        stored = Stored((1, *table.shape), like.dtype, lambda: table[None].astype(like.dtype))
    note = f"position table: {cfg.pos_embed} written out as a learned one"
    changes = {"pos_embed": "learned", "pos_embed_prefix": prefix}
    rounds = table is not None and _rounds(table, like.dtype)
    new = state.rewritten(note, changes, {"pos_embed": stored}, rounds=rounds)
    return replace(new, config=canonical(new.config))


def pos_embed_grid(state: ModelState, allowed: Any) -> ModelState:
    """State the grid of a position table, or have it be that of the image size: a model that takes
    images of any size is the same whichever size it is named after."""
    cfg = state.config
    if allows(allowed, cfg.table_grid):
        note = "the position table's grid stated apart from the image size"
        return state.rewritten(note, {"pos_embed_grid": cfg.table_grid}, {})
    if allows(allowed, None) and cfg.table_grid == cfg.grid:
        note = "the position table's grid is that of the image size"
        return state.rewritten(note, {"pos_embed_grid": None}, {})
    require(allows(allowed, None) and cfg.pos_embed == "learned" and cfg.dynamic_image_size)
    height, width = (n * patch for n, patch in zip(cfg.table_grid, cfg.patch_size, strict=True))
    note = f"named after its position table, a model for {height}x{width}, and for any other size"
    return state.rewritten(note, {"pos_embed_grid": None, "image_size": (height, width)}, {})


def pos_embed_prefix(state: ModelState, allowed: Any) -> ModelState:
    """Fold table rows of tokens before the patches into those tokens, or add missing rows as zeros."""
    cfg = state.config
    require(cfg.pos_embed == "learned")
    before, tokens = cfg.num_prefix_rows, _prefix_tokens(cfg)
    options = {"none": 0, "class": 1, "auto": len(tokens), "all": len(tokens)}
    target = next((each for each in ("auto", "all", "none", "class") if allows(allowed, each)), None)
    require(target is not None and (target != "class" or cfg.class_token))
    after = options[str(target)]
    table = state.arrays["pos_embed"]
    new: Arrays = {}
    rounds = False

    def resize(values: np.ndarray) -> np.ndarray:
        zeros = np.zeros((1, max(after - before, 0), values.shape[2]), values.dtype)
        return np.concatenate([values[:, : min(before, after)], zeros, values[:, before:]], axis=1)

    for row in range(after, before):
        name, place = tokens[row]

        def add(token: np.ndarray, row: int = row, place: int = place) -> np.ndarray:
            token = token.copy()
            token[:, place] += table.load()[:, row]
            return token

        summands = (state.arrays[name].load()[:, place], table.load()[:, row])
        rounds |= _rounds(sum(each.astype(np.float64) for each in summands), table.dtype)
        new[name] = change_when_read(new.get(name, state.arrays[name]), add, state.arrays[name].shape)
    new["pos_embed"] = change_when_read(
        table, resize, (1, table.shape[1] - before + after, table.shape[2])
    )
    what = "folded into" if after < before else "written as zeros for"
    note = f"position rows {what} {abs(after - before)} of the tokens before the patches"
    return state.rewritten(note, {"pos_embed_prefix": target}, new, rounds=rounds)


def _rounds(values: Any, dtype: np.dtype) -> bool:
    """Return whether a cast of float64 `values` to a type rounds them; for float64 never."""
    return not np.array_equal(values.astype(dtype).astype(np.float64), values)


def _prefix_tokens(cfg: ViTConfig) -> list[tuple[str, int]]:
    """Return the tensor of each token before the patches, and the token's index in it."""
    tokens = [("cls_token", 0)] if cfg.class_token else []
    tokens += [("dist_token", 0)] if cfg.distill_token else []
    return tokens + [("reg_token", place) for place in range(cfg.register_tokens)]
