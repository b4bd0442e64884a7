"""timm's spelling of its state dicts.

The ``vision_transformer`` and ``deit`` models name every tensor as the twins do. ``eva`` and ``beit``
models spell some leaves of a block in another way, and may hold q, k and v apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from vit_config import ViTConfig

# one tensor of a block here -> the tensors there that make it, joined along their first axis
_OTHER_SPELLINGS: dict[str, tuple[str, ...]] = {
    "ls1.gamma": ("gamma_1",),
    "ls2.gamma": ("gamma_2",),
    "attn.qkv.weight": ("attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"),
    "attn.qkv.bias": ("attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"),
    "attn.q_bias": ("attn.q_proj.bias",),
    "attn.v_bias": ("attn.v_proj.bias",),
    "attn.rel_pos_bias.table": ("attn.relative_position_bias_table",),
}


class Row(NamedTuple):
    """One tensor of the twins, and the timm tensors that it joins along the first axis."""

    ours: str
    theirs: tuple[str, ...]


def rows(cfg: ViTConfig, names: Iterable[str]) -> Iterator[Row]:
    """The table for a state dict with these names.

    A name that belongs to no row is its own row: whoever loads the result finds it unexpected.
    """
    left = dict.fromkeys(names)
    for index in range(cfg.depth):
        for ours, theirs in _OTHER_SPELLINGS.items():
            found = tuple(f"blocks.{index}.{name}" for name in theirs)
            if all(name in left for name in found):
                yield Row(f"blocks.{index}.{ours}", found)
                for name in found:
                    del left[name]
    yield from (Row(name, (name,)) for name in left)


def read(
    cfg: ViTConfig, state: Mapping[str, Any], *, join: Callable[..., Any] = np.concatenate
) -> dict[str, Any]:
    """A timm state dict by the twins' names.

    Args:
        join: what joins a list of the state's arrays or tensors along their first axis.
    """
    return {
        row.ours: state[row.theirs[0]]
        if len(row.theirs) == 1
        else join([state[name] for name in row.theirs])
        for row in rows(cfg, state)
    }


def write(
    cfg: ViTConfig, arrays: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The twins' parameters as a timm state dict with these names."""
    state = {}
    for row in rows(cfg, names):
        whole = arrays[row.ours]
        if len(row.theirs) == 1:
            state[row.theirs[0]] = whole
            continue
        kv_width = cfg.kv_heads[int(row.ours.split(".")[1])] * cfg.head_dim
        ends = (cfg.hidden_size, cfg.hidden_size + kv_width)
        state.update(zip(row.theirs, np.split(whole, ends), strict=True))
    return state
