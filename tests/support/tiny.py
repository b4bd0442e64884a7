"""Small schemas in which a swapped axis cannot hide: sizes differ, most are prime, nothing is square."""

import numpy as np

from vit_config import ViTConfig
from vit_config.rope import Rope

TINY = ViTConfig(
    image_size=(21, 15),
    patch_size=(7, 5),
    in_channels=3,
    hidden_size=30,
    depth=3,
    num_heads=5,
    mlp_dim=44,
    num_classes=11,
)

SMALLEST = {
    "model.image-size": "21 15",
    "model.patch-size": "7 5",
    "model.in-channels": "3",
    "model.hidden-size": "20",
    "model.depth": "1",
    "model.num-heads": "2",
    "model.mlp-dim": "28",
    "model.num-classes": "3",
}
"""Flags of train.py for a model of one block."""

# name -> changes to TINY; together they turn every switch of the schema
VARIANTS = {
    "plain": {},
    "linear_hwc": {"patch_embed": "linear_hwc", "patch_input_norm": True},
    "linear_chw": {"patch_embed": "linear_chw", "patch_norm": True},
    "no_patch_bias": {"patch_bias": False, "pre_norm": True},
    "registers": {"register_tokens": 2},
    "registers_without_rows": {"register_tokens": 2, "pos_embed_prefix": "none"},
    "registers_class_row": {"register_tokens": 2, "pos_embed_prefix": "class"},
    "no_class_token": {"class_token": False, "pool": "mean"},
    "registers_only": {"class_token": False, "register_tokens": 3, "pool": "mean"},
    "mean_post_norm": {"pool": "mean", "final_norm": "post_pool"},
    "no_final_norm": {"final_norm": "none"},
    "sincos1d": {"pos_embed": "sincos1d", "register_tokens": 1},
    "sincos2d": {"pos_embed": "sincos2d", "hidden_size": 20},
    "sincos2d_simple": {"pos_embed": "sincos2d_simple", "hidden_size": 20, "pos_embed_prefix": "none"},
    "no_positions": {"pos_embed": "none"},
    "leading_rows": {"pos_embed_resize": "leading_rows", "dynamic_image_size": True},
    "own_table": {"pos_embed_grid": (4, 5), "pos_embed_aspect": "keep", "register_tokens": 2},
    "factorized": {"pos_embed": "factorized", "pos_embed_grid": (4, 5), "pos_embed_resize": "bilinear"},
    "crop": {"image_size": (24, 19), "patch_remainder": "crop"},
    "crop_linear": {"image_size": (24, 19), "patch_remainder": "crop", "patch_embed": "linear_hwc"},
    "distilled": {"distill_token": True, "register_tokens": 2},
    "distilled_headless": {"distill_token": True, "num_classes": 0},
    "rope_axial": {
        "hidden_size": 40,
        "rope": Rope(theta=100.0, reference_grid=(5, 2), offset=1.0, axes="wh"),
        "register_tokens": 2,
    },
    "rope_centered": {
        "hidden_size": 40,
        "pos_embed": "none",
        "rope": Rope(kind="centered", theta=100.0, pairs="half"),
        "class_token": False,
        "pool": "mean",
    },
    "rope_mixed": {"hidden_size": 40, "rope": Rope(kind="mixed", theta=10.0, axes="wh")},
    "rel_pos_bias": {"rel_pos_bias": True, "pos_embed": "none"},
    "grouped": {"num_heads": 6, "num_kv_heads": (6, 2, 3), "k_bias": False},
    "no_k_bias": {"k_bias": False},
    "narrow_heads": {"num_heads": 4, "attention_head_dim": 7, "attention_norm": True},
    "wide_heads": {
        "num_heads": 4,
        "num_kv_heads": (4, 1, 2),
        "attention_head_dim": 12,
        "k_bias": False,
        "qk_norm": True,
        "rope": Rope(theta=100.0),
    },
    "qk_norm": {"qk_norm": True, "norm": "rmsnorm"},
    "sub_norms": {"attention_norm": True, "mlp_norm": True},
    "swiglu": {"mlp": "swiglu", "act": "silu", "mlp_norm": True},
    "swiglu_packed": {"mlp": "swiglu_packed", "act": "silu", "mlp_bias": False},
    "attention_only_scale": {"layer_scale": 0.1, "layer_scale_on": "attention"},
    "res_post": {"block": "res_post", "layer_scale": 0.1},
    "sandwich": {
        "block": "sandwich",
        "norm": "rmsnorm",
        "hidden_size": 40,
        "rope": Rope(theta=100.0, axes="wh", pairs="half_of_axis"),
        "qk_norm": True,
        "v_norm": True,
        "attention_scale": 1.0,
        "linear_bounds": True,
        "mlp": "swiglu",
        "act": "gelu_tanh",
        "mlp_bias": False,
        "centre_pixels": True,
        "pos_embed": "factorized",
        "pos_embed_grid": (9, 8),
        "pos_embed_resize": "leading_rows",
        "class_token": False,
        "pool": "mean",
        "final_norm": "post_pool",
        "final_norm_affine": False,
        "dynamic_image_size": True,
    },
    "bounded": {"linear_bounds": True, "num_heads": 6, "num_kv_heads": (6, 2, 3), "k_bias": False},
    "soft_pooling": {
        "image_size": (28, 30),
        "class_token": False,
        "pool": "soft",
        "pool_window": 2,
        "pool_standardise": True,
        "num_classes": 0,
        "final_norm_affine": False,
    },
    "parallel": {"block": "parallel", "qk_norm": True, "layer_scale": 0.1},
    "parallel_bare": {"block": "parallel", "qkv_bias": False, "attention_out_bias": False},
    "branches": {"num_parallel": 2, "layer_scale": 0.1},
    "differential": {
        "attention": "differential",
        "qk_norm": True,
        "attention_norm": True,
        "norm": "rmsnorm",  # a LayerNorm of three values has no precision in reduced types
    },
    "differential_parallel": {
        "block": "parallel",
        "attention": "differential",
        "qkv_bias": False,
        "layer_scale": 0.1,
    },
    "class_mean": {"pool": "class_mean", "register_tokens": 2},
    "mean_of_all": {"pool": "mean", "pool_prefix": True, "register_tokens": 2},
    "map": {"pool": "map", "class_token": False, "pool_num_heads": 3, "pool_mlp_dim": 37},
    "map_of_all": {"pool": "map", "pool_prefix": True, "final_norm": "none", "mlp": "swiglu"},
    "per_head": {"attention": "per_head"},
    "per_head_bare": {
        "attention": "per_head",
        "qkv_bias": False,
        "attention_out_proj": False,
        "attention_out_bias": False,
    },
    "no_biases": {"qkv_bias": False, "attention_out_bias": False, "mlp_bias": False},
    "gelu_tanh": {"act": "gelu_tanh"},
    "quick_gelu": {"act": "quick_gelu"},
    "silu": {"act": "silu"},
    "relu": {"act": "relu"},
    "layer_scale": {"layer_scale": 0.1},
    "rmsnorm": {"norm": "rmsnorm", "norm_eps": 1e-5},
    "tanh_before_head": {"head_hidden": 17, "dropout_head": 0.1},
    "tanh_for_head": {"head_hidden": 17, "num_classes": 0, "pool": "class_mean"},
    "no_head_bias": {"head_bias": False},
    "distilled_without_head_bias": {"distill_token": True, "head_bias": False},
    "softmax": {"head_activation": "softmax"},
    "no_head": {"num_classes": 0},
    "dropout": {
        "dropout_embed": 0.1,
        "dropout_patch": 0.4,
        "dropout_head": 0.1,
        "dropout_attention": 0.2,
        "dropout_attention_out": 0.3,
        "dropout_mlp_inner": 0.4,
        "dropout_mlp_outer": 0.5,
        "stochastic_depth": 0.6,
        "hidden_size": 40,
        "rope": Rope(kind="mixed", theta=10.0),
    },
}


def variant(name: str) -> ViTConfig:
    """The schema of one variant."""
    return TINY.replace(**VARIANTS[name])


def error(value, reference) -> float:
    """Relative error of a whole tensor."""
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    assert value.shape == reference.shape
    return float(np.linalg.norm(value - reference) / np.linalg.norm(reference))
