"""Small schemas in which a swapped axis cannot hide: sizes differ, most are prime, nothing is square."""

import numpy as np

from vit_config import ViTConfig

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
    "leading_rows": {"pos_embed_resize": "leading_rows"},
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
    "softmax": {"head_activation": "softmax"},
    "no_head": {"num_classes": 0},
    "dropout": {
        "dropout_embed": 0.1,
        "dropout_attention": 0.2,
        "dropout_attention_out": 0.3,
        "dropout_mlp_inner": 0.4,
        "dropout_mlp_outer": 0.5,
        "stochastic_depth": 0.6,
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
