"""Patches, tokens and positions of a model of timm's, read into fields of the schema."""

from __future__ import annotations

from timm_understood import LAYERS, Fields, NotUnderstoodError, Timms, is_there, kind_of

_ROPES = {
    LAYERS + "pos_embed_sincos.RotaryEmbeddingCat": "axial",
    LAYERS + "pos_embed_sincos.RotaryEmbeddingDinoV3": "centered",
    LAYERS + "pos_embed_sincos.RotaryEmbeddingMixed": "mixed",
}
_RESAMPLING = {  # interpolation, antialias, align_corners of timm's checkpoint filter, or embedding
    ("bicubic", True, False): "bicubic_antialias",
    ("bilinear", False, False): "bilinear",
    ("bilinear", True, False): "bilinear_antialias",
    ("bilinear", False, True): "bilinear_corners",
}


def flex_embeds_of(model: Timms) -> Fields:
    """Return the fields of `NaFlexEmbeds`, whose position table has a grid of its own."""
    embeds = model.embeds
    mode, grid = embeds.pos_embed_interp_mode, embeds.pos_embed_grid_size
    rule = _RESAMPLING[mode, embeds.pos_embed_antialias, bool(embeds.pos_embed_align_corners)]
    learned = embeds.pos_embed_type == "learned"
    if not embeds.is_linear or model.rope is not None:
        raise NotUnderstoodError("a convolution or rotary positions")
    return {
        "image_size": tuple(model.pretrained_cfg["input_size"][1:]),
        "patch_size": tuple(embeds.patch_size),
        "dynamic_image_size": True,
        "in_channels": embeds.in_chans,
        "hidden_size": model.embed_dim,
        "patch_embed": "linear_hwc",
        "patch_bias": embeds.proj.bias is not None,
        "patch_norm": is_there(embeds.norm),
        "class_token": embeds.cls_token is not None,
        "register_tokens": embeds.num_reg_tokens,
        "pre_norm": is_there(model.norm_pre),
        "pos_embed": embeds.pos_embed_type,
        "pos_embed_grid": tuple(grid),
        "pos_embed_aspect": "keep" if embeds.pos_embed_ar_preserving else "stretch",
        "pos_embed_prefix": "none" if learned and embeds.num_prefix_tokens else "auto",
        # its factorized tables are interpolated by one rule, whatever it is told
        "pos_embed_resize": rule if learned else "bilinear",
    }


def embeds_of(model: Timms, loading: Fields) -> Fields:
    """Return the fields of patches and positions."""
    return {**_patches(model), **_positions(model, loading)}


def _patches(model: Timms) -> Fields:
    embed = model.patch_embed
    sizes, patch = tuple(embed.img_size), tuple(embed.patch_size)
    if tuple(embed.proj.stride) != patch:
        raise NotUnderstoodError(f"patch_embed.proj.stride = {embed.proj.stride}, not {patch}")
    whole = all(side % p == 0 for side, p in zip(sizes, patch, strict=True))
    registers = getattr(model, "reg_token", None)
    return {
        "image_size": sizes,
        "patch_size": patch,
        "patch_remainder": "refuse" if whole else "crop",
        "dynamic_image_size": getattr(model, "dynamic_img_size", False),
        "in_channels": embed.proj.in_channels,
        "hidden_size": model.embed_dim,
        "patch_bias": embed.proj.bias is not None,
        "patch_norm": is_there(embed.norm),
        "class_token": model.cls_token is not None,
        "distill_token": getattr(model, "dist_token", None) is not None,
        "register_tokens": 0 if registers is None else registers.shape[1],
        "pre_norm": is_there(getattr(model, "norm_pre", None)),
    }


def _positions(model: Timms, loading: Fields) -> Fields:
    table = model.pos_embed is not None
    bare_prefix = table and model.num_prefix_tokens and getattr(model, "no_embed_class", False)
    options = {"interpolation": "bicubic", "antialias": True, "align_corners": False, **loading}
    rule = options.pop("interpolation"), options.pop("antialias"), bool(options.pop("align_corners"))
    if options or rule not in _RESAMPLING:
        raise NotUnderstoodError(f"a checkpoint filter with {loading}")
    return {
        "pos_embed": "learned" if table else "none",
        "pos_embed_prefix": "none" if bare_prefix else "auto",
        "pos_embed_resize": _RESAMPLING[rule],
        "rope": _rope(model),
        "rel_pos_bias": any(name.endswith("position_bias_table") for name in model.state_dict()),
    }


def _rope(model: Timms) -> Fields | None:
    rope = getattr(model, "rope", None)
    if rope is None:
        return None
    grid, own = tuple(model.patch_embed.grid_size), rope.feat_shape
    if own is not None and tuple(own) != grid:
        raise NotUnderstoodError(f"rope.feat_shape = {own}, but the grid is {grid}")
    reference = getattr(rope, "ref_feat_shape", None)
    return {
        "kind": _ROPES[kind_of(rope)],
        "theta": float(rope.temperature),
        "reference_grid": None if reference is None else tuple(reference),
        "offset": float(getattr(rope, "grid_offset", 0.0)),
        "axes": {"ij": "hw", "xy": "wh"}[rope.grid_indexing],
        "pairs": "half" if getattr(rope, "rotate_half", False) else "interleaved",
    }
