"""Literal types shared by the schema and other modules."""

from typing import Literal

Act = Literal["gelu", "gelu_tanh", "quick_gelu", "silu", "relu"]
"""Activations of an MLP."""

Init = Literal[
    "timm",
    "timm_by_depth",
    "timm_truncated",
    "jax",
    "eva",
    "torch",
    "torch_mha",
    "torch_uniform_tokens",
    "xavier_normal",
]
"""Recipes of initial values."""

Resampling = Literal[
    "bicubic_antialias",
    "bicubic",
    "bilinear",
    "bilinear_antialias",
    "bilinear_corners",
    "dinov2",
    "leading_rows",
]
"""Rules that fit a position table to another grid."""
