"""transformers' CLIP: the image tower, with or without the projection, and the classifier on it.

The towers return the normalised class token; the classifier averages patches that are not normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import ACTS, Key, sizes
from parity.porting.dialects.records.hf.vit import RESIZED
from parity.porting.dialects.table import Table, layer, respell_names, row, split_attention
from vit_config import ViTConfig

BLOCK = "encoder.layers.{i}"
BLOCKS: Table = (
    *layer("blocks.{i}.norm1", f"{BLOCK}.layer_norm1"),
    *split_attention("blocks.{i}.attn", f"{BLOCK}.self_attn.{{}}", ("q_proj", "k_proj", "v_proj")),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.self_attn.out_proj"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.layer_norm2"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.fc1"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.fc2"),
)
EMBEDDINGS: Table = (
    *layer("patch_embed.proj", "embeddings.patch_embedding"),
    *row("pos_embed", "embeddings.position_embedding.weight", "n D -> 1 n D"),
)
KEYS = (
    Key("intermediate_size", "mlp_dim", 3072),
    Key("attention_dropout", "dropout_attention", 0.0),
)
TEXT = ("text_model.*", "text_projection.*", "logit_scale", "logit_bias", "embeddings.position_ids")
"""Tensors of the text tower, and those of neither tower."""
ENCODER = (
    *row("cls_token", "embeddings.class_embedding", "D -> 1 1 D"),
    *EMBEDDINGS,
    *layer("norm_pre", "pre_layrnorm"),  # the library's own spelling
    *BLOCKS,
)
NORM = "post_layernorm"
VISION = (*ENCODER, *layer("norm", NORM), *layer("head", "visual_projection"))
"""AltCLIP's, saved with its text tower by version 5, has its blocks under ``encoder.layer``."""
CAN = {"norm_eps": ANY, "act": tuple(ACTS.values()), "patch_bias": (False,), "pre_norm": (True,)}
RELATIVES = ("altclip", "chinese_clip", "clipseg", "metaclip_2")
"""Models whose image tower is a copy of CLIP's code, with the defaults of its config."""


def square(cfg: ViTConfig) -> Iterator[str]:
    """Yield why this code cannot be the model: it is right only for square images and patches."""
    yield from oblong({"image_size": cfg.image_size, "patch_size": cfg.patch_size})


def _classifier_limits(cfg: ViTConfig) -> Iterator[str]:
    yield from square(cfg)
    if not cfg.num_classes:
        yield "it always has a classifier (num_classes is 0)"


def _projection(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the width of the projection as num_classes, if the class has a projection."""
    architectures = entries.get("architectures") or ()
    has_one = any(str(each).endswith("VisionModelWithProjection") for each in architectures)
    return {"num_classes": entries.get("projection_dim", 512)} if has_one else {}


def _constant(value: float) -> Callable[[ViTConfig], np.ndarray]:
    return lambda cfg: np.full(cfg.hidden_size, value)


def _dialect(name: str, title: str, *, can: Mapping[str, Any], settings: Any, **own: Any) -> Dialect:
    return Dialect(
        name=name,
        title=title,
        family="hf",
        can={**CAN, **can},
        settings=HfSettings(
            keys=(*sizes(norm_eps=1e-5, act="quick_gelu", patch_size=32), *KEYS),
            refuse=oblong,
            processor="CLIPImageProcessor",
            **settings,
        ),
        square="CLIPVisionEmbeddings: num_patches = (image_size // patch_size) ** 2",
        body="vision_model.",
        **own,
    )


DIALECTS = (
    _dialect(
        "hf-clip-vision",
        "transformers' CLIP",
        tables=(VISION, respell_names(VISION, {"encoder.layers.": "encoder.layer."})),
        marks=("embeddings.class_embedding", "pre_layrnorm.weight", "!classifier.weight"),
        can={"head_bias": lambda cfg: (False,) if cfg.num_classes else (True,)},
        limits=square,
        fixed={**RESIZED, **by_code("CLIPVisionTransformer: last_hidden_state[:, 0, :]", pool="class")},
        settings={
            "model_types": {
                "clip_vision_model": "",
                "clip": "vision_config",
                **{f"{name}_vision_model": "" for name in RELATIVES},
                **dict.fromkeys(RELATIVES, "vision_config"),
            },
            "architecture": lambda cfg: f"CLIPVisionModel{'WithProjection' if cfg.num_classes else ''}",
            "derive": _projection,
            "entries": lambda cfg: {"projection_dim": cfg.num_classes} if cfg.num_classes else {},
            "relatives": ("git_vision_model",),
        },
        ignored=TEXT,
        beside=("visual_projection.",),
    ),
    _dialect(
        "hf-clip-classifier",
        "transformers' CLIP with a classifier",
        tables=((*ENCODER, *layer("head", "classifier")),),
        marks=("embeddings.class_embedding", "pre_layrnorm.weight", "classifier.weight"),
        can={"pool": ("mean",), "final_norm": ("none",)},
        limits=_classifier_limits,
        fixed={**RESIZED, **by_code("CLIPForImageClassification: torch.mean(.., dim=1)", pool="mean")},
        settings={
            "model_types": {"clip": "vision_config"},
            "architecture": lambda cfg: "CLIPForImageClassification",
        },
        # the tower has this norm, but the classifier does not use its output
        buffers={f"{NORM}.weight": _constant(1.0), f"{NORM}.bias": _constant(0.0)},
        ignored=(f"{NORM}.*", *TEXT),
        beside=("classifier.",),
    ),
)
