"""timm's Gemma 4 image towers: their tensors, what their classes can compute, and their arguments.

The encoder keeps the names of transformers' tower but for those of its blocks; the classifier holds an
encoder. Vectors by which an encoder standardises what it pools are left out of a classifier, which never
uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, by_code
from parity.porting.dialects.table import Table, apart, layer, respelled, row, under
from parity.porting.dialects.timm.argument import (
    NEEDLESS,
    Argument,
    Fields,
    no_effect,
    only,
    same,
    shown,
    size,
    training,
    word,
)
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
    *apart("blocks.{i}.attn", f"{BLOCK}.self_attn.{{}}.linear", ("q_proj", "k_proj", "v_proj")),
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
ENCODER = respelled(
    TOWER,
    {
        "patch_embedder.": "patch_embed.",
        "encoder.layers.": "blocks.",
        ".self_attn.": ".attn.",
        **{f".{name}.": f".norm{number}." for number, name in enumerate(NORMS, 1)},
    },
)
CLASSIFIER = (
    *under("encoder.", tuple(each for each in ENCODER if "std_" not in each.theirs[0])),
    *layer("head", "head"),
)
UNUSED = ("encoder.std_bias", "encoder.std_scale")
"""Vectors of a classifier's encoder that the classifier never uses."""


def shapes_say(prefix: str, attention: str, patches: str) -> Callable[..., dict[str, Any]]:
    """Return a function from shapes to the heads and the grid of the position tables.

    Args:
        prefix: the encoder's.
        attention: the first block's.
        patches: the patch embedding's.
    """

    def found(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
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

    return found


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
CLASSIFIER_CAN = {
    **CAN,
    "final_norm": ("post_pool", "none"),
    "final_norm_affine": lambda cfg: (cfg.final_norm == "none",),
    "pool": ("mean",),
}
BY_CODE = by_code(
    "Gemma4: VisionAttention: scaling = 1.0, v_norm; PatchEmbedder: 2 * (pixel_values - 0.5)",
    attention_scale=1.0,
    v_norm=True,
    centre_pixels=True,
    dynamic_image_size=True,
    pos_embed_resize="leading_rows",
)


def classifier_follows(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the final norm has a gain, which follows from whether there is one."""
    where = "timm/models/gemma4_vit.py: Gemma4VitClassifier: RmsNorm(affine=False)"
    known = "final_norm" in fields
    return by_code(where, final_norm_affine=fields["final_norm"] == "none") if known else {}


def _norm(value: Any, known: Fields) -> Fields:
    return {"final_norm": "post_pool" if value else "none", "final_norm_affine": not value}


ARGUMENTS = {
    "img_size": size("image_size"),
    "patch_size": size("patch_size"),
    "in_chans": same("in_channels"),
    "num_classes": same("num_classes"),
    "global_pool": word("pool", {"soft": "soft", "avg": "mean"}),
    "encoder_pool": only(""),
    "embed_dim": same("hidden_size", "attention_head_dim"),
    "depth": same("depth"),
    "num_heads": same("num_heads", "attention_head_dim", "num_kv_heads"),
    "head_dim": shown(lambda cfg: cfg.head_dim, "attention_head_dim"),
    "num_kv_heads": shown(lambda cfg: cfg.kv_heads[0], "num_kv_heads"),
    "intermediate_size": same("mlp_dim"),
    "norm_eps": same("norm_eps"),
    "rope_theta": Argument(
        lambda cfg: cfg.rope.theta if cfg.rope else NEEDLESS,
        lambda value, known: {"rope": known["rope"].replace(theta=float(value))},
    ),
    "position_embedding_size": shown(lambda cfg: cfg.table_grid[0], "pos_embed_grid"),
    "pooling_kernel_size": Argument(
        lambda cfg: cfg.pool_window or NEEDLESS,
        lambda value, known: {"pool_window": value} if known["pool"] == "soft" else {},
    ),
    "standardize": shown(lambda cfg: cfg.pool_standardise, "pool_standardise"),
    "use_clipped_linears": shown(lambda cfg: cfg.linear_bounds, "linear_bounds"),
    "final_norm": Argument(
        lambda cfg: NEEDLESS if cfg.pool == "soft" else cfg.final_norm == "post_pool", _norm
    ),
    "drop_rate": training("dropout_head"),
    "proj_drop_rate": training("dropout_attention_out"),
    "attn_drop_rate": training("dropout_attention"),
    "drop_path_rate": training("stochastic_depth"),
    "weight_init": no_effect(),
}
"""Arguments of ``Gemma4VitEncoder`` and ``Gemma4VitClassifier``."""
