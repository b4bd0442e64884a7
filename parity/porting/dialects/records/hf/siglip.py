"""transformers' SigLIP and SigLIP 2: the image tower that pools by attention, the one that returns only
tokens, and the classifier.

SigLIP 2 takes patches of images of any size, and resizes its square table to the grid of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf import preprocessor
from parity.porting.dialects.records.hf.clip import BLOCKS, EMBEDDINGS, KEYS, TEXT, square
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import ACTS, sizes
from parity.porting.dialects.records.hf.relatives import DEFAULTS, RELATIVES, mistaken_places
from parity.porting.dialects.table import layer, row
from vit_config import ViTConfig

ENCODER = (*EMBEDDINGS, *BLOCKS, *layer("norm", "post_layernorm"))
Q_KV = (1, 2)
POOL = (
    *row("attn_pool.latent", "head.probe"),
    *row(("attn_pool.q.weight", "attn_pool.kv.weight"), "head.attention.in_proj_weight", parts=Q_KV),
    *row(("attn_pool.q.bias", "attn_pool.kv.bias"), "head.attention.in_proj_bias", parts=Q_KV),
    *layer("attn_pool.proj", "head.attention.out_proj"),
    *layer("attn_pool.norm", "head.layernorm"),
    *layer("attn_pool.mlp.fc1", "head.mlp.fc1"),
    *layer("attn_pool.mlp.fc2", "head.mlp.fc2"),
)
SIZES = (*sizes(norm_eps=1e-6, act="gelu_pytorch_tanh"), *KEYS)
CAN = {"norm_eps": ANY, "act": tuple(ACTS.values()), "class_token": (False,)}
PATCHES = "embeddings.patch_embedding.weight"
MARKS = ("embeddings.position_embedding.weight", "post_layernorm.weight", "!embeddings.class_embedding")
IDS = ("embeddings.position_ids",)
TOKENS_ALONE = (
    "its library pools nothing; pool = mean is what the schema calls that, and changes no token"
)


def _image_size(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the image size from the number of patches of the square position table."""
    side = math.isqrt(entries.get("num_patches", 256))
    if side * side != entries.get("num_patches", 256):
        raise ValueError(f"num_patches = {entries['num_patches']} is not a square number")
    return {"image_size": side * int(entries["patch_size"])}


def no_head(cfg: ViTConfig) -> Iterator[str]:
    """Yield why a tower of this code cannot be the model: as `square`, and it has no classifier."""
    yield from square(cfg)
    if cfg.num_classes:
        yield f"its tower has no classifier (num_classes = {cfg.num_classes})"


def _head(cfg: ViTConfig) -> Iterator[str]:
    yield from square(cfg)
    if not cfg.num_classes:
        yield "it always has a classifier (num_classes is 0)"


def _dialects(family: str, version: str, axes: int) -> tuple[Dialect, ...]:
    """Build the dialects of the towers and the classifier of one version."""
    model = family.capitalize()
    title = f"transformers' SigLIP{version}"
    flat = axes == 2
    made = partial(
        HfSettings,
        keys=tuple(key for key in SIZES if not (flat and key.name == "image_size")),
        refuse=(lambda fields: iter(())) if flat else oblong,
        derive=_image_size if flat else (lambda entries: {}),
        processor=preprocessor.OF_PATCHES if flat else "SiglipImageProcessor",
    )
    grid = (lambda cfg: {"num_patches": cfg.num_patches}) if flat else (lambda cfg: {})
    kind = {"patch_embed": "linear_hwc"} if flat else {}
    can = {**CAN, **{name: (value,) for name, value in kind.items()}}
    resize = "bilinear_antialias" if flat else "bicubic"
    fixed = {
        **by_code(
            f"{model}VisionEmbeddings",
            pos_embed_resize=resize,
            **({"dynamic_image_size": True} if flat else {}),
        ),
        **by_code("Siglip2ImageProcessor: convert_image_to_patches", **kind),
    }
    marks = (f"{PATCHES}:{axes}", *MARKS)
    dialect = partial(
        Dialect,
        family="hf",
        square=f"{model}VisionEmbeddings: position_embedding, of a square number of patches",
    )
    tower = {f"{family}_vision_model": "", family: "vision_config"}
    whole = {"architecture": lambda cfg: f"{model}VisionModel", "model_types": tower}
    pools_nothing = by_code(f"{model}VisionModel: pooler_output = None without a head", pool="mean")
    return (
        dialect(
            name=f"hf-{family}-vision",
            title=title,
            tables=((*ENCODER, *POOL),),
            marks=(*marks, "head.probe", "!classifier.weight"),
            can={**can, "pool": ("map",)},
            limits=no_head,
            fixed=fixed,
            settings=made(only={"vision_use_head": (True,)}, entries=grid, **whole),
            ignored=TEXT,
            body="vision_model.",
        ),
        dialect(
            name=f"hf-{family}-tokens",
            title=f"{title} without a pooling head",
            tables=(ENCODER,),
            marks=(*marks, "!head.probe", "!classifier.weight"),
            can={**can, "pool": ("mean",)},
            limits=no_head,
            fixed={**fixed, **pools_nothing},
            note=TOKENS_ALONE,
            settings=made(
                entries=lambda cfg: {**grid(cfg), "vision_use_head": False},
                **{**whole, "model_types": tower if flat else {**tower, **RELATIVES}},
                **({} if flat else {"defaults": DEFAULTS, "differs": mistaken_places}),
            ),
            ignored=IDS,
        ),
        dialect(
            name=f"hf-{family}-classifier",
            title=f"{title} with a classifier",
            tables=((*ENCODER, *layer("head", "classifier")),),
            marks=(*marks, "classifier.weight"),
            can={**can, "pool": ("mean",)},
            limits=_head,
            fixed=fixed,
            settings=made(
                model_types={family: "vision_config"},
                architecture=lambda cfg: f"{model}ForImageClassification",
                # without the pooling head, which the classifier does not use
                entries=lambda cfg: {**grid(cfg), "vision_use_head": False},
            ),
            ignored=("head.*", *TEXT),
            body="vision_model.",
            beside=("classifier.",),
        ),
    )


DIALECTS = (*_dialects("siglip", "", 4), *_dialects("siglip2", " 2", 2))
