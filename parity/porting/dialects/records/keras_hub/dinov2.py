"""KerasHub's DINOv2, with registers and without, with a plain MLP or a gated one.

Its files hold two position tables: that which the model adds to the tokens of images of ``image_shape``,
and behind it that of ``position_embedding_shape``, which the library resizes to the first when it opens
the file. The first is read, as it was trained; the second is written, for images of its own size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Fixed, by_code
from parity.porting.dialects.records.hf.config import NUMBERS, oblong
from parity.porting.dialects.records.hf.dinov2 import gated_width
from parity.porting.dialects.records.hf.keys import Entries, Key
from parity.porting.dialects.records.keras_hub.parts import (
    SIZES,
    SQUARE_PATCH,
    KerasSettings,
    keras_attention,
    keras_blocks,
    keras_dialect,
    keras_layer,
    keras_norm,
)
from parity.porting.dialects.table import Table, only_when, read_only, row, unread
from vit_config import ViTConfig

CODE = "keras_hub/src/models/dinov2/dinov2_layers.py"
EMBEDDING, FIRST = "layers/dinov2_embedding", "layers/dinov2_encoder/layers/dinov2_layer"
OWN = f"{EMBEDDING}/vars/"
"""Prefix of the class token, 0; then, one after the other and as far as there are any, the token of
masked patches, the registers, and the two position tables."""


def _block(ours: str, theirs: str) -> Table:
    mlp = [(f"{ours}.mlp.fc1", f"{theirs}/mlp/fc1"), (f"{ours}.mlp.fc2", f"{theirs}/mlp/fc2")]
    return (
        *keras_norm(f"{ours}.norm1", f"{theirs}/norm1"),
        *keras_attention(f"{ours}.attn", f"{theirs}/attention/attention"),
        *row(f"{ours}.ls1.gamma", f"{theirs}/layer_scale1/vars/0"),
        *keras_norm(f"{ours}.norm2", f"{theirs}/norm2"),
        *(each for names in mlp for each in only_when("mlp", "mlp", keras_layer(*names))),
        *keras_layer(f"{ours}.mlp.fc1", f"{theirs}/mlp/weights_in"),
        *keras_layer(f"{ours}.mlp.fc2", f"{theirs}/mlp/weights_out"),
        *row(f"{ours}.ls2.gamma", f"{theirs}/layer_scale2/vars/0"),
    )


TRUNK = (
    *keras_layer("patch_embed.proj", f"{EMBEDDING}/patch_embeddings/projection", "p q c o -> o c p q"),
    *row("cls_token", f"{OWN}0"),
    *keras_blocks(_block, FIRST),
    *keras_norm("norm", "layers/layer_normalization"),
)


def _table(*, mask: bool, registers: bool, added: bool) -> Table:
    """Build the table of a model with these tokens.

    Args:
        added: its position table is that which the model adds to the tokens, and the other is unread.
    """
    first = 1 + mask + registers
    tokens = row("reg_token", f"{OWN}{first - 1}", axes=3) if registers else ()
    both = (*read_only(row("pos_embed", f"{OWN}{first}", axes=3)), *unread(f"{OWN}{first + 1}"))
    return (*TRUNK, *tokens, *(both if added else row("pos_embed", f"{OWN}{first + 1}")))


WRITTEN = tuple(_table(mask=True, registers=each, added=False) for each in (False, True))
# in this order, the first that fits is right; a table with fewer tokens never fits a file with more
STORED = tuple(
    _table(mask=mask, registers=registers, added=True)
    for registers in (False, True)
    for mask in (True, False)
)


def _derive(entries: Entries) -> dict[str, Any]:
    width = entries["intermediate_dim"]
    gated = {"mlp": "swiglu_packed", "mlp_dim": gated_width(width, 1)}
    smooth = entries.get("antialias_in_interpolation")
    return {
        **(gated if entries.get("use_swiglu_ffn") else {"mlp": "mlp", "mlp_dim": width}),
        "pos_embed_resize": "bicubic_antialias" if smooth else "bicubic",
    }


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    gated = cfg.mlp != "mlp"
    return {
        "intermediate_dim": cfg.mlp_dim * 3 // 2 if gated else cfg.mlp_dim,
        "use_swiglu_ffn": gated,
        "position_embedding_shape": [*cfg.image_size],
        "antialias_in_interpolation": cfg.pos_embed_resize == "bicubic_antialias",
    }


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    return by_code(f"{CODE}: gelu; ops.silu", act="gelu" if fields["mlp"] == "mlp" else "silu")


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from oblong({"image_size": cfg.image_size, "patch_size": cfg.patch_size})
    if cfg.num_classes:
        yield f"it has no classifier (num_classes = {cfg.num_classes})"
    if cfg.mlp != "mlp" and cfg.mlp_dim % 8:
        yield f"its gated MLP has a multiple of 8 as its width, not mlp_dim = {cfg.mlp_dim}"


DIALECTS = (
    keras_dialect(
        "dinov2",
        "DINOv2",
        tables=(*WRITTEN, *STORED),
        marks=(f"{EMBEDDING}/patch_embeddings/projection/vars/0", f"{FIRST}/layer_scale1/vars/0"),
        can={
            "layer_scale": NUMBERS, "layer_scale_on": ("both",), "mlp": ("mlp", "swiglu_packed"),
            "act": lambda cfg: ("gelu",) if cfg.mlp == "mlp" else ("silu",), "register_tokens": ANY,
            "pos_embed_prefix": lambda cfg: ("class",) if cfg.register_tokens else ("auto",),
        },
        limits=_limits,
        fixed=by_code("DINOV2Backbone: tokens alone; epsilon = 1e-6", pool="class", norm_eps=1e-6),
        follows=_follows,
        square="DINOV2Backbone: the height and width to be the same in `image_shape`",
        settings=KerasSettings(
            "dinov2.dinov2_backbone",
            "DINOV2Backbone",
            keys=(
                *SIZES,
                SQUARE_PATCH,
                Key("layer_scale_init_value", "layer_scale", 1.0),
                Key("num_register_tokens", "register_tokens", 0),
                Key(
                    "dropout_rate",
                    ("dropout_embed", "dropout_attention", "dropout_attention_out"),
                    0.0,
                ),
            ),
            derive=_derive,
            entries=_entries,
        ),
        # the token of masked patches; an encoder masks none
        buffers={f"{OWN}1": lambda cfg: np.zeros((1, cfg.hidden_size))},
        ignored=(f"{OWN}1",),
        note="where its two position tables differ, took that which the model adds to tokens; the"
        " library opens the file with the other one, resized",
    ),
)  # fmt: skip
