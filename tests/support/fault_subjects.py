"""For each deliberate fault, a small schema whose models can have it."""

from typing import Any

from tests.support.tiny import TINY
from vit_config import Rope, ViTConfig

BASE = TINY.replace(layer_scale=0.1, register_tokens=2)
"""Most faults have something to break here."""

ROTARY: dict[str, Any] = {"hidden_size": 40, "rope": Rope(theta=100.0)}
RELATIVE: dict[str, Any] = {"rel_pos_bias": True, "register_tokens": 0, "pos_embed": "none"}
NEEDED: dict[str, dict[str, Any]] = {
    "rotated_prefix": ROTARY,
    "rotary_pairs": ROTARY,
    "rotary_offset": ROTARY,
    "tiled_kv_heads": {"num_heads": 6, "num_kv_heads": 2},
    "swapped_gate": {"mlp": "swiglu_packed", "act": "silu"},
    "transposed_relative_positions": RELATIVE,
    "missing_relative_positions": RELATIVE,
    "missing_qk_norm": {"qk_norm": True},
    "pooled_prefix": {"pool": "map"},
    "lambda_of_the_next_block": {"attention": "differential"},
    "ignored_distillation_head": {"distill_token": True},
    "transposed_patches": {"image_size": (15, 10), "patch_size": 5},
    "other_resampling": {"dynamic_image_size": True},
    "first_token_pooled": {"pool": "mean"},
    "norm_behind_the_pooling": {"pool": "mean"},
    "missing_tanh": {"head_hidden": 17},
}
"""What BASE must be given first."""


def subject(name: str) -> ViTConfig:
    """A schema whose models can have the fault of that name."""
    return BASE.replace(**NEEDED.get(name, {}))
