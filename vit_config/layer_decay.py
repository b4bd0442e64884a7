"""The layer of a parameter, and the factor of its learning rate."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vit_config.recipe import Recipe

_BLOCK = re.compile(r"blocks\.(\d+)\.")
_STEM = {
    "timm": ("cls_token", "dist_token", "reg_token", "pos_embed", "patch_embed", "norm_pre"),
    "mae": ("cls_token", "pos_embed", "patch_embed"),
}


def layer_of(recipe: Recipe, name: str, depth: int) -> int:
    """Return the layer of one parameter: 0 before the blocks, i + 1 in block i, `depth` + 1 for the
    head and all parameters that no rule names.

    timm's `group_matcher` counts the final norm - `norm`, not `fc_norm` - to the last block; MAE's
    `get_layer_id_for_vit`, which is BEiT's, counts it to the head.
    """
    if name.startswith(_STEM[recipe.layer_rule]):
        return 0
    if block := _BLOCK.match(name):
        return int(block[1]) + 1
    if recipe.layer_rule == "timm" and name.startswith("norm."):
        return depth
    return depth + 1


def layer_scales(recipe: Recipe, names: Iterable[str]) -> dict[str, float]:
    """Return the factor of each parameter's learning rate: layer_decay^(last layer - its layer).

    Args:
        names: all parameters of a model, which tell the number of blocks.
    """
    names = tuple(names)
    depth = max((int(block[1]) + 1 for block in map(_BLOCK.match, names) if block), default=0)
    layers = {name: layer_of(recipe, name, depth) for name in names}
    return {name: recipe.layer_decay ** (max(layers.values()) - layer) for name, layer in layers.items()}
