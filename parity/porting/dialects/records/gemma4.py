"""Gemma 4's image tower: its tensors by transformers' names, and what its code can compute.

Each block has norms at both ends of both branches, and its linear layers have bounds; the tower pools
squares of patches for a language model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, by_code
from parity.porting.dialects.table import Table, layer, row, split_attention
from vit_config import Rope, ViTConfig

PROJECTIONS = {
    "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.proj": ("self_attn.o_proj",),
    "mlp.fc1_g": ("mlp.gate_proj",),
    "mlp.fc1_x": ("mlp.up_proj",),
    "mlp.fc2": ("mlp.down_proj",),
}
"""The linear layers of a block, each with theirs."""
BOUNDS = ("input_min", "input_max", "output_min", "output_max")
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
         "post_feedforward_layernorm")  # fmt: skip
BLOCK = "encoder.layers.{i}"
TOWER: Table = (
    *layer("patch_embed.proj", "patch_embedder.input_proj"),
    *row(("pos_embed_x", "pos_embed_y"), "patch_embedder.position_embedding_table"),
    *split_attention(
        "blocks.{i}.attn", f"{BLOCK}.self_attn.{{}}.linear", ("q_proj", "k_proj", "v_proj")
    ),
    *(
        each
        for ours, (theirs, *more) in PROJECTIONS.items()
        if not more
        for each in layer(f"blocks.{{i}}.{ours}", f"{BLOCK}.{theirs}.linear")
    ),
    *(
        each
        for ours, theirs in PROJECTIONS.items()
        for each in row(
            f"blocks.{{i}}.{ours}.bounds",
            tuple(f"{BLOCK}.{name}.{bound}" for name in theirs for bound in BOUNDS),
            " -> 1",
        )
    ),
    *(
        each
        for number, name in enumerate(NORMS, 1)
        for each in layer(f"blocks.{{i}}.norm{number}", f"{BLOCK}.{name}")
    ),
    *(
        each
        for name in ("q_norm", "k_norm")
        for each in layer(f"blocks.{{i}}.attn.{name}", f"{BLOCK}.self_attn.{name}")
    ),
    *row("pool.std_bias", "std_bias"),
    *row("pool.std_scale", "std_scale"),
)
"""The tensors of transformers' tower."""


def shapes_say(prefix: str, attention: str, patches: str) -> Callable[..., dict[str, Any]]:
    """Return a function from shapes to the heads and the grid of the position tables.

    Args:
        prefix: the encoder's.
        attention: the first block's.
        patches: the patch embedding's.
    """

    def fields(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        names = [f"{prefix}{attention}.{name}.weight" for name in ("q_norm", "q_proj.linear")]
        names += [
            f"{prefix}{attention}.k_proj.linear.weight",
            f"{prefix}{patches}.position_embedding_table",
        ]
        norm, q, k, table = (shapes.get(name, ()) for name in names)
        if not (len(norm) == 1 and len(q) == len(k) == 2 and len(table) == 3) or not norm[0]:
            return {}
        d, heads, kv_heads = norm[0], q[0] // norm[0], k[0] // norm[0]
        return {
            "num_heads": heads,
            "num_kv_heads": None if kv_heads == heads else kv_heads,
            "attention_head_dim": None if heads * d == q[1] else d,
            "pos_embed_grid": (table[1], table[1]),
        }

    return fields


def limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield why Gemma 4's code cannot be a model."""
    rope = cfg.rope
    if rope is None or rope.replace(theta=100.0) != Rope(theta=100.0, axes="wh", pairs="half_of_axis"):
        yield "it turns queries and keys along columns, then along rows, in pairs of each half of a head"
    if isinstance(cfg.num_kv_heads, tuple):
        yield "its blocks have as many heads of keys, all of them"
    if cfg.table_grid[0] != cfg.table_grid[1]:
        yield f"its tables of rows and columns have one length, not {cfg.table_grid}"


def encoder_limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield why Gemma 4's encoder cannot be a model."""
    yield from limits(cfg)
    if cfg.num_classes:
        yield f"it has no classifier (num_classes = {cfg.num_classes})"


CAN = {
    **dict.fromkeys(("num_kv_heads", "attention_head_dim", "norm_eps", "act", "rope"), ANY),
    **dict.fromkeys(("linear_bounds", "pos_embed_grid"), ANY),
    **dict.fromkeys(("class_token", "patch_bias", "qkv_bias", "attention_out_bias"), (False,)),
    "mlp_bias": (False,),
    **dict.fromkeys(("centre_pixels", "qk_norm", "v_norm"), (True,)),
    "block": ("sandwich",),
    "attention_scale": (1.0,),
    "mlp": ("swiglu",),
    "norm": ("rmsnorm",),
    "pos_embed": ("factorized",),
    "pos_embed_resize": ("leading_rows",),
}
ENCODER_CAN = {
    **CAN,
    "final_norm": ("none",),
    "pool": ("soft",),
    "pool_window": ANY,
    "pool_standardise": ANY,
}
BY_CODE = by_code(
    "Gemma4: VisionAttention: scaling = 1.0, v_norm; PatchEmbedder: 2 * (pixel_values - 0.5)",
    attention_scale=1.0,
    v_norm=True,
    centre_pixels=True,
    dynamic_image_size=True,
    pos_embed_resize="leading_rows",
)
