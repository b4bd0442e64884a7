"""KerasHub's SigLIP and SigLIP 2: the image tower, by itself or beside the text tower, which is left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.porting.dialects.dialect import by_code
from parity.porting.dialects.records.hf import siglip
from parity.porting.dialects.records.hf.keys import Key
from parity.porting.dialects.records.keras_hub.parts import (
    ACTS,
    SIZES,
    SQUARE_PATCH,
    KerasSettings,
    activation,
    keras_attention,
    keras_blocks,
    keras_dialect,
    keras_heads,
    keras_layer,
    keras_norm,
)
from parity.porting.dialects.table import Table, row

EMBEDDING, FIRST = "layers/sig_lip_vision_embedding", "layers/sig_lip_encoder_layer"
POOL = "layers/sig_lip_multi_head_attention_pooling"
TANH = {"gelu_approximate": "gelu_tanh"}
"""The activation that the model's own code knows."""


def _mlp(ours: str, theirs: str) -> Table:
    return (
        *keras_layer(f"{ours}.fc1", f"{theirs}/fc1"),
        *keras_layer(f"{ours}.fc2", f"{theirs}/fc2"),
    )


def _block(ours: str, theirs: str) -> Table:
    return (
        *keras_norm(f"{ours}.norm1", f"{theirs}/layer_norm1"),
        *keras_attention(f"{ours}.attn", f"{theirs}/self_attn"),
        *keras_norm(f"{ours}.norm2", f"{theirs}/layer_norm2"),
        *_mlp(f"{ours}.mlp", f"{theirs}/mlp"),
    )


TABLE = (
    *keras_layer("patch_embed.proj", f"{EMBEDDING}/patch_embedding", "p q c o -> o c p q"),
    *row("pos_embed", f"{EMBEDDING}/position_embedding/vars/0", "n D -> 1 n D"),
    *keras_blocks(_block, FIRST),
    *keras_norm("norm", "layers/layer_normalization"),
    *row("attn_pool.latent", f"{POOL}/vars/0"),
    *keras_heads("attn_pool.q", f"{POOL}/attention", ("query",), "g e"),
    *keras_heads("attn_pool.kv", f"{POOL}/attention", ("key", "value"), "g e"),
    *keras_layer("attn_pool.proj", f"{POOL}/attention/output_dense", "g e o -> o (g e)"),
    *keras_norm("attn_pool.norm", f"{POOL}/layer_norm"),
    *_mlp("attn_pool.mlp", f"{POOL}/mlp"),
)


def _places(cfg: Any) -> np.ndarray:
    return np.arange(cfg.num_patches, dtype=np.int32)[None]


DIALECTS = (
    keras_dialect(
        "siglip",
        "SigLIP",
        tables=(TABLE,),
        marks=(f"{EMBEDDING}/patch_embedding/vars/0", f"{POOL}/vars/0"),
        can={
            "act": tuple(dict.fromkeys((*TANH.values(), *ACTS.values()))),
            "class_token": (False,), "pool": ("map",), "norm_eps": (1e-6,),
        },
        limits=siglip.no_head,
        # its last norm has this one whatever those of the blocks have
        asks=("norm_eps",),
        square="SigLIPVisionEncoder: the height and width to be the same in `image_shape`",
        fixed=by_code("SigLIPVisionEmbedding: nothing resizes a table", pos_embed_resize="bicubic"),
        settings=KerasSettings(
            "siglip.siglip_vision_encoder",
            "SigLIPVisionEncoder",
            keys=(
                *SIZES,
                SQUARE_PATCH,
                Key("intermediate_dim", "mlp_dim", None),
                Key("layer_norm_epsilon", "norm_eps", 1e-6, float),
                activation("intermediate_activation", "gelu_approximate", TANH),
            ),
            hosts={"SigLIPBackbone": "vision_encoder"},
        ),
        buffers={f"{EMBEDDING}/vars/0": _places},
    ),
)  # fmt: skip
