"""The text tower of a two-tower model of Big Vision, under ``txt`` beside the image tower's ``img``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import Fixed, by_code
from parity.porting.dialects.google import LINEN, encoder
from parity.porting.dialects.table import Table, dense, respelled, row
from parity.porting.text.dialect import TextDialect

CODE = "big_vision/models/proj/image_text/text_transformer.py"


def _table(stack: str) -> Table:
    block = "Transformer/encoderblock" + ("" if stack else "_{i}")
    blocks = respelled(encoder(block, LINEN, stack=stack), {"Transformer/": "txt/Encoder_0/"})
    return (
        *row("token_embed", "txt/Embed_0/embedding"),
        *row("pos_embed", "txt/pos_embedding", "1 n D -> n D"),
        *blocks,
        *dense("head", "txt/head"),
        *row("logit_scale", "t", "1 -> "),
        *row("logit_bias", "b", "1 -> "),
    )


def _by_code(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return what the code decides; the pooling is none of it, since a config may choose another."""
    return {
        **by_code("big_vision/models/vit.py: nn.gelu, which approximates", act="gelu_tanh"),
        **by_code("flax.linen.LayerNorm: epsilon = 1e-6", norm_eps=1e-6),
        **by_code(f"{CODE}: no mask", causal=False),
    }


DIALECTS = (
    TextDialect(
        name="big-vision-text",
        title="Big Vision",
        beside=("big-vision", "big-vision-scan"),
        tables=(_table(""), _table("L ")),
        mark="txt/Embed_0/embedding",
        tower=("txt/*", "t", "b"),
        follows=_by_code,
        sibling="img",
    ),
)
