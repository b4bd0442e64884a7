"""Contradictions between fields of a schema, each as one sentence that names both values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vit_config.base import MOST_PIXELS, as_json
from vit_config.grids import first_rows_suffice, nearest_sizes

if TYPE_CHECKING:
    from vit_config.schema import ViTConfig


_MOST_PATCHES = 2**20
_MOST_NUMBERS = 2**40


def contradictions(cfg: ViTConfig) -> Iterator[str]:
    """Yield one sentence for each pair of fields that cannot both hold."""
    yield from _sizes(cfg)
    yield from _too_large(cfg)
    yield from _tokens(cfg)
    yield from _positions(cfg)
    yield from _attention(cfg)
    yield from _blocks(cfg)
    yield from _pooling(cfg)
    yield from _head(cfg)
    yield from _training(cfg)


def _sizes(cfg: ViTConfig) -> Iterator[str]:
    pairs = list(zip(cfg.image_size, cfg.patch_size, strict=True))
    cropped = cfg.patch_remainder == "crop"
    if cropped and any(side < patch for side, patch in pairs):
        yield f"image_size = {cfg.image_size} is smaller than one patch, patch_size = {cfg.patch_size}"
    elif not cropped and any(side % patch for side, patch in pairs):
        yield (
            f"image_size = {cfg.image_size} is not divisible by patch_size = {cfg.patch_size}; "
            + nearest_sizes(cfg.image_size, cfg.patch_size)
        )
    if cfg.attention_head_dim is None and cfg.hidden_size % cfg.num_heads:
        yield (
            f"num_heads = {cfg.num_heads} does not divide hidden_size = {cfg.hidden_size};"
            " make the width a multiple of the heads, or give attention_head_dim"
        )
    if cfg.patch_input_norm and cfg.patch_embed == "conv":
        yield (
            'patch_input_norm = true needs flattened patches, but patch_embed = "conv";'
            ' set patch_embed = "linear_hwc"'
        )


def _too_large(cfg: ViTConfig) -> Iterator[str]:
    """Refuse what no machine has room for: a few digits of a file may ask for anything."""
    height, width = cfg.image_size
    if height * width > MOST_PIXELS:
        yield f"image_size = {cfg.image_size} is {height * width} pixels, more than {MOST_PIXELS}"
    if cfg.num_patches > _MOST_PATCHES:
        yield f"image_size = {cfg.image_size} is {cfg.num_patches} patches, more than {_MOST_PATCHES}"
    if (rows := sum(shape[1] for shape in cfg.table_shapes.values())) > 2 * _MOST_PATCHES:
        yield f"its position tables have {rows} rows, more than {2 * _MOST_PATCHES}"
    layers = cfg.depth * cfg.num_parallel * (4 * cfg.attention_width + 2 * cfg.mlp_dim)
    rows = layers + cfg.num_classes + cfg.patch_dim + cfg.register_tokens
    if (count := rows * cfg.hidden_size) > _MOST_NUMBERS:
        yield (
            f"hidden_size = {cfg.hidden_size}, depth = {cfg.depth}, mlp_dim = {cfg.mlp_dim} and the"
            f" others make {count} parameters, more than {_MOST_NUMBERS}"
        )


def _tokens(cfg: ViTConfig) -> Iterator[str]:
    if cfg.pool in ("class", "class_mean") and not cfg.class_token:
        yield (
            f'pool = "{cfg.pool}" needs class_token = true, but class_token = false;'
            ' set pool = "mean" or class_token = true'
        )
    if cfg.distill_token and not (cfg.class_token and cfg.pool == "class"):
        yield (
            "distill_token = true stands beside a class token that is pooled, but class_token ="
            f' {as_json(cfg.class_token)} and pool = "{cfg.pool}"; set'
            ' class_token = true and pool = "class", or leave it out'
        )
    if cfg.distill_token and cfg.final_norm == "post_pool":
        yield (
            'distill_token = true has two pooled tokens, but final_norm = "post_pool" normalises one;'
            ' set final_norm = "pre_pool"'
        )


def _positions(cfg: ViTConfig) -> Iterator[str]:
    kind, prefix = cfg.pos_embed, cfg.pos_embed_prefix
    if kind not in ("learned", "sincos1d") and prefix in ("all", "class"):
        yield (
            f'pos_embed_prefix = "{prefix}" but pos_embed = "{kind}" has no rows for tokens'
            ' outside the grid; set pos_embed_prefix = "auto"'
        )
    if kind not in ("learned", "factorized"):
        for field in ("pos_embed_resize", "pos_embed_grid", "pos_embed_aspect"):
            if (value := getattr(cfg, field)) != type(cfg).model_fields[field].default:
                yield (
                    f"{field} = {as_json(value)} needs a learned table, but pos_embed ="
                    f' "{kind}", which is computed for every grid; leave it out'
                )
    elif kind == "factorized" and cfg.pos_embed_grid is None:
        yield (
            'pos_embed = "factorized" has tables of their own grid, but pos_embed_grid = null; give it'
        )
    elif cfg.pos_embed_aspect == "keep" and cfg.pos_embed_resize == "leading_rows":
        yield (
            'pos_embed_aspect = "keep" resamples a table, but pos_embed_resize = "leading_rows" does'
            " not; leave one of them out"
        )
    elif (
        cfg.pos_embed_resize == "leading_rows"
        and not cfg.dynamic_image_size  # else images are refused one by one
        and not first_rows_suffice(cfg, *cfg.grid)
    ):
        yield (
            'pos_embed_resize = "leading_rows" takes the first rows of a table, but pos_embed_grid ='
            f" {as_json(cfg.pos_embed_grid)} has too few for the {cfg.grid[0]}x{cfg.grid[1]} patches of"
            " the image; enlarge it, or set another pos_embed_resize"
        )
    if prefix == "class" and not (cfg.class_token and cfg.num_prefix_tokens > 1):
        yield (
            'pos_embed_prefix = "class" needs a class token and registers, but class_token ='
            f" {as_json(cfg.class_token)} and register_tokens = {cfg.register_tokens};"
            ' set pos_embed_prefix = "auto"'
        )
    if kind == "sincos1d" and cfg.hidden_size % 2:
        yield f'pos_embed = "sincos1d" needs an even hidden_size, but hidden_size = {cfg.hidden_size}'
    if kind.startswith("sincos2d") and cfg.hidden_size % 4:
        yield (
            f'pos_embed = "{kind}" needs hidden_size divisible by 4, but hidden_size = {cfg.hidden_size}'
        )
    if cfg.rope is not None and cfg.head_dim % 4:
        reason = (
            f"hidden_size = {cfg.hidden_size} and num_heads = {cfg.num_heads} make {cfg.head_dim}"
            if cfg.attention_head_dim is None
            else f"attention_head_dim = {cfg.attention_head_dim}"
        )
        yield f"rope turns pairs along two axes and needs heads of 4 n values, but {reason}"
    if cfg.rope is not None and cfg.rope.kind == "mixed" and set(cfg.kv_heads) != {cfg.num_heads}:
        yield (
            'rope.kind = "mixed" learns frequencies per query head, but num_kv_heads ='
            f" {cfg.num_kv_heads} and num_heads = {cfg.num_heads}; leave num_kv_heads out"
        )
    if cfg.rel_pos_bias:
        if not cfg.class_token or cfg.num_prefix_tokens > 1:
            yield (
                "rel_pos_bias = true has one row for a class token alone, but class_token ="
                f" {as_json(cfg.class_token)} and {cfg.num_prefix_tokens} tokens stand before the"
                " patches"
            )
        if cfg.dynamic_image_size:
            yield (
                "rel_pos_bias = true is a table of one grid, but dynamic_image_size = true;"
                " resize the weights instead"
            )
        if cfg.dropout_patch:
            yield (
                f"rel_pos_bias = true needs every patch, but dropout_patch = {cfg.dropout_patch};"
                " set it to 0"
            )


def _attention(cfg: ViTConfig) -> Iterator[str]:
    if cfg.attention_out_bias and not cfg.attention_out_proj:
        yield (
            "attention_out_bias = true has no projection to belong to, because"
            " attention_out_proj = false; set attention_out_bias = false"
        )
    own_width = cfg.attention_head_dim is not None
    if own_width and not cfg.attention_out_proj and cfg.attention_width != cfg.hidden_size:
        yield (
            f"attention_out_proj = false needs joined heads of hidden_size = {cfg.hidden_size}, but"
            f" num_heads = {cfg.num_heads} and attention_head_dim = {cfg.attention_head_dim} make"
            f" {cfg.attention_width}"
        )
    if not cfg.k_bias and not cfg.qkv_bias:
        yield "k_bias = false says that q and v alone have biases, but qkv_bias = false; leave it out"
    if cfg.attention == "differential" and cfg.head_dim % 2:
        yield f'attention = "differential" halves each head, but heads have {cfg.head_dim} values'
    heads = cfg.num_kv_heads
    if isinstance(heads, tuple) and len(heads) != cfg.depth:
        yield f"num_kv_heads has {len(heads)} numbers, but depth = {cfg.depth}; give one per block"
    elif any(cfg.num_heads % each for each in cfg.kv_heads):
        yield f"num_kv_heads = {heads} does not divide num_heads = {cfg.num_heads}"
    if cfg.attention != "fused":
        yield from _needs(
            cfg,
            f'attention = "{cfg.attention}"',
            k_bias=True,
            num_kv_heads=None,
            attention_head_dim=None,
            v_norm=False,
            **({"qk_norm": False, "linear_bounds": False} if cfg.attention == "per_head" else {}),
            **({"rope": None, "rel_pos_bias": False} if cfg.attention == "differential" else {}),
        )


def _blocks(cfg: ViTConfig) -> Iterator[str]:
    if cfg.layer_scale_on == "attention" and cfg.layer_scale is None:
        yield 'layer_scale_on = "attention" but layer_scale = null; give layer_scale a value'
    if cfg.num_parallel > 1:
        yield from _needs(cfg, f"num_parallel = {cfg.num_parallel}", block="pre_norm")
    if cfg.block == "res_post":
        yield from _needs(cfg, 'block = "res_post"', layer_scale_on="both")
    if cfg.block == "sandwich":
        yield from _needs(cfg, 'block = "sandwich"', layer_scale=None)
    if cfg.block == "parallel":
        yield from _needs(
            cfg,
            'block = "parallel"',
            mlp="mlp",
            mlp_norm=False,
            attention_norm=False,
            attention_out_proj=True,
            k_bias=True,
            num_kv_heads=None,
            attention_head_dim=None,
            rope=None,
            rel_pos_bias=False,
            v_norm=False,
            linear_bounds=False,
            layer_scale_on="both",
            dropout_attention_out=0.0,
            dropout_mlp_outer=0.0,
        )
        if cfg.attention == "per_head":
            yield 'block = "parallel" projects the whole width, but attention = "per_head"'
        if cfg.qkv_bias and not cfg.mlp_bias:
            yield (
                'block = "parallel" has one bias for q, k, v and the MLP, but qkv_bias = true and'
                " mlp_bias = false"
            )
        if cfg.attention == "differential" and cfg.attention_out_bias != cfg.mlp_bias:
            yield (
                'block = "parallel" with differential attention has one output projection, but'
                f" attention_out_bias = {as_json(cfg.attention_out_bias)} and mlp_bias ="
                f" {as_json(cfg.mlp_bias)}"
            )


def _pooling(cfg: ViTConfig) -> Iterator[str]:
    if cfg.pool == "class_mean" and cfg.final_norm == "post_pool":
        yield (
            'pool = "class_mean" joins two vectors, but final_norm = "post_pool" normalises one;'
            ' set final_norm = "pre_pool"'
        )
    if cfg.pool_prefix and (cfg.pool not in ("mean", "map") or not cfg.num_prefix_tokens):
        yield (
            f'pool_prefix = true, but pool = "{cfg.pool}" with {cfg.num_prefix_tokens} tokens before the'
            " patches has nothing to include; leave it out"
        )
    if cfg.pool == "soft":
        yield from _soft_pooling(cfg)
    else:
        yield from _needs(cfg, f'pool = "{cfg.pool}"', pool_window=None, pool_standardise=False)
    if cfg.final_norm == "none":
        yield from _needs(cfg, 'final_norm = "none"', final_norm_affine=True)
    if cfg.pool != "map":
        yield from _needs(cfg, f'pool = "{cfg.pool}"', pool_num_heads=None, pool_mlp_dim=None)
    elif cfg.pool_num_heads is not None and cfg.hidden_size % cfg.pool_num_heads:
        yield f"pool_num_heads = {cfg.pool_num_heads} does not divide hidden_size = {cfg.hidden_size}"
    elif cfg.pool_num_heads is None and cfg.hidden_size % cfg.num_heads:
        yield (
            f'pool = "map" shares hidden_size = {cfg.hidden_size} among num_heads = {cfg.num_heads},'
            " which does not divide it; set pool_num_heads"
        )


def _soft_pooling(cfg: ViTConfig) -> Iterator[str]:
    if cfg.pool_window is None:
        yield 'pool = "soft" takes squares of patches, but pool_window = null; give their side'
    elif any(side % cfg.pool_window for side in cfg.grid):
        yield (
            f"pool_window = {cfg.pool_window} does not divide the grid {cfg.grid} of image_size ="
            f" {cfg.image_size} in patches of {cfg.patch_size}"
        )
    if cfg.num_prefix_tokens:
        yield f'pool = "soft" pools patches alone, but {cfg.num_prefix_tokens} tokens stand before them'
    if cfg.final_norm == "post_pool":
        yield 'pool = "soft" has several pooled tokens, but final_norm = "post_pool" normalises one'
    yield from _needs(cfg, 'pool = "soft"', num_classes=0, head_hidden=None, dropout_patch=0.0)


def _head(cfg: ViTConfig) -> Iterator[str]:
    if cfg.head_hidden is not None and cfg.distill_token:
        yield (
            f"head_hidden = {cfg.head_hidden} is a layer before a single head, but distill_token = true"
            " has two; leave one of them out"
        )
    if not cfg.head_bias and not cfg.num_classes:
        yield "head_bias = false has no head to belong to, because num_classes = 0; leave it out"
    if cfg.head_activation != "none" and not cfg.num_classes:
        yield (
            f'head_activation = "{cfg.head_activation}" has no head to follow, because'
            ' num_classes = 0; set head_activation = "none"'
        )


def _training(cfg: ViTConfig) -> Iterator[str]:
    if cfg.dropout_head and not cfg.num_classes:
        yield (
            f"dropout_head = {cfg.dropout_head} has no head to precede, because num_classes = 0;"
            " set it to 0"
        )
    if cfg.stochastic_depth and cfg.depth == 1:
        yield (
            f"stochastic_depth = {cfg.stochastic_depth} never applies with depth = 1, because"
            " the first block is never skipped; set it to 0"
        )


def _needs(cfg: ViTConfig, what: str, **values: object) -> Iterator[str]:
    """Yield one sentence for each field that does not have the only value that goes with `what`."""
    for field, value in values.items():
        actual = getattr(cfg, field)
        if actual != value:
            yield f"{what} goes with {field} = {as_json(value)} only, but {field} = {as_json(actual)}"
