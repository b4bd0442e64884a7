"""transformers' ViT and models with the same names of tensors: MSN, I-JEPA, the encoder of MAE.

Files have the names of version 4 and before, which the library still writes; a state dict taken from
memory has others since version 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.config import HfSettings, no_classifier
from parity.porting.dialects.records.hf.keys import (
    ACTS,
    DROPOUT,
    MLP,
    Key,
    head_dim,
    head_dim_entry,
    sizes,
)
from parity.porting.dialects.table import Table, layer, respell_names, row, split_attention
from vit_config import ViTConfig

BLOCK = "encoder.layer.{i}"
BLOCKS = (
    *layer("blocks.{i}.norm1", f"{BLOCK}.layernorm_before"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.attention.attention.{{}}", ("query", "key", "value")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.attention.output.dense"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.layernorm_after"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.intermediate.dense"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.output.dense"),
)
EMBEDDINGS = (
    *row("cls_token", "embeddings.cls_token"),
    *layer("patch_embed.proj", "embeddings.patch_embeddings.projection"),
    *row("pos_embed", "embeddings.position_embeddings"),
)
ENCODER = (*EMBEDDINGS, *BLOCKS, *layer("norm", "layernorm"))
CLASSIFIER = (*ENCODER, *layer("head", "classifier"))
POOLED = (*ENCODER, *layer("pre_logits", "pooler.dense"))
"""Table of the model without a classifier; a classifier does not use a pooler that its file may have."""

MEMORY = {
    ".attention.attention.query": ".attention.q_proj",
    ".attention.attention.key": ".attention.k_proj",
    ".attention.attention.value": ".attention.v_proj",
    ".attention.output.dense": ".attention.o_proj",
    ".intermediate.dense": ".mlp.fc1",
    ".output.dense": ".mlp.fc2",
    "encoder.layer.": "layers.",
}


def both(*tables: Table) -> tuple[Table, ...]:
    """Return the tables with the names of files, then with those of state dicts in memory."""
    return (*tables, *(respell_names(table, MEMORY) for table in tables))


CAN = {"qkv_bias": ANY, "norm_eps": ANY, "act": tuple(ACTS.values()), "attention_head_dim": ANY}
SQUARE = "interpolate_pos_encoding: sqrt_num_positions = num_positions**0.5"
RESIZED = by_code("interpolate_pos_encoding: mode = bicubic", pos_embed_resize="bicubic")
MARKS = (
    "embeddings.patch_embeddings.projection.weight",
    "embeddings.position_embeddings",
    "encoder.layer.0.layernorm_before.weight|layers.0.layernorm_before.weight",
    "!embeddings.distillation_token|embeddings.detection_tokens|encoder.layer.0.lambda_1",
)
IGNORED = ("embeddings.mask_token", "pooler.dense.*", "decoder.*")
QKV_BIAS = (Key("qkv_bias", "qkv_bias", True),)
POOLER = {"pooler_act": ("tanh",)}


def settings(model_type: str, name: str, *, norm_eps: float, **options) -> HfSettings:
    """Build the settings of a model whose class names begin with `name`."""
    shared = {"architecture": one_of(name), "derive": head_dim, "entries": head_dim_entry}
    keys = (*sizes(norm_eps=norm_eps), *MLP, *DROPOUT, *QKV_BIAS)
    return HfSettings(model_types={model_type: ""}, keys=keys, **{**shared, **options})


def one_of(name: str) -> Callable[[ViTConfig], str]:
    """Return a function that names the class for a schema: with a classifier, or without."""
    return lambda cfg: f"{name}{'ForImageClassification' if cfg.num_classes else 'Model'}"


def pooler_entries(cfg: ViTConfig) -> dict[str, int]:
    """Return the entries for the width of the pooler, and for that of heads if it is needed."""
    return {**head_dim_entry(cfg), "pooler_output_size": cfg.head_hidden or cfg.hidden_size}


def pooler_limits(cfg: ViTConfig) -> Iterator[str]:
    """Yield a sentence if a schema has both a pooler and a classifier, which exclude each other."""
    if cfg.head_hidden and cfg.num_classes:
        yield f"its classifier sees no tanh layer (head_hidden = {cfg.head_hidden})"


def _mae_limits(cfg: ViTConfig) -> Iterator[str]:
    yield from no_classifier(cfg)
    if cfg.grid[0] != cfg.grid[1]:
        yield f"its grid is square, not {cfg.grid}"


def _dialect(name: str, title: str, *, tables: tuple[Table, ...], marks=(), **options) -> Dialect:
    shared = {
        "can": CAN,
        "fixed": RESIZED,
        "square": SQUARE,
        "ignored": IGNORED,
        "beside": ("classifier.",),
    }
    return Dialect(
        name=name,
        title=title,
        family="hf",
        tables=tables,
        marks=(*MARKS, *marks),
        **{**shared, **options},
    )


DIALECTS = (
    _dialect(
        "hf-vit",
        "transformers' ViT",
        tables=both(CLASSIFIER, POOLED),
        marks=("embeddings.cls_token",),
        can={**CAN, "head_hidden": ANY},
        limits=pooler_limits,
        settings=settings(
            "vit", "ViT", norm_eps=1e-12, only=POOLER, entries=pooler_entries,
            relatives=("flava_image_model", "dpt"),
        ),
        body="vit.",
    ),
    _dialect(
        "hf-vit-msn",
        "transformers' ViTMSN",
        tables=both(CLASSIFIER),
        marks=("embeddings.cls_token",),
        settings=settings("vit_msn", "ViTMSN", norm_eps=1e-6),
        body="vit.",
    ),
    _dialect(
        "hf-ijepa",
        "transformers' I-JEPA",
        tables=both(CLASSIFIER),
        marks=("!embeddings.cls_token",),
        can={**CAN, "class_token": (False,), "pool": ("mean",)},
        settings=settings("ijepa", "IJepa", norm_eps=1e-12),
        body="ijepa.",
    ),
    _dialect(
        "hf-vit-mae",
        "the encoder of transformers' ViTMAE",
        tables=both(ENCODER),
        marks=("embeddings.cls_token",),
        limits=_mae_limits,
        # without a mask its model is the encoder alone
        settings=settings(
            "vit_mae", "ViTMAE", norm_eps=1e-12,
            entries=lambda cfg: {**head_dim_entry(cfg), "mask_ratio": 0.0},
        ),
        body="vit.",
    ),
)  # fmt: skip
