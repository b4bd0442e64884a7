"""Image towers of OpenAI's CLIP and of open_clip.

Their head is the projection into the embedding space shared with text. open_clip uses OpenAI's names but
has more options: its config file says how a tower is built, or which timm model it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.open_clip_config import (
    MEAN,
    STD,
    OpenClipSettings,
    siglip_module,
)
from parity.porting.dialects.records.timm import EVERY
from parity.porting.dialects.records.timm.rules import VIT_CAN, vit_limits
from parity.porting.dialects.table import REST, Table, layer, respell_names, rest_under, row
from vit_config import Preprocess, ViTConfig

BLOCK = "visual.transformer.resblocks.{i}"


def _table(norm: str) -> Table:
    """Build the table; `norm` is the twins' name of the last norm."""
    return (
        *row("patch_embed.proj.weight", "visual.conv1.weight"),
        *row("cls_token", "visual.class_embedding", "D -> 1 1 D"),
        *row("pos_embed", "visual.positional_embedding", "n D -> 1 n D"),
        *layer("norm_pre", "visual.ln_pre"),
        *layer("blocks.{i}.norm1", f"{BLOCK}.ln_1"),
        *row("blocks.{i}.attn.qkv.weight", f"{BLOCK}.attn.in_proj_weight"),
        *row("blocks.{i}.attn.qkv.bias", f"{BLOCK}.attn.in_proj_bias"),
        *layer("blocks.{i}.attn.proj", f"{BLOCK}.attn.out_proj"),
        *row("blocks.{i}.ls1.gamma", f"{BLOCK}.ls_1.gamma"),
        *layer("blocks.{i}.norm2", f"{BLOCK}.ln_2"),
        *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.c_fc"),
        *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.c_proj"),
        *row("blocks.{i}.ls2.gamma", f"{BLOCK}.ls_2.gamma"),
        *layer(norm, "visual.ln_post"),
        *row("head.weight", "visual.proj", "i o -> o i"),
    )


TRUNK = tuple(
    replace(each, theirs=tuple(f"visual.trunk.{name}" for name in each.theirs))
    for each in EVERY
    if each != REST
)
NORM_BEFORE, NORM_AFTER = _table("norm"), _table("fc_norm")
TEXT = (
    "positional_embedding", "text_projection", "text_projection.*", "logit_scale", "logit_bias",
    "token_embedding.*",
    "transformer.resblocks.*", "ln_final.*", "text.*", "attn_mask", "text_decoder.*",
    "context_length", "vocab_size",
)  # fmt: skip
"""Tensors of the text tower, and those of neither tower."""
ATTENTION_POOL = {"*attn_pool*": "a model that pools by attention (CoCa and others)"}
MARKS = (
    "visual.conv1.weight", "visual.class_embedding", "visual.ln_post.weight", "!visual.attn_pool.probe",
)  # fmt: skip
PIXELS = Preprocess(mean=MEAN, std=STD)


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if not cfg.num_classes:
        yield "its tower always has a projection (num_classes is 0)"
    if cfg.in_channels != 3:
        yield f"its images have 3 channels, not {cfg.in_channels}"
    if cfg.layer_scale_on != "both":
        yield f"it scales both branches (layer_scale_on = {cfg.layer_scale_on})"


def _openai_limits(cfg: ViTConfig) -> Iterator[str]:
    yield from _limits(cfg)
    if cfg.head_dim != 64 or cfg.mlp_dim != 4 * cfg.hidden_size:
        yield "its heads are 64 wide and its MLP is 4 times as wide as a token, whatever the model"
    if cfg.image_size[0] != cfg.image_size[1] or cfg.patch_size[0] != cfg.patch_size[1]:
        yield f"its images and patches are square, not {cfg.image_size} and {cfg.patch_size}"


def _input_resolution(cfg: ViTConfig) -> np.ndarray:
    """Return the ``input_resolution`` that OpenAI's archives keep, and no other library's files have."""
    return np.array(cfg.image_size[0])


