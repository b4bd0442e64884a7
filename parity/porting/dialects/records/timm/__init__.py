"""Dialects of timm's state dicts.

The ``vision_transformer`` and ``deit`` models name every tensor as the twins do. ``eva`` and ``beit``
models name some tensors of a block differently, and may have separate q, k and v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.gemma4 import (
    BY_CODE,
    ENCODER_CAN,
    encoder_limits,
    limits,
    shapes_say,
)
from parity.porting.dialects.records.timm import gemma4
from parity.porting.dialects.records.timm.config import TimmSettings
from parity.porting.dialects.records.timm.records import read_training_script
from parity.porting.dialects.records.timm.rules import (
    BEIT_CAN,
    EVA_CAN,
    FLEX_CAN,
    VIT_CAN,
    eva_follows,
    eva_limits,
    flex_follows,
    flex_limits,
    vit_follows,
    vit_limits,
)
from parity.porting.dialects.table import (
    REST,
    bind_theirs,
    layer,
    layout_of,
    read_only,
    rest_under,
    row,
    split_attention,
)

OLDER = (
    *layer("pre_logits", "pre_logits.fc"),  # of timm before 0.6; today's has no such layer
    # of Prismatic and OpenVLA, as transformers once renamed what has gamma in its name
    *read_only(row("blocks.{i}.ls1.gamma", "blocks.{i}.ls1.scale_factor")),
    *read_only(row("blocks.{i}.ls2.gamma", "blocks.{i}.ls2.scale_factor")),
)
SCALES = (
    *row("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1"),
    *row("blocks.{i}.ls2.gamma", "blocks.{i}.gamma_2"),
)
APART = split_attention("blocks.{i}.attn", "blocks.{i}.attn.{}", ("q_proj", "k_proj", "v_proj"))
SHARED = "rel_pos_bias.relative_position_bias_table"
BIAS_TABLE = (
    *row("blocks.{i}.attn.rel_pos_bias.table", "blocks.{i}.attn.relative_position_bias_table"),
    *row("blocks.{i}.attn.rel_pos_bias.table", SHARED),
)
FLEX_EMBEDS = (
    *layer("patch_embed.proj", "embeds.proj"),
    *layer("patch_embed.norm", "embeds.norm"),
    *(each for name in ("cls_token", "reg_token") for each in row(name, f"embeds.{name}")),
    *row("pos_embed", "embeds.pos_embed", "1 y x D -> 1 (y x) D"),
    *(each for name in ("pos_embed_y", "pos_embed_x") for each in row(name, f"embeds.{name}")),
)
VIT, EVA, SPLIT = (*OLDER, REST), (*SCALES, REST), (*SCALES, *APART, REST)
BEIT, FLEX = (*SCALES, *BIAS_TABLE, REST), (*FLEX_EMBEDS, REST)
GEMMA, ENCODER = (*gemma4.CLASSIFIER, *rest_under("encoder.")), (*gemma4.ENCODER, REST)
EVERY = (*SCALES, *BIAS_TABLE, *APART, *FLEX_EMBEDS, *GEMMA, *ENCODER)


def read_state(state: Mapping[str, Any], *, join: Callable[..., Any]) -> dict[str, Any]:
    """Rename a state dict of any of timm's Vision Transformers to the twins' names.

    Args:
        state: tensors of PyTorch or of numpy; they may be on the meta device.
        join: a function that concatenates a list of them along their first axis.
    """
    shapes = {name: tuple(each.shape) for name, each in state.items() if name not in gemma4.UNUSED}
    bound, _ = bind_theirs(EVERY, shapes)
    tensors = {}
    for one in bound:
        layout = layout_of(one.row)
        parts = [state[name] for name in one.theirs]
        parts = [each.reshape(layout.shape(each.shape)) if layout else each for each in parts]
        whole = join(parts) if len(parts) > 1 else parts[0]
        step = len(whole) // len(one.ours) if len(one.ours) > 1 else None  # equal parts of one of theirs
        for i, name in enumerate(one.ours):
            tensors[str(name)] = whole if step is None else whole[i * step : (i + 1) * step]
    return tensors


PATCHES = "patch_embed.proj.weight"
PLAIN = "blocks.0.norm1.weight|blocks.0.in_norm.weight|blocks.0.attns.0.norm.weight"
JOINT = "!blocks.0.attn.q_proj.weight"
NOT_PLAIN = ("!blocks.0.gamma_1", "!blocks.0.attn.q_bias", JOINT)
INDEX = ("blocks.*.attn.relative_position_index", "rel_pos_bias.relative_position_index")
TABLE = "embeds.pos_embed"
SQUARE = "timm/layers/pos_embed.py: resample_abs_pos_embed: hw = int(math.sqrt(..))"
PROJECTOR = "head.[0-9].*"
"""Several layers in place of the head: MoCo v3's projector, or a classifier, which is dropped only if
the user allows it (`parity.porting.recognition.heads`)."""
PLACES = ("temporal_embed_enc.scale", "location_embed_enc.scale")
"""Factors of the dates and places that Prithvi-EO 2.0 TL adds to its patches if a caller gives them."""
NATIVE = ("!mask_token", "!register_tokens", "!storage_tokens", "!blocks.0.mlp.w1.weight")
"""Tensors that only the authors' own files have, of models that timm has too."""


