"""A model of timm's `gemma4_vit`, as it stands in memory, read into fields of the schema."""

from __future__ import annotations

from typing import Any

from torch import nn

from vit_config import ConfigError

POOLS = {"soft": "soft", "avg": "mean"}
CHECKED = ("RmsNorm", "GELU")
"""Classes of layers that are checked here: some norms have no gain, and activations are approximate."""


def gemma4_fields(model: Any) -> dict[str, Any]:
    """The fields of an encoder, or of a classifier that holds one.

    Raises:
        ConfigError: blocks differ, or something is not as the schema has it.
    """
    encoder = getattr(model, "encoder", model)
    embed, block, rotary = encoder.patch_embed, encoder.blocks[0], encoder.rotary_emb
    attention, soft = block.attn, model.global_pool == "soft"
    width, d = encoder.embed_dim, attention.head_dim
    size = tuple(model.pretrained_cfg["input_size"][1:])
    _check(encoder)
    heads = attention.num_heads
    return {
        "image_size": size,
        "patch_size": tuple(embed.patch_size),
        "in_channels": encoder.in_chans,
        "hidden_size": width,
        "depth": len(encoder.blocks),
        "num_heads": heads,
        "num_kv_heads": None if attention.num_kv_heads == heads else attention.num_kv_heads,
        "attention_head_dim": None if heads * d == width else d,
        "mlp_dim": block.mlp.down_proj.linear.in_features,
        "num_classes": model.num_classes,
        "patch_embed": "linear_chw",
        "patch_bias": False,
        "centre_pixels": True,
        "class_token": False,
        "pos_embed": "factorized",
        "pos_embed_grid": (embed.position_embedding_size,) * 2,
        "pos_embed_resize": "leading_rows",
        "dynamic_image_size": True,
        "rope": {"theta": float(rotary.rope_theta), "axes": "wh", "pairs": "half_of_axis"},
        "block": "sandwich",
        "qkv_bias": False,
        "qk_norm": True,
        "v_norm": True,
        "attention_scale": 1.0,
        "attention_out_bias": False,
        "mlp": "swiglu",
        "act": "gelu_tanh",
        "mlp_bias": False,
        "linear_bounds": encoder.use_clipped_linears,
        "norm": "rmsnorm",
        "norm_eps": block.norm1.eps,
        "final_norm": "none" if model is encoder or not _norms(model) else "post_pool",
        "final_norm_affine": model is encoder or not _norms(model),
        "pool": POOLS[model.global_pool],
        "pool_window": encoder.pooling_kernel_size if soft else None,
        "pool_standardise": soft and encoder.std_bias is not None,
        "init": "timm_truncated",
    }


def _norms(model: Any) -> bool:
    return not isinstance(model.norm, nn.Identity)


def _check(encoder: Any) -> None:
    """Norms are alike, with gains but for those of values and of the pooled vector; activations too."""
    norms = [(name, each) for name, each in encoder.named_modules() if type(each).__name__ == "RmsNorm"]
    for name, norm in norms:
        affine = not name.endswith("v_norm")
        if (norm.eps, norm.elementwise_affine) != (encoder.blocks[0].norm1.eps, affine):
            raise ConfigError(
                f"{name} has eps = {norm.eps}, elementwise_affine = {norm.elementwise_affine}"
            )
    for block in encoder.blocks:
        if getattr(block.mlp.act, "approximate", None) != "tanh":
            raise ConfigError(f"an activation that is {block.mlp.act}")