def _heads(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    heads = fields["hidden_size"] // 64
    return by_code("clip/model.py: vision_heads = vision_width // 64", num_heads=heads)


def _dialect(name: str, title: str, *, can: Mapping[str, Any], **own: Any) -> Dialect:
    shared = {"patch_bias": (False,), "pre_norm": (True,), "head_bias": (False,), "norm_eps": (1e-5,)}
    return Dialect(name=name, title=title, can={**shared, **can}, **{"ignored": TEXT, **own})


def _open_clip(name: str, title: str, table: Table, **own: Any) -> Dialect:
    can = {
        "act": ("gelu", "quick_gelu", "gelu_tanh"),
        "norm_eps": ANY,
        "pre_norm": ANY,
        "layer_scale": ANY,
        "pool": ("class", "mean"),
        **own.pop("can", {}),
    }
    return _dialect(
        name,
        title,
        family="open-clip",
        tables=(table,),
        can=can,
        limits=_limits,
        fixed=by_code("open_clip/model.py: resize_pos_embed", pos_embed_resize="bicubic_antialias"),
        square="open_clip/model.py: resize_pos_embed: int(math.sqrt(len(pos_emb_img)))",
        preprocess=PIXELS,
        foreign=ATTENTION_POOL,
        weights_name="open_clip_model.safetensors",
        **own,
    )


NORMS_AFTER = "open-clip-norm-after-mean"


def _mistaken_for(fields: Mapping[str, Any]) -> str:
    """Return the dialect that normalises the pooled mean instead of the tokens, with the same names."""
    return NORMS_AFTER if fields.get("pool") == "mean" else ""


AFTER = {"final_norm": ("post_pool",), "pool": ("mean",)}
BARE = respell_names(NORM_BEFORE, {"visual.": ""})
DIALECTS = (
    _open_clip(
        "open-clip",
        "open_clip",
        NORM_BEFORE,
        marks=(*MARKS, "!input_resolution"),
        settings=OpenClipSettings(),
        mistaken_for=_mistaken_for,
    ),
    _open_clip(
        NORMS_AFTER,
        "open_clip that normalises what it pooled",
        NORM_AFTER,
        marks=(*MARKS, "!input_resolution"),
        can=AFTER,
        settings=OpenClipSettings("vit_norm_after_mean"),
    ),
    _open_clip(
        "open-clip-tower",
        "the image tower of open_clip",
        BARE,
        marks=tuple(mark.replace("visual.", "") for mark in MARKS),
        settings=OpenClipSettings(),
        ignored=(),
    ),
    Dialect(
        name="open-clip-timm",
        title="open_clip with an image tower of timm's",
        family="open-clip",
        tables=((*layer("head", "visual.head.proj"), *TRUNK, *rest_under("visual.trunk.")),),
        marks=("visual.trunk.patch_embed.proj.weight", "visual.trunk.blocks.0.norm1.weight"),
        can=dict.fromkeys(ViTConfig.fields(), ANY),
        settings=OpenClipSettings("timm"),
        ignored=TEXT,
        writes=False,
    ),
    Dialect(
        name="open-clip-siglip",
        title="open_clip with a SigLIP of timm's",
        family="open-clip",
        tables=(rest_under("visual.trunk."),),
        marks=(),  # read as open-clip-timm
        can={**VIT_CAN, "class_token": (False,), "pool": ("map",), "num_classes": (0,)},
        limits=vit_limits,
        settings=OpenClipSettings("timm"),
        module=siglip_module,
        ignored=TEXT,
        weights_name="open_clip_model.safetensors",
    ),
    _dialect(
        "clip",
        "OpenAI's CLIP",
        family="clip",
        tables=(NORM_BEFORE,),
        marks=MARKS,
        can={"act": ("quick_gelu",)},
        limits=_openai_limits,
        fixed={
            **by_code("clip/model.py: QuickGELU", act="quick_gelu"),
            **by_code("torch.nn.LayerNorm: eps = 1e-5", norm_eps=1e-5),
            **by_code("clip/model.py: ln_post(x[:, 0, :])", pool="class"),
            **by_code("clip/model.py: nothing resizes a table", pos_embed_resize="bicubic"),
        },
        follows=_heads,
        square="clip/model.py: VisionTransformer(input_resolution: int)",
        preprocess=PIXELS,
        buffers={"input_resolution": _input_resolution},
        container="torch",
        weights_name="model.pt",
    ),
)