def _dialect(name: str, title: str, *spellings: Any, **own: Any) -> Dialect:
    settings = TimmSettings(name)
    return Dialect(
        name=name,
        title=title,
        family="timm",
        tables=spellings,
        settings=settings,
        code=settings.code,
        made_by=settings.made_by,
        trained=read_training_script,
        **{"ignored": INDEX, "square": SQUARE, **own},
    )


def _eva(name: str, title: str, table: Any, marks: tuple[str, ...], **can: Any) -> Dialect:
    return _dialect(
        name,
        title,
        table,
        marks=marks,
        can={**EVA_CAN, **can},
        limits=eva_limits,
        follows=eva_follows,
        asks=("rope", "block", "pos_embed"),
    )


def _table_grid(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the grid of the position table, which is stored as a grid or as one table per axis."""
    if "embeds.pos_embed_y" in shapes and "embeds.pos_embed_x" in shapes:
        return {"pos_embed_grid": tuple(shapes[f"embeds.pos_embed_{axis}"][1] for axis in "yx")}
    return {"pos_embed_grid": shapes[TABLE][1:3]} if TABLE in shapes else {}


DIALECTS = (
    _dialect(
        "timm-vit",
        "timm's ViT and DeiT",
        VIT,
        marks=(PATCHES, PLAIN, *NOT_PLAIN, *NATIVE),
        can=VIT_CAN,
        older={"head_hidden": ANY},  # models for 21k classes had it before 2022
        limits=vit_limits,
        follows=vit_follows,
        ignored=(*INDEX, PROJECTOR, "mask_token", *PLACES),
        foreign={"head.0.running_*": "a linear probe, a batch norm and a classifier"},
        asks=("rope", "block", "pool_prefix", "pos_embed"),
    ),
    _dialect(
        "timm-beit",
        "timm's BEiT",
        BEIT,
        marks=(PATCHES, f"blocks.0.attn.relative_position_bias_table|{SHARED}", "!mask_token"),
        # without relative positions its names are EVA's
        config_marks=(PATCHES, "blocks.0.norm1.weight", JOINT),
        can=BEIT_CAN,
        older={"rel_pos_bias": (False,)},  # timm's other classes can hold such a model as well
        follows=eva_follows,
        fixed=by_code("timm/models/beit.py: Block", rope=None, block="pre_norm"),
    ),
    _dialect(
        "timm-naflex",
        "timm's NaFlexViT",
        FLEX,
        marks=("embeds.proj.weight", "blocks.0.norm1.weight", "!blocks.0.attn.q_proj.weight"),
        can=FLEX_CAN,
        limits=flex_limits,
        follows=flex_follows,
        stated=_table_grid,
        fixed=by_code(
            "timm/models/naflexvit.py: NaFlexVit",
            patch_embed="linear_hwc",
            dynamic_image_size=True,
            block="pre_norm",
        ),
        asks=("rope", "pool_prefix"),
    ),
    _dialect(
        "timm-gemma4",
        "timm's Gemma 4 classifier",
        GEMMA,
        marks=("encoder.patch_embed.position_embedding_table", "encoder.blocks.0.norm4.weight"),
        can={**gemma4.CLASSIFIER_CAN, "patch_embed": ("linear_chw",)},
        limits=limits,
        follows=gemma4.classifier_follows,
        stated=shapes_say("encoder.", "blocks.0.attn", "patch_embed"),
        fixed=BY_CODE,
        unshown=("final_norm",),
        ignored=gemma4.UNUSED,
        square="",
    ),
    _dialect(
        "timm-gemma4-encoder",
        "timm's Gemma 4 encoder",
        ENCODER,
        marks=("patch_embed.position_embedding_table", "blocks.0.norm4.weight"),
        can={**ENCODER_CAN, "patch_embed": ("linear_chw",)},
        limits=encoder_limits,
        stated=shapes_say("", "blocks.0.attn", "patch_embed"),
        fixed=BY_CODE,
        unshown=("pool",),
        square="",
    ),
    _eva("timm-eva", "timm's EVA", EVA, (PATCHES, "blocks.0.norm1.weight", JOINT, *NATIVE)),
    _eva(
        "timm-eva-split",
        "timm's EVA with q, k and v apart",
        SPLIT,
        (PATCHES, "blocks.0.attn.q_proj.weight", *NATIVE),
        num_kv_heads=ANY,
    ),
)
