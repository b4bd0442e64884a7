"""SigLIP's image tower in models that give it another name: Idefics 2 and 3, SmolVLM.

Their code computes the position of each patch from fractions in float32. For some grids two patches get
the same position, even in images of the table's own size; no schema computes that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

KINDS = ("idefics2", "idefics3", "smolvlm")
RELATIVES = {name: "" for kind in KINDS for name in (f"{kind}_vision", kind)}
"""Values of ``model_type`` in ``vision_config``; older files have the whole model's there."""
_OWN = {"patch_size": 32}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    name: _OWN if "idefics2" in name else {**_OWN, "hidden_size": 1152, "num_attention_heads": 16}
    for name in RELATIVES
}
"""Defaults of missing entries where they are not SigLIP's."""


def places(side: int) -> np.ndarray:
    """Compute the position row that their code gives each row of patches.

    Each number is rounded once. Machines may round more often, so more grids are wrong on some:
    `--verify` tells.

    Args:
        side: patches along a side of a square image.
    """
    bounds = (1 / side + np.arange(side - 1) * (1 / side)).astype(np.float32)
    rows = np.arange(side, dtype=np.float32) * (np.float32(1) / np.float32(side))
    return np.searchsorted(bounds, np.minimum(rows, np.float32(1 - 1e-6)), side="right")


def mistaken_places(entries: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if two patches get the same position.

    Args:
        entries: those of the config file.
        fields: the schema's fields that they state.
    """
    if entries.get("model_type") not in RELATIVES:
        return
    side = fields["image_size"][0] // fields["patch_size"][0]
    wrong = int((places(side) != np.arange(side)).sum())
    if wrong:
        yield (
            f"image_size = {fields['image_size'][0]} makes a grid of {side}x{side}, of which the code of"
            f" {entries['model_type']} gives {wrong} rows and columns the position of their neighbour"
            " (torch.bucketize of fractions in float32), which no schema says"
        )
