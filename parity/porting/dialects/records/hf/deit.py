"""transformers' DeiT, which always has a distillation token.

With its own head (WithTeacher) it is the schema's distillation token. In a model with one head no head
reads it, so it is a register token.
"""

from __future__ import annotations

from collections.abc import Iterator

from parity.porting.dialects.dialect import ANY, Dialect
from parity.porting.dialects.records.hf.vit import (
    CAN,
    ENCODER,
    IGNORED,
    POOLER,
    RESIZED,
    SQUARE,
    both,
    pooler_entries,
    pooler_limits,
    settings,
)
from parity.porting.dialects.table import layer, row
from vit_config import ViTConfig

TOKEN = "embeddings.distillation_token"
ONE_HEAD = (*row("reg_token", TOKEN), *ENCODER, *layer("head", "classifier"))
POOLED = (*row("reg_token", TOKEN), *ENCODER, *layer("pre_logits", "pooler.dense"))
TWO_HEADS = (
    *row("dist_token", TOKEN),
    *ENCODER,
    *layer("head", "cls_classifier"),
    *layer("head_dist", "distillation_classifier"),
)


def _architecture(cfg: ViTConfig) -> str:
    if not cfg.num_classes:
        return "DeiTModel"
    return f"DeiTForImageClassification{'WithTeacher' if cfg.distill_token else ''}"


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from pooler_limits(cfg)
    if cfg.distill_token + cfg.register_tokens != 1:
        yield (
            "it has one token between the class token and the patches, not a distillation token:"
            f" {cfg.distill_token} and {cfg.register_tokens} registers"
        )
    if cfg.distill_token and not cfg.num_classes:
        yield "its model without heads looks at the class token alone (distill_token = true)"


DIALECTS = (
    Dialect(
        name="hf-deit",
        title="transformers' DeiT",
        family="hf",
        tables=both(ONE_HEAD, POOLED, TWO_HEADS),
        marks=("embeddings.patch_embeddings.projection.weight", TOKEN),
        can={**CAN, "distill_token": ANY, "register_tokens": (0, 1), "head_hidden": ANY},
        limits=_limits,
        fixed=RESIZED,
        square=SQUARE,
        settings=settings(
            "deit", "DeiT", norm_eps=1e-12, only=POOLER, entries=pooler_entries,
            architecture=_architecture, processor="DeiTImageProcessor",
        ),
        ignored=IGNORED,
        body="deit.",
        beside=("classifier.", "cls_classifier.", "distillation_classifier."),
    ),
)  # fmt: skip
