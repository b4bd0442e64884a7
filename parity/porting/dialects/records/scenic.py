"""Google's Scenic: the ViT of its baselines, with Google's names except for the head, in a train state.

A model without a class token pools the mean, the sum or the maximum of its tokens (``gap``, ``gsp``,
``gmp``); the file does not say which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.google import LINEN, pooled_by_token
from parity.porting.dialects.records.google import table as google_table
from parity.porting.dialects.table import respell_names

CODE = "scenic/projects/baselines/vit.py"


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    return by_code(f"{CODE}: classifier = token: x[:, 0]", pool="class") if fields["class_token"] else {}


DIALECTS = (
    Dialect(
        name="scenic",
        title="Scenic's ViT",
        family="scenic",
        tables=(respell_names(google_table(LINEN), {"head/": "output_projection/"}),),
        marks=(
            "embedding/kernel",
            "Transformer/posembed_input/pos_embedding",
            "Transformer/encoderblock_0/LayerNorm_1/scale",
            "output_projection/kernel",
        ),
        can={
            "act": ("gelu_tanh",),
            "class_token": ANY,
            "head_hidden": ANY,
            "pool": ("class", "mean"),
        },
        limits=pooled_by_token,
        fixed={
            **by_code(f"{CODE}: activation_fn = nn.gelu, which approximates", act="gelu_tanh"),
            **by_code("flax.linen.LayerNorm: epsilon = 1e-6", norm_eps=1e-6),
            **by_code(f"{CODE}: init_vit_from_train_state: zoom", pos_embed_resize="bilinear_corners"),
        },
        follows=_follows,
        unshown=("pool",),
        square=f"{CODE}: init_vit_from_train_state: int(np.sqrt(len(posemb_grid)))",
        container="msgpack",
        weights_name="params.msgpack",
    ),
)
