"""SigLIP's image tower in the models that have it under a name of their own: Idefics 2 and 3, SmolVLM.

Their code finds the position of each patch by fractions in float32. For some grids two patches come out
at one position, in images of the table's own size too; that is not the function of a schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

KINDS = ("idefics2", "idefics3", "smolvlm")
RELATIVES = {name: "" for kind in KINDS for name in (f"{kind}_vision", kind)}
"""Values of ``model_type`` in ``vision_config``; older files say that of the whole model."""
_OWN = {"patch_size": 32}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    name: _OWN if "idefics2" in name else {**_OWN, "hidden_size": 1152, "num_attention_heads": 16}
    for name in RELATIVES
}
"""What their code takes for entries that are not there, where that is not SigLIP's."""


def places(side: int) -> np.ndarray:
    """The row of patches that the code takes for each row of a square image's own grid, if each number
    is rounded once. Machines round more often, so more sides are wrong on some: `--verify` tells.

    Args:
        side: patches along a side.
    """
    bounds = (1 / side + np.arange(side - 1) * (1 / side)).astype(np.float32)
    rows = np.arange(side, dtype=np.float32) * (np.float32(1) / np.float32(side))
    return np.searchsorted(bounds, np.minimum(rows, np.float32(1 - 1e-6)), side="right")


def mistaken_places(told: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """A sentence where two patches have one position.

    Args:
        told: the entries of the config file.
        fields: what they state of the schema.
    """
    if told.get("model_type") not in RELATIVES:
        return
    side = fields["image_size"][0] // fields["patch_size"][0]
    wrong = int((places(side) != np.arange(side)).sum())
    if wrong:
        yield (
            f"image_size = {fields['image_size'][0]} makes a grid of {side}x{side}, of which the code of"
            f" {told['model_type']} gives {wrong} rows and columns the position of their neighbour"
            " (torch.bucketize of fractions in float32), which no schema says"
        )
