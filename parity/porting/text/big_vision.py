"""The text tower of a two-tower model of Big Vision, under ``txt`` beside the image tower's ``img``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import Fixed, by_code
from parity.porting.dialects.records.google import LINEN, encoder
from parity.porting.dialects.table import Table, dense, respell_names, row
from parity.porting.text.dialect import TextDialect
from vit_config import TextConfig

CODE = "big_vision/models/proj/image_text/text_transformer.py"


def _table(stack: str) -> Table:
    block = "Transformer/encoderblock" + ("" if stack else "_{i}")
    blocks = respell_names(encoder(block, LINEN, stack=stack), {"Transformer/": "txt/Encoder_0/"})
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


def _limits(cfg: TextConfig) -> Iterator[str]:
    if (cfg.act, cfg.norm_eps, cfg.causal) != ("gelu_tanh", 1e-6, False):
        yield "its texts have act = gelu_tanh, norm_eps = 1e-06 and no mask"
    if cfg.pool not in ("last", "first"):
        yield f"its texts are pooled at the last or the first token (pool = {cfg.pool})"
    if (cfg.projection_dim is not None) != cfg.projection_bias or not cfg.logit_scale:
        yield "its projection has a bias, and there is a scale of the logits"


def _dialect(name: str, image: str, stack: str) -> TextDialect:
    return TextDialect(
        name=name,
        title="Big Vision",
        beside=(image,),
        tables=(_table(stack),),
        mark="txt/Embed_0/embedding",
        tower=("txt/*", "t", "b"),
        follows=_by_code,
        limits=_limits,
        image_prefix="params/img/",
        text_prefix="params/",
        sibling="img",
    )


DIALECTS = (
    _dialect("big-vision-text", "big-vision", ""),
    _dialect("big-vision-scan-text", "big-vision-scan", "L "),
)
